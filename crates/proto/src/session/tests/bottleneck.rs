//! Trials that tell whether links pass the same narrow place.

use super::outgoing::*;
use super::*;

const SPAN: Duration = Duration::ms(20);

/// A session with so many links, all full, for which much more waits.
fn saturated(links: usize) -> Session {
    let mut session = super::session(&config(), &vec![(Active, 0); links]);
    session.links.iter_mut().for_each(make_fast);
    send_by(&mut session, Class::Normal, 64 << 20);
    grant_announced(&mut session, 1, 64 << 20);
    session.links.iter_mut().for_each(|link| fill_window(link, 10 << 20));
    session
}

/// Lets time pass while each link delivers so many KB in 20 ms: as the first list says, or, while link `k` is left out, as row
/// `k` of the second. Gives how often each was left out.
fn run(session: &mut Session, from: Instant, span: Duration, kb: &[u64], without: &[&[u64]]) -> Vec<u32> {
    let (mut now, mut outs) = (from, vec![0; kb.len()]);
    let mut was = None;
    while now < from + span {
        let out = session.links.iter().position(|link| session.trials.pauses(link.spec.id));
        if let Some(k) = out.filter(|_| was.is_none()) {
            outs[k] += 1;
        }
        was = out;
        let rates = out.map_or(kb, |k| without[k]);
        now += Duration::ms(1);
        for (link, kb) in session.links.iter_mut().zip(rates) {
            link.delivered_bytes += kb * 1_000 / 20;
        }
        session.try_bottleneck(now);
    }
    outs
}

fn verdicts(session: &Session) -> Vec<Option<u16>> {
    session.links.iter().map(|link| link.shared.with().map(|with| with.0)).collect()
}

#[test]
fn links_that_gain_what_another_leaves_share_its_bottleneck() {
    let mut session = saturated(2);
    let outs = run(&mut session, NOW, Duration::s(40), &[1_000, 1_000], &[&[0, 1_900], &[1_900, 0]]);
    assert_eq!((verdicts(&session), outs), (vec![Some(1), Some(0)], vec![3, 3]));
    // From then on once a minute.
    let outs =
        run(&mut session, NOW + Duration::s(40), Duration::s(120), &[1_000; 2], &[&[0, 1_000], &[1_000, 0]]);
    assert_eq!(
        (verdicts(&session), outs),
        (vec![None, None], vec![1, 1]),
        "one trial to the contrary is enough"
    );
}

#[test]
fn links_of_their_own_are_left_alone() {
    let mut session = saturated(2);
    run(&mut session, NOW, Duration::s(40), &[1_000, 1_000], &[&[0, 1_050], &[950, 0]]);
    assert_eq!(verdicts(&session), [None, None]);
    assert!(session.links.iter().all(|link| link.shared.trials == 3));
}

#[test]
fn a_gain_that_says_neither_this_nor_that_is_no_vote() {
    let mut session = saturated(2);
    run(&mut session, NOW, Duration::s(40), &[1_000; 2], &[&[0, 1_900], &[1_900, 0]]);
    let known: Vec<_> = session.links.iter().map(|link| link.shared).collect();
    // Sixty percent say that they share the place, less than thirty that they do not.
    let later = NOW + Duration::s(40);
    let outs = run(&mut session, later, Duration::s(120), &[1_000; 2], &[&[0, 1_320], &[1_580, 0]]);
    assert_eq!(outs, [1, 1]);
    assert_eq!(session.links.iter().map(|link| link.shared).collect::<Vec<_>>(), known);
}

#[test]
fn a_link_alone_is_never_left_out() {
    let mut session = saturated(1);
    assert_eq!(run(&mut session, NOW, Duration::s(20), &[1_000], &[&[0]]), [0]);
    assert_eq!(session.trials.deadline(), Instant::NEVER);
}

#[test]
fn of_three_links_the_two_that_share_are_found() {
    let mut session = saturated(3);
    let without: [&[u64]; 3] = [&[0, 1_000, 990], &[500, 0, 1_950], &[510, 1_900, 0]];
    run(&mut session, NOW, Duration::s(60), &[500, 1_000, 1_000], &without);
    assert_eq!(verdicts(&session), [None, Some(2), Some(1)]);
}

#[test]
fn nothing_is_tried_before_much_has_waited_for_long_or_once_a_link_does_not_serve() {
    let mut session = saturated(2);
    let shared: [&[u64]; 2] = [&[0, 1_900], &[1_900, 0]];
    assert_eq!(run(&mut session, NOW, Duration::ms(4_950), &[1_000; 2], &shared), [0, 0]);
    session.links[1].status = Drain;
    let mut now = NOW + Duration::ms(4_950);
    assert_eq!(run(&mut session, now, Duration::s(10), &[1_000; 2], &shared), [0, 0]);
    session.links[1].status = Active;
    now += Duration::s(10);
    assert_eq!(run(&mut session, now, Duration::ms(5_040), &[1_000; 2], &shared), [1, 0]);
    session.links[1].status = Drain;
    session.try_bottleneck(session.trials.deadline());
    assert!(session.links.iter().all(|link| !session.trials.pauses(link.spec.id) && link.shared.trials == 0));
}

#[test]
fn a_link_that_is_left_out_takes_nothing_of_large_messages_and_not_for_longer_than_is_meant() {
    let mut session = saturated(2);
    run(&mut session, NOW, Duration::ms(5_050), &[1_000; 2], &[&[0, 1_900], &[1_900, 0]]);
    assert!(session.trials.pauses(LinkId(0)));
    assert_eq!((session.share_of(NOW, 0), session.share_of(NOW, 1)), (0, u64::MAX));
    let at = session.trials.deadline();
    assert!(at < NOW + Duration::ms(5_080));
    // The machine stands still: what was counted is no measure.
    session.try_bottleneck(at + SPAN.times(2));
    assert!(!session.trials.pauses(LinkId(0)));
    assert_eq!(session.links[0].shared.trials, 0);
}

#[test]
fn a_link_that_delivers_next_to_nothing_tells_nothing() {
    let mut session = saturated(2);
    run(&mut session, NOW, Duration::s(40), &[20, 1_000], &[&[0, 1_900], &[20, 0]]);
    assert_eq!(session.links[0].shared.trials, 0);
}
