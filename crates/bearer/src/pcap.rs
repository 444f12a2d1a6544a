//! Writes what a bearer sends and receives to a capture file that Wireshark reads.
//!
//! Files are slow and sometimes stop, the data path must not: records go through a bounded channel to a thread of
//! their own. When that falls behind, records are dropped and counted.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use crate::capture::{Captured, file_header};
use crate::{Address, Bearer, Capabilities, Descriptors, Network, Notice, RxBatch, SendOutcome, Transmit};

/// Trains or groups on their way to the file.
const QUEUE_MAX: usize = 256;

/// Another bearer, with a capture of its data (not its beacons).
pub struct PcapBearer<B> {
    inner: B,
    queue: Option<SyncSender<Record>>,
    empties: Receiver<Vec<u8>>,
    writer: Option<JoinHandle<io::Result<()>>>,
    records_dropped: u64,
}

struct Record {
    unix_ns: u64,
    from: Address,
    to: Address,
    stride: usize,
    bytes: Vec<u8>,
}

impl<B: Bearer> PcapBearer<B> {
    /// Wraps `inner` and starts a new file at `path`.
    pub fn create(inner: B, path: &Path) -> io::Result<PcapBearer<B>> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&file_header())?;
        PcapBearer::with_output(inner, file)
    }

    fn with_output(inner: B, output: impl Write + Send + 'static) -> io::Result<PcapBearer<B>> {
        let (queue, records) = sync_channel(QUEUE_MAX);
        let (give_back, empties) = sync_channel(QUEUE_MAX);
        let writer = std::thread::Builder::new()
            .name("polyrail-pcap".into())
            .spawn(move || write_records(output, &records, &give_back))?;
        Ok(PcapBearer { inner, queue: Some(queue), empties, writer: Some(writer), records_dropped: 0 })
    }

    /// Trains and groups that are missing in the file because the writer could not keep up.
    pub fn records_dropped(&self) -> u64 {
        self.records_dropped
    }

    /// Ends the capture: everything taken is in the file afterwards. The bearer goes on without one.
    pub fn finish(&mut self) -> io::Result<()> {
        self.queue = None;
        match self.writer.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the capture thread failed")),
            None => Ok(()),
        }
    }

    fn record<'a>(
        &mut self,
        (from, to): (Address, Address),
        stride: usize,
        parts: impl Iterator<Item = &'a [u8]>,
    ) {
        let Some(queue) = &self.queue else { return };
        let mut bytes = self.empties.try_recv().unwrap_or_default();
        parts.for_each(|part| bytes.extend_from_slice(part));
        let record = Record { unix_ns: polyrail_sys::clock::unix_ns(), from, to, stride, bytes };
        if queue.try_send(record).is_err() {
            self.records_dropped += 1;
        }
    }
}

impl<B> Drop for PcapBearer<B> {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // An error of the file concerns the capture only, and nobody is left to tell.
            let _ = writer.join();
        }
    }
}

fn write_records(
    mut output: impl Write,
    records: &Receiver<Record>,
    give_back: &SyncSender<Vec<u8>>,
) -> io::Result<()> {
    let mut framed = Vec::new();
    loop {
        let record = match records.try_recv() {
            Ok(record) => record,
            Err(TryRecvError::Disconnected) => return output.flush(),
            Err(TryRecvError::Empty) => {
                // Whoever looks at the file of a quiet node sees everything.
                output.flush()?;
                match records.recv() {
                    Ok(record) => record,
                    Err(_) => return Ok(()),
                }
            }
        };
        let empty = record.bytes.is_empty().then_some(&record.bytes[..]);
        framed.clear();
        for datagram in record.bytes.chunks(record.stride.max(1)).chain(empty) {
            let Record { unix_ns, from, to, .. } = record;
            Captured { unix_ns, from, to, bytes: datagram, whole_bytes: datagram.len() }.put(&mut framed);
        }
        output.write_all(&framed)?;
        let mut bytes = record.bytes;
        bytes.clear();
        let _ = give_back.try_send(bytes);
    }
}

