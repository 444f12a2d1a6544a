use super::*;
use crate::content::{fill, tag_of};

const A: PortKey = PortKey { node: 0, life: 0, port: 11 };
const B: PortKey = PortKey { node: 1, life: 0, port: 22 };

/// An oracle that knows of `sizes.len()` messages from A to B.
fn sent(sizes: &[usize]) -> Oracle {
    let mut oracle = Oracle::default();
    for (at_ns, bytes) in sizes.iter().enumerate() {
        oracle.on_sent(at_ns as u64, A, Target::Port(B), 2, *bytes, *bytes < 8);
    }
    oracle
}

fn arrive(oracle: &mut Oracle, id: u64, bytes: usize) {
    let mut content = Vec::new();
    fill(id, bytes, &mut content);
    oracle.on_received(100, B, A.node, A.port, None, &content);
}

fn names(oracle: &Oracle) -> Vec<&str> {
    oracle.violations().iter().map(|v| v.name).collect()
}

#[test]
fn a_good_run_is_good() {
    let mut oracle = sent(&[100, 0, 3, 50_000]);
    for (id, bytes) in [(0, 100), (1, 0), (2, 3), (3, 50_000)] {
        assert!(!oracle.settled());
        arrive(&mut oracle, id, bytes);
    }
    assert!(oracle.settled());
    oracle.finish(200);
    assert!(names(&oracle).is_empty(), "{:?}", oracle.violations());
    assert_eq!(oracle.totals(), (4, 4, 0));
}

#[test]
fn a_second_delivery_is_found() {
    let mut oracle = sent(&[100]);
    arrive(&mut oracle, 0, 100);
    arrive(&mut oracle, 0, 100);
    assert_eq!(names(&oracle), ["I2", "I1"]);
    let mut oracle = sent(&[3]);
    arrive(&mut oracle, 0, 3);
    arrive(&mut oracle, 0, 3);
    assert_eq!(names(&oracle), ["I4"], "a message without number is then one that nobody sent");
}

#[test]
fn a_changed_order_is_found() {
    let mut oracle = sent(&[100, 100]);
    arrive(&mut oracle, 1, 100);
    arrive(&mut oracle, 0, 100);
    assert_eq!(names(&oracle), ["I2"]);
}

#[test]
fn a_lost_message_is_found_unless_its_receiver_is_gone() {
    let mut oracle = sent(&[100, 100]);
    arrive(&mut oracle, 0, 100);
    oracle.finish(200);
    assert_eq!(names(&oracle), ["I3"]);
    let mut oracle = sent(&[100]);
    oracle.on_port_gone(B);
    assert!(oracle.settled());
    oracle.finish(200);
    assert!(names(&oracle).is_empty());
}

#[test]
fn altered_and_shortened_contents_are_found() {
    let mut oracle = sent(&[100, 100]);
    let mut content = Vec::new();
    fill(0, 100, &mut content);
    content[99] ^= 1;
    oracle.on_received(1, B, A.node, A.port, None, &content);
    arrive(&mut oracle, 1, 99);
    assert_eq!(names(&oracle), ["I4", "I4"]);
}

#[test]
fn a_failure_needs_a_cause_and_excludes_a_delivery() {
    let mut oracle = sent(&[100]);
    oracle.on_failed(5, 0, FailReason::Indeterminate, false);
    assert_eq!(names(&oracle), ["I3"]);
    let mut oracle = sent(&[100, 100]);
    oracle.on_failed(5, 0, FailReason::Indeterminate, true);
    arrive(&mut oracle, 0, 100);
    assert!(names(&oracle).is_empty(), "it may have arrived");
    oracle.on_failed(5, 1, FailReason::NotSent, true);
    arrive(&mut oracle, 1, 100);
    assert_eq!(names(&oracle), ["I3"], "it may not");
}

#[test]
fn a_tag_identifies_the_message() {
    let mut oracle = sent(&[0, 0]);
    oracle.on_received(1, B, A.node, A.port, Some(tag_of(1)), &[]);
    oracle.on_received(1, B, A.node, A.port, Some(tag_of(7)), &[]);
    assert_eq!(names(&oracle), ["I4"]);
}

#[test]
fn which_of_equal_messages_arrived_is_told_by_what_failed() {
    // The later one arrived, and is taken for the earlier.
    let mut oracle = sent(&[0, 0]);
    arrive(&mut oracle, 1, 0);
    oracle.on_failed(100, 0, FailReason::Indeterminate, true);
    oracle.finish(200);
    assert!(names(&oracle).is_empty(), "{:?}", oracle.violations());
    // The earlier one arrived after all, and is taken for the later.
    let mut oracle = sent(&[0, 0]);
    oracle.on_failed(100, 0, FailReason::Indeterminate, true);
    arrive(&mut oracle, 0, 0);
    oracle.on_failed(100, 1, FailReason::NotSent, true);
    oracle.finish(200);
    assert!(names(&oracle).is_empty(), "{:?}", oracle.violations());
    // One vanished.
    let mut oracle = sent(&[0, 0]);
    oracle.on_failed(100, 0, FailReason::Indeterminate, true);
    oracle.finish(200);
    assert_eq!(names(&oracle), ["I3"]);
}
