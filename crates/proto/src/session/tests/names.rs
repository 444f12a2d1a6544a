//! Records of our bindings share frames with those that wait to leave.

use super::outgoing::config;
use super::*;
use crate::address::{Scope, ServiceRange};
use crate::wire::{Binding, BindingOp};

/// Records for each frame (protocol.md §7.1).
const FRAME: usize = 24;

fn records(count: usize) -> Vec<Binding> {
    let record = |n| Binding {
        op: BindingOp::Publish,
        range: ServiceRange::new(1_000, n, n),
        port: PortId(7),
        key: n as u64,
        scope: Scope::Cluster,
        weight: 1,
        exclusive: false,
    };
    (0..count as u32).map(record).collect()
}

fn frames(session: &mut Session) -> Vec<(u64, usize)> {
    let config = config();
    let mut told = Vec::new();
    let mut train = Train::new();
    while with_cx(&config, |cx| session.poll_transmit(cx, BearerId(0), &mut train)) {
        for packet in outgoing::packets_of(&train) {
            told.extend(packet.frames().iter().filter_map(|frame| match frame {
                wire::Frame::Bindings(bindings) => Some((bindings.log_seq, bindings.iter().len())),
                _ => None,
            }));
        }
    }
    told
}

#[test]
fn records_that_follow_those_of_a_waiting_frame_join_it_as_far_as_it_has_room() {
    let config = config();
    let mut session = session(&config, &[(Active, 0)]);
    assert_eq!(session.bindings_room(5), FRAME);
    session.tell_bindings(&config, 5, records(10));
    assert_eq!(session.bindings_room(15), FRAME - 10);
    session.tell_bindings(&config, 15, records(FRAME - 10));
    assert_eq!(session.bindings_room(5 + FRAME as u64), FRAME, "the next frame");
    session.tell_bindings(&config, 5 + FRAME as u64, records(1));
    assert_eq!(session.bindings_room(40), FRAME, "these do not follow");
    session.tell_bindings(&config, 40, records(2));
    assert_eq!(frames(&mut session), [(5, FRAME), (5 + FRAME as u64, 1), (40, 2)]);
    assert_eq!(session.bindings_room(42), FRAME, "that one has left");
    session.tell_bindings(&config, 42, records(3));
    assert_eq!(frames(&mut session), [(42, 3)]);
}

#[test]
fn where_no_frame_may_be_queued_records_have_the_room_of_the_last_one() {
    let config = config();
    let mut session = session(&config, &[(Active, 0)]);
    while session.control_has_room() {
        session.tell_bindings(&config, 1_000, records(FRAME));
    }
    assert_eq!(session.bindings_room(2_000), 0);
}
