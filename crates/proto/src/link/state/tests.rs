use super::*;

const EVENTS: [LinkEvent; 12] = [
    LinkEvent::Joined,
    LinkEvent::CarrierLost,
    LinkEvent::BearerClosed,
    LinkEvent::PeerEnded,
    LinkEvent::CarrierBack,
    LinkEvent::SendFailed,
    LinkEvent::PeerSaysDown,
    LinkEvent::Silence,
    LinkEvent::Verdict,
    LinkEvent::ProofOfLife,
    LinkEvent::ProbationOver,
    LinkEvent::DampingOver,
];

/// The table as text: every target that some combination of facts leads to; a dot where nothing changes.
fn table() -> String {
    let mut text = format!("{:<14}", "");
    for state in LinkState::ALL {
        text += &format!("{:<24}", state.to_string());
    }
    text = text.trim_end().to_owned() + "\n";
    for event in EVENTS {
        let mut line = format!("{:<14}", format!("{event:?}"));
        for state in LinkState::ALL {
            line += &format!("{:<24}", targets(state, event));
        }
        text += line.trim_end();
        text += "\n";
    }
    text
}

fn targets(state: LinkState, event: LinkEvent) -> String {
    let mut found = std::collections::BTreeSet::new();
    for bits in 0..8 {
        let facts =
            Facts { on_probation: bits & 1 != 0, carrier_stable: bits & 2 != 0, damped: bits & 4 != 0 };
        found.insert(next(state, event, facts));
    }
    let names: Vec<_> =
        found.iter().map(|s| if *s == state { ".".to_owned() } else { s.to_string() }).collect();
    names.join("|")
}

#[test]
fn the_table_is_as_documented() {
    let expected = "
              new                     probation               up                      suspect                 down                    damped
Joined        up                      .                       .                       probation|up            probation|.|damped      .
CarrierLost   down                    down                    down                    down                    .                       down
BearerClosed  down                    down                    down                    down                    .                       down
PeerEnded     down                    down                    down                    down                    .                       down
CarrierBack   .                       .                       .                       .                       .                       .
SendFailed    down                    down                    down                    down                    .                       down
PeerSaysDown  down                    down                    down                    down                    .                       down
Silence       .                       suspect                 suspect                 .                       .                       down
Verdict       .                       .                       .                       down                    .                       .
ProofOfLife   .                       .                       .                       probation|up            .                       .
ProbationOver .                       up                      .                       .                       .                       .
DampingOver   .                       .                       .                       .                       .                       probation
";
    let table = table();
    assert_eq!(table, expected[1..], "\n{table}");
}

fn ms(n: u64) -> Instant {
    Instant::ZERO + Duration::s(1000) + Duration::ms(n)
}

fn go(state: &mut State, at: Instant, event: LinkEvent) -> LinkState {
    state.handle(at, event);
    state.state()
}

fn up(at: Instant) -> State {
    let mut state = State::new(at);
    assert_eq!(
        state.handle(at, LinkEvent::Joined),
        Some(Transition { from: LinkState::New, to: LinkState::Up, why: LinkEvent::Joined })
    );
    state
}

/// Kills a link and lets it join again; returns where it ends.
fn fail_and_join(state: &mut State, at: Instant) -> LinkState {
    assert_eq!(go(state, at, LinkEvent::PeerSaysDown), LinkState::Down);
    go(state, at + Duration::ms(1), LinkEvent::Joined)
}

#[test]
fn a_suspicion_is_refuted_by_any_packet() {
    let mut state = up(ms(0));
    assert_eq!(go(&mut state, ms(10), LinkEvent::Silence), LinkState::Suspect);
    assert_eq!((state.usable(), state.deadline()), (false, ms(35)));
    assert_eq!(state.handle_timeout(ms(34)), None);
    assert_eq!(go(&mut state, ms(34), LinkEvent::ProofOfLife), LinkState::Up);
    assert_eq!((state.spurious(), state.downs(), state.deadline()), (1, 0, Instant::NEVER));
    for at in 35..40 {
        state.handle(ms(at), LinkEvent::ProofOfLife);
    }
    assert_eq!(state.spurious(), 1, "only what came in time to refute one counts");
}

#[test]
fn a_suspect_link_that_stays_silent_dies() {
    let mut state = up(ms(0));
    state.handle(ms(10), LinkEvent::Silence);
    assert_eq!(
        state.handle_timeout(ms(35)),
        Some(Transition { from: LinkState::Suspect, to: LinkState::Down, why: LinkEvent::Verdict })
    );
    assert_eq!((state.downs(), state.penalty(ms(35)), state.spurious()), (1, 1000, 0));
    assert_eq!(
        go(&mut state, ms(36), LinkEvent::ProofOfLife),
        LinkState::Down,
        "late packets do not wake the dead"
    );
}

#[test]
fn a_stall_puts_the_verdict_off_by_its_length() {
    let mut state = up(ms(0));
    state.on_stall(Duration::ms(7));
    state.handle(ms(0), LinkEvent::Silence);
    assert_eq!(state.deadline(), ms(25), "what was before the suspicion does not count");
    state.on_stall(Duration::ms(16));
    assert_eq!(state.deadline(), ms(41));
}

