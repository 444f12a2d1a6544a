//! The way from a socket to the wire: send buffer accounting and the queue behind it.
//!
//! What a sender sees is what the kernel shows: it blocks while the send buffer is full, is told when the queue
//! refuses (with error reports switched on), and succeeds otherwise.

use super::conditions::{EgressKind, truesize, wire_bytes};
use super::unit::Unit;
use crate::queue::{S, TimeNs};
use std::collections::VecDeque;

/// One station's send buffer and queue.
#[derive(Debug)]
pub(super) struct Egress {
    kind: EgressKind,
    sndbuf_bytes: u64,
    memory_bytes: u64,
    waiting: VecDeque<Unit>,
    waiting_wire_bytes: u64,
    leaving: Option<Unit>,
    /// Tokens of a bucket in bytes, scaled by 2^10 so that short spans do not round to nothing.
    tokens: u64,
    tokens_at_ns: TimeNs,
}

const TOKEN_SCALE: u64 = 1 << 10;

impl Egress {
    pub(super) fn new(kind: EgressKind, sndbuf_bytes: u64) -> Egress {
        let burst = match kind {
            EgressKind::Tbf { burst, .. } => burst,
            _ => 0,
        };
        Egress {
            kind,
            sndbuf_bytes,
            memory_bytes: 0,
            waiting: VecDeque::new(),
            waiting_wire_bytes: 0,
            leaving: None,
            tokens: burst * TOKEN_SCALE,
            tokens_at_ns: 0,
        }
    }

    /// Changes the queue; what waits goes on under the new rules.
    pub(super) fn set_kind(&mut self, kind: EgressKind) {
        self.kind = kind;
    }

    /// Changes the size of the send buffer.
    pub(super) fn set_send_buffer(&mut self, bytes: u64) {
        self.sndbuf_bytes = bytes;
    }

    pub(super) fn kind(&self) -> EgressKind {
        self.kind
    }

    /// Whether a send would be taken into the buffer, as `poll` reports it: at most half full.
    pub(super) fn writable(&self) -> bool {
        self.memory_bytes * 2 <= self.sndbuf_bytes
    }

    /// Whether the send buffer is full.
    pub(super) fn full(&self) -> bool {
        self.memory_bytes >= self.sndbuf_bytes
    }

    /// Payload bytes that have not left.
    pub(super) fn backlog_bytes(&self) -> u64 {
        let waiting: usize = self.waiting.iter().map(|unit| unit.bytes.len()).sum();
        (waiting + self.leaving.as_ref().map_or(0, |unit| unit.bytes.len())) as u64
    }

    /// Whether the queue would refuse this train now. A train larger than the burst is cut first, so that the room
    /// for its first datagram decides.
    pub(super) fn refuses(&self, unit: &Unit) -> bool {
        let (limit, burst) = self.bounds();
        let whole = wire_bytes(unit.bytes.len(), unit.segment);
        let single = unit.bytes.len().min(unit.segment);
        let first = if whole <= burst { whole } else { wire_bytes(single, single) };
        first > burst || self.waiting_wire_bytes + first > limit
    }

    /// Hands a train to the queue. The send buffer has room and the queue does not refuse it, see above. Of a train
    /// that is cut, what finds no room is lost in silence; returns how many datagrams.
    pub(super) fn offer(&mut self, unit: Unit) -> u64 {
        let (limit, burst) = self.bounds();
        if wire_bytes(unit.bytes.len(), unit.segment) <= burst {
            self.enqueue(unit);
            return 0;
        }
        let mut lost = 0;
        for single in unit.into_singles() {
            let wire = wire_bytes(single.bytes.len(), single.segment);
            if wire <= burst && self.waiting_wire_bytes + wire <= limit {
                self.enqueue(single);
            } else {
                lost += 1;
            }
        }
        lost
    }

    fn bounds(&self) -> (u64, u64) {
        match self.kind {
            EgressKind::NoQueue => (u64::MAX, u64::MAX),
            EgressKind::Fifo { limit, .. } => (limit, u64::MAX),
            EgressKind::Tbf { limit, burst, .. } => (limit, burst),
        }
    }

    fn enqueue(&mut self, unit: Unit) {
        self.waiting_wire_bytes += wire_bytes(unit.bytes.len(), unit.segment);
        self.memory_bytes += truesize(unit.bytes.len(), unit.segment);
        self.waiting.push_back(unit);
    }

    /// If the wire is free and something waits: when the next train has left. Call `depart` then.
    pub(super) fn start(&mut self, now_ns: TimeNs) -> Option<TimeNs> {
        if self.leaving.is_some() {
            return None;
        }
        let unit = self.waiting.pop_front()?;
        let wire = wire_bytes(unit.bytes.len(), unit.segment);
        self.waiting_wire_bytes -= wire;
        self.leaving = Some(unit);
        Some(match self.kind {
            EgressKind::NoQueue => now_ns,
            EgressKind::Fifo { rate, .. } => now_ns + wire * S / rate.max(1),
            EgressKind::Tbf { rate, burst, .. } => self.take_tokens(now_ns, wire, rate.max(1), burst),
        })
    }

    /// The train that `start` announced has left; its memory is free.
    pub(super) fn depart(&mut self) -> Option<Unit> {
        let unit = self.leaving.take()?;
        self.memory_bytes -= truesize(unit.bytes.len(), unit.segment);
        Some(unit)
    }

