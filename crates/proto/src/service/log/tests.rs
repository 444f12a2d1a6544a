use super::*;
use crate::id::NodeId;
use crate::service::Table;

fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

fn range(n: u64) -> ServiceRange {
    ServiceRange::new(100, n as u32, n as u32)
}

fn publish(log: &mut Log, key: u64) -> u64 {
    log.publish(key, PortId(1), range(key), 1)
}

#[test]
fn operations_are_numbered_from_one() {
    let mut log = Log::new();
    assert_eq!(log.last(), 0);
    assert_eq!(
        (publish(&mut log, 7), publish(&mut log, 9), log.withdraw(7), log.withdraw(7)),
        (1, 2, Some(3), None)
    );
    let entries: Vec<_> = log.entries_from(2).unwrap().map(|(n, r)| (n, r.op, r.key)).collect();
    assert_eq!(entries, [(2, BindingOp::Publish, 9), (3, BindingOp::Withdraw, 7)]);
    assert_eq!(log.entries_from(4).unwrap().count(), 0);
}

#[test]
fn a_snapshot_ends_where_the_log_stands() {
    let mut log = Log::new();
    for key in 1..=5 {
        publish(&mut log, key);
    }
    log.withdraw(2);
    let (mut feed, mut records) = (Feed::new(&log), Vec::new());
    assert_eq!(feed.take(&log, 9, &mut records), Ok(Some(3)));
    assert_eq!((feed.next(), feed.is_done(&log)), (log.last() + 1, true));
    assert_eq!(records.iter().map(|r| r.key).collect::<Vec<_>>(), [1, 3, 4, 5]);
    assert!(records.iter().all(|r| r.op == BindingOp::Publish));
}

#[test]
fn what_is_withdrawn_before_its_turn_leaves_no_gap_in_the_numbers() {
    let mut log = Log::new();
    for key in 1..=6 {
        publish(&mut log, key);
    }
    let (mut feed, mut records) = (Feed::new(&log), Vec::new());
    assert_eq!(feed.take(&log, 2, &mut records), Ok(Some(1)));
    for key in [2, 3, 6] {
        log.withdraw(key);
    }
    publish(&mut log, 7);
    assert_eq!((feed.needs_from(), feed.has_told(6)), (7, false));
    assert_eq!(feed.take(&log, 0, &mut records), Ok(None), "there is no room");
    assert_eq!(feed.take(&log, 3, &mut records), Ok(Some(3)));
    assert_eq!(feed.take(&log, 3, &mut records), Ok(Some(6)), "what is left of the snapshot");
    assert_eq!(feed.take(&log, 9, &mut records), Ok(Some(7)));
    let told: Vec<_> = records.iter().map(|r| (r.op == BindingOp::Publish, r.key)).collect();
    let (snapshot, since) = told.split_at(6);
    assert_eq!(snapshot, [(true, 1), (true, 2), (true, 4), (true, 5), (false, 0), (false, 0)]);
    assert_eq!(since, [(false, 2), (false, 3), (false, 6), (true, 7)]);
    assert!(feed.is_done(&log));
}

#[test]
fn what_every_peer_has_is_forgotten() {
    let mut log = Log::new();
    for key in 1..=5 {
        publish(&mut log, key);
    }
    log.trim(4);
    assert!(log.entries_from(3).is_err());
    assert_eq!(log.entries_from(4).unwrap().count(), 2);
    log.trim(100);
    assert_eq!((log.last(), publish(&mut log, 6)), (5, 6));
}

#[test]
fn a_peer_too_far_behind_is_told_so() {
    let mut log = Log::new();
    let mut feed = Feed::new(&log);
    for key in 0..=OPERATIONS_MAX as u64 {
        publish(&mut log, key);
    }
    assert_eq!(feed.take(&log, 10, &mut Vec::new()), Err(Behind));
}

#[test]
fn a_replica_takes_records_in_order_only() {
    let mut replica = Replica::new(Incarnation(1));
    assert_eq!(replica.apply(0, 5), Step::Gap, "numbers start at 1");
    assert_eq!(replica.apply(8, 3), Step::Apply(0), "a snapshot");
    assert_eq!(replica.apply(12, 1), Step::Gap);
    assert_eq!(replica.apply(8, 3), Step::Duplicate);
    assert_eq!(replica.apply(9, 4), Step::Apply(2));
    assert_eq!(replica.apply(13, 0), Step::Duplicate);
    assert_eq!(replica.apply(u64::MAX, 9), Step::Gap);
    assert_eq!(replica.applied, Some(12));
}

/// A link that repeats and drops: frames stay in order, as the control log makes them.
struct Peer {
    feed: Feed,
    replica: Replica,
    table: Table,
    unacked: VecDeque<(u64, Vec<Binding>)>,
}

impl Peer {
    fn receive(&mut self, seq: u64, records: &[Binding]) -> bool {
        match self.replica.apply(seq, records.len()) {
            Step::Gap => return false,
            Step::Duplicate => {}
            Step::Apply(skip) => {
                for record in &records[skip..] {
                    self.table.apply(NodeId(1), record);
                }
            }
        }
        true
    }

    /// Sends what is new, then delivers, repeats or loses what is not acknowledged.
    fn turn(&mut self, log: &Log, state: &mut u64, lossy: bool) {
        let mut records = Vec::new();
        let max = 1 + random(state, 6) as usize;
        if let Some(seq) = self.feed.take(log, max, &mut records).unwrap() {
            self.unacked.push_back((seq, records));
        }
        for index in 0..self.unacked.len() {
            let (seq, records) = self.unacked[index].clone();
            let starts = self.replica.applied.is_none() && index > 0;
            if !starts && (!lossy || random(state, 3) > 0) {
                self.receive(seq, &records);
            }
        }
        while let Some((seq, records)) = self.unacked.front() {
            if self.replica.applied.is_none_or(|a| a < seq + records.len() as u64 - 1) {
                break;
            }
            self.unacked.pop_front();
        }
    }
}

#[test]
fn replicas_converge_whenever_they_start_and_whatever_is_lost() {
    for seed in 1..=60u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (mut log, mut live, mut next_key) = (Log::new(), Vec::new(), 1);
        let mut peers = Vec::new();
        for step in 0..200 {
            match random(&mut state, 5) {
                0..=2 => {
                    publish(&mut log, next_key);
                    live.push(next_key);
                    next_key += 1;
                }
                _ if !live.is_empty() => {
                    let key = live.swap_remove(random(&mut state, live.len() as u64) as usize);
                    log.withdraw(key).unwrap();
                }
                _ => {}
            }
            if step % 40 == 7 {
                let feed = Feed::new(&log);
                let replica = Replica::new(Incarnation(1));
                peers.push(Peer { feed, replica, table: Table::new(NodeId(2)), unacked: VecDeque::new() });
            }
            for peer in &mut peers {
                peer.turn(&log, &mut state, true);
            }
            let needed = peers.iter().map(|p| p.feed.needs_from()).min();
            log.trim(needed.unwrap_or(log.last() + 1));
        }
        live.sort_unstable();
        for peer in &mut peers {
            while !peer.feed.is_done(&log) || !peer.unacked.is_empty() {
                peer.turn(&log, &mut state, false);
            }
            let held: Vec<u64> = peer.table.list().map(|b| b.2.lower as u64).collect();
            assert_eq!(held, live, "seed {seed}");
            assert_eq!(peer.replica.applied, Some(log.last()), "seed {seed}");
        }
    }
}
