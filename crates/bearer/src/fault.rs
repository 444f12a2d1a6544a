//! A bearer that misbehaves on purpose: it wraps another one and loses, duplicates, delays and damages datagrams.
//!
//! What happens is drawn from a seed, so a run can be repeated. Faults strike single datagrams on their way out;
//! silence strikes both ways.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Address, Bearer, Capabilities, Descriptors, Network, Notice, RxBatch, SendOutcome, Transmit};

/// How often each fault strikes, as a probability from 0 to 1 per datagram.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// Is not sent.
    pub lose: f64,
    /// Is sent twice.
    pub duplicate: f64,
    /// Has one bit turned over.
    pub corrupt: f64,
    /// Is kept back, and thereby overtaken.
    pub delay: f64,
    /// For at most so many calls of `send` and `recv` (at least one).
    pub delay_batches_max: u32,
}

/// Changes the faults of a bearer that somebody else drives.
#[derive(Clone, Debug)]
pub struct FaultControl(Arc<Mutex<Settings>>);

#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    faults: Faults,
    silent: bool,
}

/// Another bearer, with faults.
pub struct FaultBearer<B> {
    inner: B,
    control: FaultControl,
    random: Random,
    /// Calls so far: the clock of delays.
    batches: u64,
    delayed: VecDeque<Delayed>,
    flat: Vec<u8>,
}

struct Delayed {
    to: Address,
    dscp: u8,
    bytes: Vec<u8>,
    due: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Pass,
    Lose,
    Duplicate,
    Corrupt,
    Delay,
}

impl FaultControl {
    /// Replaces the faults.
    pub fn set(&self, faults: Faults) {
        self.with(|settings| settings.faults = faults);
    }

    /// Lets nothing through in either direction, or ends that. Senders do not notice.
    pub fn silence(&self, silent: bool) {
        self.with(|settings| settings.silent = silent);
    }

