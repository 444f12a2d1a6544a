//! What is told of a message that is not sent yet, held against what becomes of it.

use super::outgoing::*;
use super::unequal::rates;
use super::*;
use crate::link::state::LinkState;
use crate::link::window::AckSample;

/// Links that are up and known to deliver 512 MB/s at these round trips.
fn near(rtts_us: &[u64]) -> Session {
    let mut session = up(rtts_us.len());
    for (link, &rtt_us) in session.links.iter_mut().zip(rtts_us) {
        make_fast(link);
        fill(link);
        link.rtt.sample(NOW, Duration::us(rtt_us), Duration::ZERO);
    }
    session
}

/// A link that [`make_fast`] made fast is full for so long that no more can be expected of it.
fn fill(link: &mut Link) {
    for n in 5..=30 {
        let at = Instant(NOW.0 - 100_000_000) + Duration::us(1_024).times(n);
        let sample = AckSample { rx_bytes: n << 19, rx_clock: at.stamp(), ..AckSample::default() };
        link.on_ack(at, &AckSample { inflight_before: 1 << 20, queueing: Duration::ms(10), ..sample });
    }
    assert!(!link.window.is_starting());
}

fn parts(session: &Session, bytes: u64) -> Vec<Part> {
    session.outlook(bytes).links.iter().map(|link| link.part).collect()
}

/// What may be the matter with a link.
const TROUBLES: [fn(&mut Link); 9] = [
    |_| (),
    |link| link.status = Standby,
    |link| link.status = Drain,
    |link| link.status_of_peer = Drain,
    |link| link.pto_count = 1,
    |link| link.blocked = true,
    |link| link.carrier = false,
    |link| {
        link.state.handle(NOW, LinkEvent::Silence);
    },
    |link| {
        let room = link.room();
        fill_window(link, room);
    },
];

#[test]
fn what_is_told_of_each_link_is_what_the_scheduler_does_with_it() {
    let all = || 0..TROUBLES.len();
    for (first, second, third) in all().flat_map(|a| all().flat_map(move |b| all().map(move |c| (a, b, c)))) {
        for bytes in [8, 12_000, 60_000] {
            let troubled = || {
                let mut session = near(&[100, 150, 400]);
                for (link, trouble) in session.links.iter_mut().zip([first, second, third]) {
                    TROUBLES[trouble](link);
                }
                session
            };
            let outlook = troubled().outlook(bytes);
            let case = format!("{bytes} bytes, {first} {second} {third}: {outlook:?}");
            for (index, told) in outlook.links.iter().enumerate() {
                let mut session = troubled();
                // Pieces wait for room, small messages do not.
                let now = told.part != Part::Pulls || session.links[index].room() > 0;
                send(&mut session, bytes);
                let sent = poll(&mut session, index as u8).map(|(_, packets)| packets);
                let payload_bytes: usize = sent.iter().flatten().map(Packet::payload_bytes).sum();
                assert_eq!(payload_bytes > 0, told.part.takes() && now, "link {index}, {case}");
            }
        }
    }
}

#[test]
fn the_choice_stays_where_it_was_and_asking_does_not_move_it() {
    let mut session = near(&[300, 300]);
    assert_eq!(taken_by(&mut session, &config(), 8), [0]);
    session.links[0].sent.abandon(|_| ());
    let make = |session: &mut Session, rtt_us| {
        session.links[1].rtt = Default::default();
        session.links[1].rtt.sample(NOW, Duration::us(rtt_us), Duration::ZERO);
    };
    make(&mut session, 280);
    let outlook = session.outlook(8);
    assert_eq!((outlook.choice, outlook.links[0].part), (Some(LinkId(0)), Part::Chosen));
    assert!(outlook.links[1].part == Part::Behind && outlook.links[1].offer < outlook.links[0].offer);
    make(&mut session, 100);
    assert_eq!(parts(&session, 8), [Part::Behind, Part::Chosen]);
    make(&mut session, 280);
    assert_eq!(parts(&session, 8), [Part::Chosen, Part::Behind], "nobody chose the other");
    make(&mut session, 100);
    // For a moment the last choice stands, but not for more than a packet.
    assert_eq!(taken_by(&mut session, &config(), 1_501), [1]);
    make(&mut session, 310);
    assert_eq!(parts(&session, 8), [Part::Behind, Part::Chosen], "now it is the choice that stays");
}