    /// Carrier lost: the kernel throws the queue away. Returns how many trains. One that is leaving is gone too,
    /// but its departure is still announced: `depart` then gives nothing.
    pub(super) fn flush(&mut self) -> usize {
        let flushed = self.waiting.len() + usize::from(self.leaving.is_some());
        self.waiting.clear();
        self.leaving = None;
        self.waiting_wire_bytes = 0;
        self.memory_bytes = 0;
        flushed
    }

    fn take_tokens(&mut self, now_ns: TimeNs, wire: u64, rate: u64, burst: u64) -> TimeNs {
        let since_ns = now_ns.saturating_sub(self.tokens_at_ns);
        let earned = u128::from(since_ns) * u128::from(rate) * u128::from(TOKEN_SCALE) / u128::from(S);
        let tokens =
            u128::from(self.tokens).saturating_add(earned).min(u128::from(burst * TOKEN_SCALE)) as u64;
        let need = wire * TOKEN_SCALE;
        let at_ns = now_ns.max(self.tokens_at_ns);
        if tokens >= need {
            self.tokens = tokens - need;
            self.tokens_at_ns = at_ns;
            return at_ns;
        }
        let missing = u128::from(need - tokens);
        let wait_ns = (missing * u128::from(S)).div_ceil(u128::from(rate) * u128::from(TOKEN_SCALE)) as u64;
        self.tokens = 0;
        self.tokens_at_ns = at_ns + wait_ns;
        self.tokens_at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::super::unit::Unit;
    use super::*;

    fn unit(bytes: usize, segment: usize) -> Unit {
        Unit::new(0, Some(1), vec![0; bytes], segment)
    }

    /// What a socket would answer.
    fn offer(egress: &mut Egress, bytes: usize, segment: usize) -> &'static str {
        let unit = unit(bytes, segment);
        if egress.full() {
            "full"
        } else if egress.refuses(&unit) {
            "refused"
        } else {
            egress.offer(unit);
            "taken"
        }
    }

    #[test]
    fn a_full_send_buffer_blocks_and_frees_on_departure() {
        let mut egress = Egress::new(EgressKind::Fifo { rate: 1_000_000, limit: 1 << 30 }, 5_000);
        assert_eq!(offer(&mut egress, 1_000, 1_000), "taken");
        assert!(egress.writable());
        assert_eq!(offer(&mut egress, 1_000, 1_000), "taken");
        assert!(!egress.writable() && !egress.full());
        assert_eq!(offer(&mut egress, 1_000, 1_000), "taken");
        assert_eq!(offer(&mut egress, 1_000, 1_000), "full");
        let left_ns = egress.start(0).unwrap();
        assert_eq!(left_ns, 1_042_000, "1042 bytes at 1 MB/s");
        assert!(egress.start(5).is_none(), "one at a time");
        egress.depart().unwrap();
        assert_eq!(offer(&mut egress, 1_000, 1_000), "taken");
    }

    #[test]
    fn a_queue_smaller_than_the_send_buffer_drops() {
        let mut egress = Egress::new(EgressKind::Fifo { rate: 1_000_000, limit: 3_000 }, 1 << 20);
        assert_eq!(offer(&mut egress, 1_400, 1_400), "taken");
        assert_eq!(offer(&mut egress, 1_400, 1_400), "taken");
        assert_eq!(offer(&mut egress, 1_400, 1_400), "refused");
    }

    #[test]
    fn a_bucket_keeps_its_average_rate() {
        let mut egress =
            Egress::new(EgressKind::Tbf { rate: 125_000_000, burst: 10_000, limit: 1 << 30 }, 1 << 30);
        for _ in 0..1_000 {
            offer(&mut egress, 1_458, 1_458); // 1500 on the wire
        }
        let mut now_ns = 0;
        while let Some(left_ns) = egress.start(now_ns) {
            now_ns = left_ns;
            egress.depart();
        }
        // 1.5 MB, of which 10 kB are free.
        let expected = 1_490_000 * 8;
        assert!(now_ns.abs_diff(expected) < expected / 100, "{now_ns}");
    }

    #[test]
    fn a_train_beyond_the_burst_is_cut() {
        let mut egress =
            Egress::new(EgressKind::Tbf { rate: 125_000_000, burst: 4_000, limit: 1 << 20 }, 1 << 20);
        assert_eq!(offer(&mut egress, 10 * 1_000 + 1, 1_000), "taken");
        let mut sizes = Vec::new();
        while egress.start(0).is_some() {
            sizes.push(egress.depart().unwrap().bytes.len());
        }
        assert_eq!(sizes.len(), 11);
        assert_eq!(sizes.last(), Some(&1));
    }

    #[test]
    fn carrier_loss_empties_the_queue() {
        let mut egress = Egress::new(EgressKind::Fifo { rate: 1_000_000, limit: 1 << 20 }, 1 << 20);
        offer(&mut egress, 1_000, 1_000);
        offer(&mut egress, 1_000, 1_000);
        egress.start(0);
        assert_eq!(egress.flush(), 2);
        assert!(egress.depart().is_none() && egress.backlog_bytes() == 0 && egress.writable());
    }
}