    fn get(&self) -> Settings {
        self.with(|settings| *settings)
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Settings) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<B: Bearer> FaultBearer<B> {
    /// Wraps `inner`; what strikes when depends on `seed` and the calls made.
    pub fn new(inner: B, seed: u64, faults: Faults) -> FaultBearer<B> {
        FaultBearer {
            inner,
            control: FaultControl(Arc::new(Mutex::new(Settings { faults, silent: false }))),
            random: Random(seed),
            batches: 0,
            delayed: VecDeque::new(),
            flat: Vec::new(),
        }
    }

    /// A handle that works while an engine owns the bearer.
    pub fn control(&self) -> FaultControl {
        self.control.clone()
    }

    /// Lets nothing through in either direction, or ends that.
    pub fn silence(&mut self, silent: bool) {
        self.control.silence(silent);
    }

    fn draw(&mut self, faults: &Faults) -> Fate {
        let mut point = self.random.unit();
        let table = [
            (faults.lose, Fate::Lose),
            (faults.duplicate, Fate::Duplicate),
            (faults.corrupt, Fate::Corrupt),
            (faults.delay, Fate::Delay),
        ];
        for (share, fate) in table {
            if point < share {
                return fate;
            }
            point -= share;
        }
        Fate::Pass
    }

    /// Sends what was kept back long enough; one call has passed.
    fn release(&mut self) {
        self.batches += 1;
        let mut index = 0;
        while index < self.delayed.len() {
            if self.delayed[index].due > self.batches {
                index += 1;
                continue;
            }
            let one = &self.delayed[index];
            let (way, bytes) = ((one.to, one.dscp), &one.bytes);
            if matches!(send_plain(&mut self.inner, way, bytes, bytes.len()), SendOutcome::WouldBlock) {
                return;
            }
            self.delayed.remove(index);
        }
    }

    fn keep(&mut self, (to, dscp): (Address, u8), bytes: &[u8], batches: u64) {
        self.delayed.push_back(Delayed { to, dscp, bytes: bytes.to_vec(), due: self.batches + batches });
    }

    /// Sends the gathered train piece by piece, each with its fate. Runs of healthy datagrams stay together.
    fn send_pieces(&mut self, transmit: &Transmit<'_>, fates: &[Fate], faults: &Faults) -> SendOutcome {
        let flat = std::mem::take(&mut self.flat);
        let (way, stride) = ((transmit.to, transmit.dscp), transmit.segment_bytes);
        let mut result = SendOutcome::Sent;
        let (mut index, mut first) = (0, true);
        while index < fates.len() {
            let run = fates[index..].iter().take_while(|fate| **fate == Fate::Pass).count().max(1);
            let end = ((index + run) * stride).min(flat.len());
            let piece = &flat[index * stride..end];
            let outcome = match fates[index] {
                Fate::Lose => SendOutcome::Sent,
                Fate::Delay => {
                    let batches = 1 + self.random.below(u64::from(faults.delay_batches_max.max(1)));
                    self.keep(way, piece, batches);
                    SendOutcome::Sent
                }
                Fate::Pass => send_plain(&mut self.inner, way, piece, stride),
                Fate::Duplicate => {
                    self.keep(way, piece, 1);
                    send_plain(&mut self.inner, way, piece, stride)
                }
                Fate::Corrupt => {
                    let mut damaged = piece.to_vec();
                    if !damaged.is_empty() {
                        let bit = self.random.below(damaged.len() as u64 * 8) as usize;
                        damaged[bit / 8] ^= 1 << (bit % 8);
                    }
                    send_plain(&mut self.inner, way, &damaged, stride)
                }
            };
            match outcome {
                // Once a part is out, the rest may not be offered again: it goes at the next occasion.
                SendOutcome::WouldBlock if !first => {
                    for datagram in piece.chunks(stride) {
                        self.keep(way, datagram, 1);
                    }
                }
                SendOutcome::Sent => {}
                other => {
                    result = other;
                    break;
                }
            }
            first = false;
            index += run;
        }
        self.flat = flat;
        result
    }

    /// Drops everything that arrives.
    fn swallow(&mut self, batch: &mut RxBatch, beacons: bool) -> io::Result<usize> {
        let before = batch.len();
        loop {
            let got = if beacons { self.inner.recv_beacons(batch)? } else { self.inner.recv(batch, true)? };
            if got == 0 {
                return Ok(0);
            }
            while batch.len() > before {
                batch.remove(batch.len() - 1);
            }
        }
    }
}

fn send_plain(
    inner: &mut impl Bearer,
    (to, dscp): (Address, u8),
    bytes: &[u8],
    segment_bytes: usize,
) -> SendOutcome {
    let slices = [IoSlice::new(bytes)];
    let (segment_bytes, bytes) = (segment_bytes.max(1), bytes.len());
    inner.send(&Transmit { to, segment_bytes, bytes, slices: &slices, express: false, lend: false, dscp })
}

impl<B: Bearer> Bearer for FaultBearer<B> {
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
        let Settings { faults, silent } = self.control.get();
        if silent {
            return SendOutcome::Sent;
        }
        self.release();
        let fates: Vec<Fate> = (0..transmit.segments()).map(|_| self.draw(&faults)).collect();
        if fates.iter().all(|fate| *fate == Fate::Pass) {
            return self.inner.send(transmit);
        }
        self.flat.clear();
        for slice in transmit.slices {
            self.flat.extend_from_slice(slice);
        }
        self.send_pieces(transmit, &fates, &faults)
    }

    fn broadcast(&mut self, bytes: &[u8]) -> SendOutcome {
        if self.control.get().silent { SendOutcome::Sent } else { self.inner.broadcast(bytes) }
    }

    fn recv(&mut self, batch: &mut RxBatch, thorough: bool) -> io::Result<usize> {
        if self.control.get().silent {
            return self.swallow(batch, false);
        }
        self.release();
        self.inner.recv(batch, thorough)
    }

    fn recv_beacons(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        if self.control.get().silent { self.swallow(batch, true) } else { self.inner.recv_beacons(batch) }
    }

    fn notices(&mut self, out: &mut Vec<Notice>) {
        self.inner.notices(out);
    }

    fn writable(&mut self) -> bool {
        self.control.get().silent || self.inner.writable()
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

/// SplitMix64: small, and good enough for choosing victims.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to just below 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[cfg(test)]
mod tests;
