//! How much a link takes, how long its ways are, and when it asks whether the peer is there.

use super::*;
use crate::id::{Incarnation, NodeId};
use recv::AckWish;
use send::NewTrain;
use state::LinkEvent;
use window::AckSample;

const NOW: Instant = Instant(1_000_000_000);

fn config() -> Config {
    Config::new(NodeId(1), Incarnation(1))
}

fn link(config: &Config) -> Link {
    let to = MediaAddress::from_bytes(&[1]).unwrap();
    let (bearer, peer_bearer) = (BearerId(2), BearerId(3));
    let spec = LinkSpec {
        id: LinkId(4),
        bearer,
        peer_bearer,
        to,
        mtu: 1_476,
        window: 1 << 20,
        lossless: false,
        near: false,
        standby: false,
    };
    Link::new(NOW, spec, config)
}

/// A link that is up and has nothing to ask.
fn up(config: &Config) -> Link {
    let mut link = link(config);
    assert_eq!(link.take_probe(NOW).map(|probe| probe.kind), Some(ProbeKind::Join));
    link.state.handle(NOW, LinkEvent::Joined);
    link
}

/// Lets it find out that the path delivers `rate` bytes/s, a multiple of a million.
fn deliver(link: &mut Link, rate: u64) {
    for n in 1..=2 {
        let at = NOW + Duration::us(1_024).times(n);
        let rx_bytes = n * 1_024 * (rate / 1_000_000);
        let sample =
            AckSample { rx_bytes, rx_clock: at.stamp(), inflight_before: 1 << 20, ..Default::default() };
        link.on_ack(at, &AckSample { queueing: Duration::ms(10), ..sample });
    }
    assert_eq!((link.window.rate_bytes_per_s(), link.pace.bytes_per_s()), (rate, rate));
}

fn send(link: &mut Link, packets: u8, bytes: u16) {
    let train = NewTrain {
        count: packets,
        packet_bytes: bytes,
        last_bytes: bytes,
        items: vec![],
        extent: None,
        expected: Duration::ZERO,
    };
    link.sent.push(NOW, train);
}

#[test]
fn it_takes_what_its_window_has_left_and_a_little_more_of_small_messages() {
    let mut link = link(&config());
    let rooms = |link: &Link| (link.room(), link.small_room());
    let more = limits::SMALL_OVERDRAFT_BYTES;
    assert_eq!(rooms(&link), (65_536, 65_536 + more));
    assert_eq!(link.created_at(), NOW);
    send(&mut link, 60, 1_000);
    assert_eq!(rooms(&link), (5_536, 5_536 + more));
    send(&mut link, 6, 1_000);
    assert_eq!(rooms(&link), (0, more - 464));
    (0..limits::INFLIGHT_TRAINS_MAX).for_each(|_| send(&mut link, 1, 0));
    assert_eq!(rooms(&link), (0, 0), "the books are full");
}

#[test]
fn a_train_is_what_moves_in_a_quarter_of_a_millisecond() {
    let train_bytes = |rate| {
        let mut link = link(&config());
        deliver(&mut link, rate);
        link.train_bytes()
    };
    assert_eq!(link(&config()).train_bytes(), 16_384, "nothing is known yet");
    assert_eq!(train_bytes(100_000_000), 25_000);
    assert_eq!(train_bytes(1_000_000), 1_200, "a packet at least");
    assert_eq!(train_bytes(100_000_000_000), limits::TRAIN_BYTES_MAX as u64);
}

#[test]
fn the_way_is_half_a_round_trip_or_what_is_on_it_then_what_is_sent_and_longer_in_doubt() {
    let mut link = link(&config());
    assert_eq!(link.delay(2_000, 1_000_000), Duration::us(2_050), "as hoped while nothing is known");
    deliver(&mut link, 100_000_000);
    assert_eq!(link.delay(1_000, 1), Duration::us(60), "the round trip is a guess");
    link.rtt.sample(NOW, Duration::us(400), Duration::ZERO);
    assert_eq!(link.delay(1_000, 1), Duration::us(210));
    send(&mut link, 20, 1_000);
    assert_eq!((link.delay(0, 1), link.delay(1_000, 1)), (Duration::us(200), Duration::us(210)));
    (link.pto_count, link.rtt) = (2, Rtt::new());
    assert_eq!((link.delay(1_000, 1), link.in_doubt()), (Duration::us(2_210), true));
}