#[test]
fn each_reason_why_a_link_takes_nothing_is_told_by_its_name() {
    use Obstacle::{InDoubt, NoCarrier, NoRoom, State};
    let reasons = [
        Some(Obstacle::Standby),
        Some(Obstacle::Drain),
        Some(Obstacle::Drain),
        Some(InDoubt),
        None,
        Some(NoCarrier),
        Some(State(LinkState::Suspect)),
        Some(NoRoom),
    ];
    for (trouble, reason) in TROUBLES[1..].iter().zip(reasons) {
        let mut session = near(&[100, 200]);
        trouble(&mut session.links[0]);
        let first = parts(&session, 8)[0];
        assert_eq!(first, reason.map_or(Part::Chosen, Part::Barred));
        let large = parts(&session, 1 << 20)[0];
        let pulls = reason.is_none_or(|reason| reason == NoRoom);
        assert_eq!(large == Part::Pulls, pulls, "{large:?}");
    }
}

#[test]
fn a_small_message_takes_as_long_as_its_link_is_expected_to() {
    let mut session = near(&[300, 200]);
    let outlook = session.outlook(64);
    assert_eq!((outlook.way, outlook.choice), (Way::Small, Some(LinkId(1))));
    assert_eq!((outlook.arrival, outlook.announcement), (Some(Duration(100_125)), None));
    let shares: Vec<_> = outlook.links.iter().map(|link| link.share_bytes).collect();
    assert_eq!(shares, [Some(0), Some(64)]);
    session.links[1].blocked = true;
    let outlook = session.outlook(64);
    assert_eq!(parts(&session, 64), [Part::Admitted, Part::Chosen], "whichever is asked first");
    assert_eq!(
        (outlook.arrival, outlook.links[0].share_bytes),
        (Some(Duration(150_125)), None),
        "the slower one"
    );
    session.links.iter_mut().for_each(|link| link.status = Drain);
    let outlook = session.outlook(64);
    assert_eq!((outlook.choice, outlook.arrival), (None, None));
    assert_eq!(outlook.links[0].part, Part::Barred(Obstacle::Drain));
}

#[test]
fn a_large_message_is_shared_by_rates_and_queues() {
    let mut session = near(&[200, 200, 200]);
    session.links[2].status = Standby;
    let rate = session.links[0].rate(1);
    let bytes = 64 << 20;
    let outlook = session.outlook(bytes);
    assert_eq!(outlook.way, Way::Announced);
    // There and back by the choice, half a round trip for the first byte, then at both links' rates.
    assert_eq!(outlook.announcement, Some(Duration::us(200)));
    let sending = Duration(bytes * 1_000_000_000 / (2 * rate));
    let arrival = outlook.arrival.unwrap();
    assert!(arrival.0.abs_diff((sending + Duration::us(300)).0) <= 2, "{arrival:?} {sending:?}");
    let shares: Vec<u64> = outlook.links.iter().map(|link| link.share_bytes.unwrap()).collect();
    assert!(shares[0].abs_diff(bytes / 2) < 2_000 && shares[0] == shares[1], "{shares:?}");
    assert_eq!((shares[2], outlook.links[2].part), (0, Part::Barred(Obstacle::Standby)));
    // What waits before it on one link goes by the other.
    fill_window(&mut session.links[0], 10 << 20);
    let outlook = session.outlook(bytes);
    let shares: Vec<u64> = outlook.links.iter().map(|link| link.share_bytes.unwrap()).collect();
    assert!((shares[1] - shares[0]).abs_diff(10 << 20) < 100_000, "{shares:?}");
    assert_eq!(session.outlook(60_000).way, Way::Pieces);
    assert_eq!(session.outlook(60_000).announcement, None);
}