impl<B: Bearer> Bearer for PcapBearer<B> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn device(&self) -> Option<&str> {
        self.inner.device()
    }

    fn device_index(&self) -> Option<u32> {
        self.inner.device_index()
    }

    fn local(&self) -> Network {
        self.inner.local()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> SendOutcome {
        let outcome = self.inner.send(transmit);
        if matches!(outcome, SendOutcome::Sent) {
            let way = (self.inner.local().address, transmit.to);
            self.record(way, transmit.segment_bytes, transmit.slices.iter().map(|slice| &slice[..]));
        }
        outcome
    }

    fn broadcast(&mut self, bytes: &[u8]) -> SendOutcome {
        self.inner.broadcast(bytes)
    }

    fn recv(&mut self, batch: &mut RxBatch, thorough: bool) -> io::Result<usize> {
        let before = batch.len();
        let count = self.inner.recv(batch, thorough)?;
        let to = self.inner.local().address;
        for group in batch.iter().skip(before) {
            self.record((group.from, to), group.stride, std::iter::once(group.bytes));
        }
        Ok(count)
    }

    fn recv_beacons(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        self.inner.recv_beacons(batch)
    }

    fn notices(&mut self, out: &mut Vec<Notice>) {
        self.inner.notices(out);
    }

    fn writable(&mut self) -> bool {
        self.inner.writable()
    }

    fn backlog_bytes(&mut self) -> u32 {
        self.inner.backlog_bytes()
    }

    fn set_send_buffer(&mut self, bytes: u32) {
        self.inner.set_send_buffer(bytes);
    }

    fn set_mtu(&mut self, mtu_bytes: u16) {
        self.inner.set_mtu(mtu_bytes);
    }

    fn fds(&self) -> Descriptors {
        self.inner.fds()
    }

    fn prefer(&mut self, fd: RawFd) -> bool {
        self.inner.prefer(fd)
    }

    fn has_senders(&self) -> bool {
        self.inner.has_senders()
    }

    fn doze(&mut self, names: bool) -> bool {
        self.inner.doze(names)
    }

    fn rouse(&mut self) {
        self.inner.rouse();
    }

    fn fds_version(&self) -> u32 {
        self.inner.fds_version()
    }

    fn express_frames(&self) -> Option<(u64, u64)> {
        self.inner.express_frames()
    }

    fn beacon_group(&self) -> Option<Address> {
        self.inner.beacon_group()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryHub;
    use std::io::IoSlice;

    fn send(bearer: &mut impl Bearer, bytes: &[u8], segment_bytes: usize) {
        let (to, slices) = (bearer.local().address, [IoSlice::new(bytes)]);
        let transmit = Transmit {
            to,
            segment_bytes,
            bytes: bytes.len(),
            slices: &slices,
            express: true,
            lend: false,
            dscp: 0,
        };
        assert!(matches!(bearer.send(&transmit), SendOutcome::Sent));
    }

    #[test]
    fn both_directions_are_in_the_file_datagram_by_datagram() {
        let path = std::env::temp_dir().join(format!("polyrail-{}.pcap", std::process::id()));
        let mut bearer = PcapBearer::create(MemoryHub::new().bearer(1), &path).unwrap();
        send(&mut bearer, b"aabbc", 2);
        bearer.recv(&mut RxBatch::new(4), true).unwrap();
        bearer.finish().unwrap();
        let file = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file[..24], file_header());
        let (mut rest, mut datagrams) = (&file[24..], Vec::new());
        while let Some((head, tail)) = rest.split_first_chunk::<16>() {
            let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
            // Behind the headers of IPv4 and UDP.
            datagrams.push(&tail[28..length]);
            rest = &tail[length..];
        }
        assert_eq!(datagrams, [&b"aa"[..], b"bb", b"c", b"aa", b"bb", b"c"]);
        assert_eq!((rest.len(), bearer.records_dropped()), (0, 0));
    }

    /// A disk that does not answer until it is told to.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_disk_costs_records_and_never_time() {
        let (go_on, stuck) = sync_channel::<()>(0);
        let mut bearer = PcapBearer::with_output(MemoryHub::new().bearer(1), Stuck(stuck)).unwrap();
        let (sent, mut batch) = (QUEUE_MAX as u64 + 100, RxBatch::new(1));
        for _ in 0..sent {
            send(&mut bearer.inner, b"x", 1);
            batch.clear();
            assert_eq!(bearer.recv(&mut batch, true).unwrap(), 1);
            assert_eq!(batch.iter().next().unwrap().from, Address::Memory(1));
        }
        // All but those in the queue and the one in the writer's hands.
        assert!((sent - QUEUE_MAX as u64 - 1..=sent - QUEUE_MAX as u64).contains(&bearer.records_dropped()));
        drop(go_on);
    }
}