#[test]
fn the_second_time_out_is_as_long_as_the_first_and_each_later_one_twice_as_long() {
    let mut link = up(&config());
    link.rtt.set_pto_min(Duration::ZERO);
    (0..200).for_each(|_| link.rtt.sample(NOW, Duration::us(400), Duration::ZERO));
    let pto = link.rtt.pto(limits::ACK_DELAY_MAX);
    for (count, times) in [(0, 1), (1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 16)] {
        link.pto_count = count;
        assert_eq!(link.pto(), pto.times(times).min(Duration::ms(64)), "{count}");
    }
    link.rtt.set_pto_min(Duration::ms(10));
    assert_eq!(link.pto(), Duration::ms(64));
    link.pto_count = 0;
    assert_eq!(link.pto_at(), Instant::NEVER, "nothing is in flight");
    send(&mut link, 1, 1_000);
    link.restart_pto(NOW + Duration::ms(5));
    assert_eq!(link.pto_at(), NOW + Duration::ms(15));
    link.shift(Duration::ms(7));
    assert_eq!((link.pto_at(), link.sent.last_sent_at()), (NOW + Duration::ms(22), NOW + Duration::ms(7)));
}

#[test]
fn after_a_second_without_use_its_window_is_that_of_the_bare_path() {
    for (idle, kept) in [(Duration::s(1), true), (Duration(1_000_000_001), false)] {
        let mut link = up(&config());
        let cwnd = 1 << 19;
        link.window = Window::new(cwnd, 1 << 20);
        link.on_sent(NOW, 1, 100);
        link.on_sent(NOW + idle, 3, 4_000);
        assert_eq!(link.window.cwnd() == cwnd, kept, "{idle:?}");
        let stats = &link.stats;
        assert_eq!((stats.packets_sent, stats.bytes_sent, stats.trains_sent), (4, 4_100, 2));
    }
}

#[test]
fn it_is_usable_only_with_a_carrier_and_while_no_operator_forbids_it() {
    let mut link = link(&config());
    assert!(!link.usable(), "not joined");
    link.pressed = true;
    assert!(link.usable(), "better than none");
    link.carrier = false;
    assert!(!link.usable());
    let mut link = up(&config());
    assert!(link.usable());
    for status in [LinkStatus::Standby, LinkStatus::Drain, LinkStatus::Down] {
        link.status = status;
        assert_eq!(link.usable(), status != LinkStatus::Down);
    }
}

/// When `link` asks next, after `NOW`: in a session that carries messages, and in one that does not.
fn asks_after(link: &Link, config: &Config) -> [Duration; 2] {
    [true, false].map(|busy| link.probe_due_at(config, busy).since(NOW))
}

#[test]
fn how_soon_it_asks_depends_on_its_state() {
    let config = config();
    let mut link = up(&config);
    assert_eq!(asks_after(&link, &config), [config.keepalive_busy, config.keepalive_idle]);
    link.on_sent(NOW + Duration::ms(3), 1, 100);
    let later = [config.keepalive_busy, config.keepalive_idle].map(|every| every + Duration::ms(3));
    assert_eq!(asks_after(&link, &config), later, "what is sent asks too");
    link.state.handle(NOW, LinkEvent::Silence);
    assert_eq!(asks_after(&link, &config), [Duration::ms(3); 2]);
    link.state.handle(NOW, LinkEvent::Verdict);
    assert_eq!(asks_after(&link, &config), [Duration::ms(20), Duration::ms(250)]);
    link.state.handle(NOW, LinkEvent::Joined);
    assert_eq!(asks_after(&link, &config), [Duration::ms(10); 2]);
    let never = |change: &dyn Fn(&mut Link)| {
        let mut link = up(&config);
        change(&mut link);
        assert_eq!(link.probe_due_at(&config, true), Instant::NEVER);
    };
    never(&|link| link.probe = Some(ProbeKind::Liveness));
    never(&|link| link.carrier = false);
    never(&|link| link.spec.lossless = true);
}

