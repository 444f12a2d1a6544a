//! Connections: who may accept one, and what is said of it.

use super::outgoing::*;
use super::*;
use crate::port::{Listening, Port};
use crate::session::connection::Wanted;
use crate::wire::Frame;

#[test]
fn a_connection_is_accepted_once_and_by_the_port_that_it_waits_for() {
    let (mut session, port, end) = (up(1), PortId(6), PortId::accepting_end(1));
    let (class, credit) = (Class::Urgent as u8, (1 << 20, 10));
    let from = PortId(5);
    let connect =
        wire::Connect { control: 0, end, from, to: port, class, stream: false, credit, service: None };
    with_cx(&config(), |cx| {
        let listening = Some(Listening { backlog: 1, waiting: Default::default() });
        cx.ports.insert(port, Port { listening, ..Port::default() });
        session.on_connect(cx, &connect);
    });
    let message =
        Outgoing { buffer: BufferId(1), len: 8, service: None, range: None, tag: None, returns: false };
    assert!(!session.accept_connection(PortId(7), end, (9_000, 7)), "another port's");
    assert!(
        !session.accept_connection(port, PortId::accepting_end(2), (9_000, 7)),
        "nobody asked for that one"
    );
    assert!(!session.send_on(NOW, port, end, message), "not yet");
    assert!(session.accept_connection(port, end, (9_000, 7)));
    assert!(!session.accept_connection(port, end, (9_000, 7)), "it was accepted before");
    assert!(session.send_on(NOW, port, end, message));
    let (_, packets) = poll(&mut session, 0).expect("the answer and the message leave");
    let answers = packets.iter().flat_map(Packet::frames).filter_map(|frame| match frame {
        Frame::Accept(accept) => Some((accept.end, accept.answer, accept.credit)),
        _ => None,
    });
    assert_eq!(answers.collect::<Vec<_>>(), [(end.far_end(), Ok(port), (9_000, 7))]);
    assert_eq!(packets.iter().map(Packet::payload_bytes).sum::<usize>(), 8);
}

#[test]
fn a_connection_that_was_asked_for_is_open_once_it_is_accepted() {
    let (mut session, from, to) = (up(1), PortId(5), PortId(6));
    with_cx(&config(), |cx| {
        let wanted = Wanted { from, to, class: Class::Normal, stream: false, service: None };
        let end = session.connect(cx, wanted, (9_000, 7)).expect("there is room");
        assert!(session.connection_ends(Some(from)).eq([end]), "an end of the port that asked");
        assert_eq!(session.connection_ends(Some(to)).count(), 0);
        let accept = wire::Accept { control: 0, end, answer: Ok(to), credit: (1 << 20, 10) };
        for stray in [0, 1] {
            session.on_accept(cx, &accept);
            let stats = session.connection_stats();
            assert_eq!((stats.asked, stats.opened, cx.drops.violation), (1, 1, stray));
        }
        let message =
            Outgoing { buffer: BufferId(1), len: 8, service: None, range: None, tag: None, returns: false };
        assert_eq!(session.connection_flows(), 0);
        assert!(session.send_on(NOW, from, end, message));
        assert_eq!(session.connection_flows(), 1, "the one that it sends by");
    });
}
