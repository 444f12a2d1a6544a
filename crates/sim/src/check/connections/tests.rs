use super::*;
use crate::content::fill;

const A: PortKey = PortKey { node: 0, life: 0, port: 11 };
const B: PortKey = PortKey { node: 1, life: 0, port: 22 };
const NAME: Identity = (0, 0, 5, 1);

/// A ledger with one connection, asked for by A and offered to B.
fn open() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.on_asked(10, A, 2, None);
    ledger.on_connecting(0, NAME, B).unwrap();
    assert_eq!(ledger.on_request(NAME, B, A.port, 2, None), Ok(0));
    ledger.on_answered(20, 0, true);
    ledger
}

fn arrive(ledger: &mut Ledger, index: usize, bytes: usize) -> Verdict {
    let mut content = Vec::new();
    fill(content_id(0, Way::There, index), bytes, &mut content);
    ledger.on_message(0, Way::There, &content)
}

#[track_caller]
fn finds(verdict: Verdict, what: &str) {
    let said = verdict.expect_err(what);
    assert!(said.contains(what), "{said}");
}

#[test]
fn a_good_connection_is_good() {
    let mut ledger = open();
    for bytes in [100, 0, 3] {
        ledger.on_sent(0, Way::There, bytes);
    }
    ledger.on_finished(0, Way::There);
    for (index, bytes) in [100, 0, 3].into_iter().enumerate() {
        arrive(&mut ledger, index, bytes).unwrap();
    }
    ledger.on_end(0, Way::There).unwrap();
    ledger.on_dropped(0, false);
    ledger.on_deaf(0, true).unwrap();
}

#[test]
fn what_is_altered_repeated_or_behind_the_end_is_found() {
    let mut ledger = open();
    ledger.on_sent(0, Way::There, 100);
    finds(arrive(&mut ledger, 1, 100), "differs at offset 0");
    finds(arrive(&mut ledger, 1, 100), "which nobody sent");
    let mut ledger = open();
    ledger.on_sent(0, Way::There, 100);
    finds(arrive(&mut ledger, 0, 99), "of 99 bytes, not 100");
    ledger.on_finished(0, Way::There);
    ledger.on_end(0, Way::There).unwrap();
    finds(arrive(&mut ledger, 0, 100), "behind the end");
    finds(ledger.on_end(0, Way::There), "again: true");
}

#[test]
fn an_end_too_early_or_unasked_is_found() {
    let mut ledger = open();
    finds(ledger.on_end(0, Way::There), "after 0 of 0");
    let mut ledger = open();
    ledger.on_sent(0, Way::Back, 5);
    ledger.on_finished(0, Way::Back);
    finds(ledger.on_end(0, Way::Back), "after 0 of 1");
    finds(ledger.on_deaf(0, true), "called deaf");
}

#[test]
fn a_request_is_offered_once_and_to_the_port_that_was_asked() {
    let mut ledger = open();
    finds(ledger.on_request(NAME, B, A.port, 2, None).map(drop), "offered twice");
    finds(ledger.on_request((0, 0, 5, 2), B, A.port, 2, None).map(drop), "nobody asked for");
    for (to, from, class, service) in
        [(A, A.port, 2, None), (B, 12, 2, None), (B, A.port, 1, None), (B, A.port, 2, Some((1, 1)))]
    {
        let mut ledger = Ledger::default();
        ledger.on_asked(10, A, 2, None);
        ledger.on_connecting(0, NAME, B).unwrap();
        finds(ledger.on_request(NAME, to, from, class, service).map(drop), "is offered to");
    }
    ledger.on_asked(10, A, 2, None);
    finds(ledger.on_connecting(1, NAME, B), "name of connection 0");
    finds(ledger.on_not_connecting(1, NotConnecting::TooMany), "TooMany");
}

#[test]
fn a_connection_is_over_only_with_a_cause_and_once() {
    use Ended::*;
    for why in [NodeLost, NobodyListens, NotAllowed, Backlog, Aborted] {
        finds(open().on_over(30, 0, true, why, false), "without cause");
    }
    let asked = || {
        let mut ledger = Ledger::default();
        for number in 0..4 {
            ledger.on_asked(10, A, 2, None);
            ledger.on_connecting(number, (0, 0, 5, number as u32), B).unwrap();
        }
        ledger
    };
    finds(open().on_over(30, 0, true, Backlog, true), "without cause");
    asked().on_over(30, 3, true, Backlog, false).unwrap();
    let mut ledger = asked();
    (1..4).for_each(|number| ledger.on_over(30, number, true, Backlog, false).unwrap());
    ledger.on_asked(40, A, 2, None);
    ledger.on_connecting(4, (0, 0, 5, 4), B).unwrap();
    finds(ledger.on_over(50, 4, true, Backlog, false), "without cause");
    let mut ledger = asked();
    ledger.on_answered(20, 3, false);
    ledger.on_over(30, 3, true, NotAllowed, false).unwrap();
    finds(ledger.on_over(30, 3, true, NotAllowed, false), "again: true");
    ledger.on_port_closed(B);
    ledger.on_over(30, 2, true, NobodyListens, false).unwrap();
    open().on_over(30, 0, true, NodeLost, true).unwrap();
    let mut ledger = open();
    ledger.on_life_over(B.node, B.life);
    ledger.on_over(30, 0, true, NodeLost, false).unwrap();
}