#[test]
fn a_link_whose_carrier_is_back_asks_often_for_a_while_and_then_as_before() {
    let config = config();
    for (busy, later) in [(true, Duration::ms(20)), (false, Duration::ms(250))] {
        let mut link = up(&config);
        link.state.handle(NOW, LinkEvent::CarrierLost);
        let back = NOW + Duration::s(2);
        link.on_carrier_back(back);
        let mut asked = Vec::new();
        while asked.len() < 28 {
            let due = link.probe_due_at(&config, busy);
            link.check_probe(due, &config, busy);
            assert_eq!(link.take_probe(due).map(|probe| probe.kind), Some(ProbeKind::Join));
            asked.push(due.since(back));
        }
        let often = (5..=30).map(|tens| Duration::ms(10 * tens));
        let as_before = (1..=2).map(|times| Duration::ms(300) + later.times(times));
        assert_eq!(asked, often.chain(as_before).collect::<Vec<_>>());
    }
}

#[test]
fn what_it_asks_is_to_join_or_whether_the_peer_is_there() {
    let config = config();
    let mut link = up(&config);
    let due = link.probe_due_at(&config, true);
    link.check_probe(Instant(due.0 - 1), &config, true);
    assert_eq!(link.take_probe(due), None, "not yet");
    link.check_probe(due, &config, true);
    let probe = link.take_probe(due).unwrap();
    assert_eq!((probe.kind, probe.about, probe.id, probe.target), (ProbeKind::Liveness, LinkId(4), 2, 0));
    link.state.handle(due, LinkEvent::PeerSaysDown);
    let due = link.probe_due_at(&config, true);
    assert_eq!(due, NOW + config.keepalive_busy + Duration::ms(20));
    link.check_probe(due, &config, true);
    let probe = link.take_probe(due).unwrap();
    assert_eq!(
        (probe.kind, probe.id, probe.target),
        (ProbeKind::Join, 3, 2 | 3 << 8),
        "and over which bearers"
    );
}

#[test]
fn a_request_to_join_is_answered_with_one_at_most_each_three_milliseconds() {
    let config = config();
    let mut new = link(&config);
    new.take_probe(NOW);
    new.join_back(NOW);
    assert_eq!(new.probe, Some(ProbeKind::Join), "a new link answers at once");
    let mut down = up(&config);
    down.join_back(NOW + Duration::s(1));
    assert_eq!(down.probe, None, "it is up");
    down.state.handle(NOW, LinkEvent::PeerSaysDown);
    down.join_back(NOW + Duration(2_999_999));
    assert_eq!(down.probe, None);
    down.join_back(NOW + Duration::ms(3));
    assert_eq!(down.probe, Some(ProbeKind::Join));
    down.probe = Some(ProbeKind::Liveness);
    down.join_back(NOW + Duration::ms(9));
    assert_eq!(down.probe, Some(ProbeKind::Liveness), "a question that waits stays");
}

#[test]
fn it_is_looked_at_for_what_comes_first() {
    let config = config();
    let mut link = up(&config);
    while link.mtu.is_searching() {
        let at = link.mtu.deadline();
        if let Some(size) = link.mtu.poll_probe(at) {
            link.mtu.on_probe_acked(at, size);
        }
    }
    let deadline = |link: &Link, carried| link.deadline(&config, true, carried).since(NOW);
    assert_eq!(deadline(&link, true), config.keepalive_busy);
    link.set_loss_at(NOW + Duration::ms(1));
    assert_eq!((deadline(&link, true), link.loss_at()), (Duration::ms(1), NOW + Duration::ms(1)));
    link.set_loss_at(Instant::NEVER);
    link.rtt.set_pto_min(Duration::ZERO);
    (0..200).for_each(|_| link.rtt.sample(NOW, Duration::us(100), Duration::ZERO));
    send(&mut link, 1, 100);
    assert_eq!(deadline(&link, true), link.pto());
    // Of a link that cannot carry messages neither the time-out counts nor the search for its MTU.
    link.received.record(NOW, 0, 100, NOW.stamp(), true, AckWish::Later, false);
    link.carrier = false;
    assert_eq!(deadline(&link, true), Duration::ZERO, "another link carries the acknowledgement");
    assert_eq!(link.deadline(&config, true, false), Instant::NEVER);
}

#[test]
fn a_peer_that_waits_for_its_turn_does_not_make_memory_doubtful() {
    let mut link = up(&config());
    let others = link.pto();
    link.spec.near = true;
    send(&mut link, 1, 1_000);
    assert!(others < Duration::ms(64), "{others:?}");
    assert_eq!(link.pto_at(), NOW + Duration::ms(100));
    link.pto_count = 3;
    assert_eq!(link.pto(), Duration::ms(100));
}