#[test]
fn what_a_link_loses_is_told_and_counts() {
    let (mut session, bytes) = (near(&[200, 200]), 4 << 20);
    let before = session.outlook(bytes);
    session.links[1].losses.note(NOW, 950, 50);
    let after = session.outlook(bytes);
    let repair = Duration::us(3_200);
    assert_eq!(after.links.iter().map(|link| link.loss).collect::<Vec<_>>(), [Duration::ZERO, repair]);
    let moved = session.links[1].rate(1) * repair.0 / 2_000_000_000;
    let given = before.links[1].share_bytes.unwrap() - after.links[1].share_bytes.unwrap();
    assert!(given.abs_diff(moved) < 1_000, "{given} {moved}");
    // Of one packet in 20 or so the loss is found out by a time-out.
    let small = session.outlook(64).links;
    assert!(small[1].loss > Duration::us(150) && small[1].loss < Duration::us(250), "{small:?}");
    assert_eq!(small[1].offer.unwrap() - small[1].loss, small[0].offer.unwrap());
}

#[test]
fn the_largest_rate_that_was_seen_tells_a_time_and_no_shares() {
    let (mut session, bytes) = (near(&[200, 200]), 1 << 20);
    let measured = session.outlook(bytes);
    let mut starting = up(2).links.remove(1);
    measure_rounds(&mut starting, 512 << 10, 3);
    starting.rtt.sample(NOW, Duration::us(200), Duration::ZERO);
    session.links[1] = starting;
    assert!(session.links[1].window.is_starting());
    let outlook = session.outlook(bytes);
    assert_eq!(outlook.arrival, measured.arrival, "the same rate");
    assert!(outlook.links.iter().all(|link| link.share_bytes.is_none()));
    assert!(measured.links.iter().all(|link| link.share_bytes.is_some()));
    session.links[0].status = Drain;
    assert_eq!(session.outlook(bytes).links[1].share_bytes, Some(bytes), "there is no other");
}

#[test]
fn what_was_never_measured_is_not_predicted() {
    let mut session = near(&[200]);
    let fresh = up(2);
    session.links.extend(fresh.links.into_iter().skip(1));
    let outlook = session.outlook(1 << 20);
    assert_eq!(outlook.links.iter().map(|link| link.share_bytes).collect::<Vec<_>>(), [None, None]);
    assert_eq!((outlook.arrival, outlook.announcement), (None, None));
    session.links[0].status = Drain;
    let outlook = session.outlook(8);
    assert_eq!((outlook.links[1].part, outlook.arrival), (Part::Chosen, None));
    assert_eq!(session.outlook(1 << 20).announcement, None);
    session.links[1].rtt.sample(NOW, Duration::us(100), Duration::ZERO);
    assert_eq!(session.outlook(8).arrival, Some(Duration(50_064)), "the rate matters little");
    assert_eq!(session.outlook(1 << 20).arrival, None, "and now it does");
}

#[test]
fn a_slow_link_is_told_to_be_late_for_what_the_others_deliver_before() {
    let told = |mbit, bytes| {
        let mut session = rates(&[1_000, mbit]);
        let part = session.outlook(bytes).links[1].part;
        send(&mut session, bytes);
        let sent = poll(&mut session, 1).map(|(_, packets)| packets);
        let payload_bytes: usize = sent.iter().flatten().map(Packet::payload_bytes).sum();
        (part, payload_bytes > 0)
    };
    // In 480 us, 70 Mbit/s deliver three packets. A sixteenth is too little for a share, and takes a packet that would be there
    // in half that time.
    assert_eq!(told(70, 60_000), (Part::Pulls, true));
    assert_eq!(told(70, 17_000).0, Part::Pulls);
    assert_eq!(told(62, 60_000), (Part::Pulls, true));
    assert_eq!(told(62, 40_000), (Part::Late, false));
    assert_eq!(told(25, 20_000), (Part::Late, false));
    let session = rates(&[1_000, 25]);
    assert_eq!(parts(&session, 64 << 20), [Part::Pulls, Part::Pulls]);
}