#[test]
fn a_link_that_returns_is_on_probation_until_it_has_proved_itself() {
    let mut state = up(ms(0));
    assert_eq!(fail_and_join(&mut state, ms(10)), LinkState::Probation);
    assert!(state.usable());
    for at in [500, 510, 520] {
        state.handle(ms(at), LinkEvent::ProofOfLife);
    }
    assert_eq!(state.deadline(), Instant::NEVER, "three proofs, but not over 30 ms");
    state.handle(ms(530), LinkEvent::ProofOfLife);
    assert_eq!(state.deadline(), ms(1011));
    assert_eq!(state.handle_timeout(ms(1010)), None);
    assert_eq!(state.handle_timeout(ms(1011)).map(|t| t.to), Some(LinkState::Up));
}

#[test]
fn a_suspicion_does_not_end_a_probation() {
    let mut state = up(ms(0));
    fail_and_join(&mut state, ms(10));
    assert_eq!(go(&mut state, ms(20), LinkEvent::Silence), LinkState::Suspect);
    for at in [30, 45, 60] {
        assert_eq!(go(&mut state, ms(at), LinkEvent::ProofOfLife), LinkState::Probation);
    }
    assert_eq!(state.deadline(), ms(1_030), "it starts anew");
    assert_eq!(go(&mut state, ms(70), LinkEvent::Silence), LinkState::Suspect);
    assert_eq!(go(&mut state, ms(80), LinkEvent::ProofOfLife), LinkState::Probation);
    assert_eq!(state.deadline(), ms(1_080), "and what it has proved counts");
    state.handle(ms(90), LinkEvent::Silence);
    assert_eq!(state.handle_timeout(ms(115)).map(|t| t.to), Some(LinkState::Down));
    assert_eq!(state.downs(), 2);
}

#[test]
fn a_carrier_must_be_stable_before_its_link_returns() {
    let mut state = up(ms(0));
    assert_eq!(go(&mut state, ms(1), LinkEvent::CarrierLost), LinkState::Down);
    assert_eq!(go(&mut state, ms(2), LinkEvent::Joined), LinkState::Down);
    state.handle(ms(50), LinkEvent::CarrierBack);
    state.handle(ms(120), LinkEvent::CarrierBack);
    assert_eq!(go(&mut state, ms(149), LinkEvent::Joined), LinkState::Down);
    assert_eq!(go(&mut state, ms(150), LinkEvent::Joined), LinkState::Probation);
}

#[test]
fn a_link_that_flaps_is_damped_until_its_penalty_has_faded() {
    let mut state = up(ms(0));
    assert_eq!(fail_and_join(&mut state, ms(100)), LinkState::Probation);
    assert_eq!(fail_and_join(&mut state, ms(200)), LinkState::Probation);
    assert_eq!(fail_and_join(&mut state, ms(300)), LinkState::Damped);
    assert!(!state.usable());
    let until = state.deadline();
    assert!(state.penalty(until) < 750 && state.penalty(until - Duration::ms(100)) >= 750);
    assert_eq!(state.handle_timeout(until).map(|t| t.to), Some(LinkState::Probation));
}

#[test]
fn a_link_whose_penalty_has_faded_by_its_return_is_not_damped() {
    // Three deaths at once make 3,000, which fall to 2,000 in 3.334 s.
    for (after, expected) in [(3_333, LinkState::Damped), (3_334, LinkState::Probation)] {
        let mut state = up(ms(0));
        for _ in 0..2 {
            assert_eq!(fail_and_join(&mut state, ms(0)), LinkState::Probation);
        }
        state.handle(ms(0), LinkEvent::PeerSaysDown);
        assert_eq!(go(&mut state, ms(after), LinkEvent::Joined), expected);
    }
}

#[test]
fn damping_has_a_longest_time() {
    let mut state = up(ms(0));
    for n in 0..200 {
        state.handle(ms(n), LinkEvent::Joined);
        state.state = LinkState::Up;
        state.handle(ms(n), LinkEvent::SendFailed);
    }
    assert_eq!(go(&mut state, ms(300), LinkEvent::Joined), LinkState::Damped);
    assert_eq!(state.deadline(), ms(300) + Duration::s(30));
    assert_eq!(go(&mut state, ms(400), LinkEvent::Silence), LinkState::Down);
}

#[test]
fn a_single_death_in_five_minutes_leaves_nothing_behind() {
    let mut state = up(ms(0));
    for minute in [0, 6, 12, 18] {
        let at = ms(minute * 60_000);
        assert_eq!(fail_and_join(&mut state, at), LinkState::Probation);
        assert_eq!(state.penalty(at), 1000);
        state.state = LinkState::Up;
    }
}

#[test]
fn the_penalty_halves_each_half_life() {
    let at = |s: u64| decayed(1000, Duration::ms(s), Duration::s(5));
    assert_eq!([at(0), at(2500), at(5000), at(10_000), at(12_500)], [1000, 750, 500, 250, 188]);
    assert_eq!(decayed(u32::MAX, Duration(u64::MAX), Duration::s(5)), 0);
}

#[test]
fn a_link_that_never_joined_dies_without_penalty() {
    let mut state = State::new(ms(0));
    assert_eq!(go(&mut state, ms(1), LinkEvent::SendFailed), LinkState::Down);
    assert_eq!((state.downs(), state.penalty(ms(1))), (0, 0));
    assert_eq!(go(&mut state, ms(2), LinkEvent::Joined), LinkState::Probation);
}
