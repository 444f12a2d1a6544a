//! Life of a link as a table (protocol.md §6.4).
//!
//! Traffic moves away at `Suspect`, which is cheap and taken back by any packet; only `Down` throws away what the
//! link knew. So suspicion may be quick while the verdict is slow. A link that keeps failing is damped: each return
//! that does not last costs more than the link is worth.

use crate::time::{Duration, Instant};
use core::fmt;
use serde::{Deserialize, Serialize};

/// Where a link is in its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum LinkState {
    /// Asked to join, not answered yet.
    New,
    /// Back from the dead: used from a small window on, not for urgent messages.
    Probation,
    /// In use.
    Up,
    /// Silent: nothing new goes there, what is in flight is copied to other links.
    Suspect,
    /// Dead: what was in flight is lost.
    Down,
    /// Alive, but it failed too often of late to be used.
    Damped,
}

impl LinkState {
    /// All of them.
    pub const ALL: [LinkState; 6] = [
        LinkState::New,
        LinkState::Probation,
        LinkState::Up,
        LinkState::Suspect,
        LinkState::Down,
        LinkState::Damped,
    ];

    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            LinkState::New => "new",
            LinkState::Probation => "probation",
            LinkState::Up => "up",
            LinkState::Suspect => "suspect",
            LinkState::Down => "down",
            LinkState::Damped => "damped",
        }
    }
}

/// What happens to a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkEvent {
    /// The peer answered a request to join.
    Joined,
    /// The bearer lost its carrier.
    CarrierLost,
    /// The bearer is closed, ours or the peer's: the link is about to be forgotten.
    BearerClosed,
    /// The peer's process has ended: its machine, which is ours, says so.
    PeerEnded,
    /// The bearer has its carrier again.
    CarrierBack,
    /// The system refused to send on the bearer (network down, unreachable, no device).
    SendFailed,
    /// The peer says that the link is dead.
    PeerSaysDown,
    /// Nothing was heard for too long.
    Silence,
    /// The time to answer a suspicion is over.
    Verdict,
    /// A packet of the link arrived.
    ProofOfLife,
    /// The link has proved itself.
    ProbationOver,
    /// The penalty has faded.
    DampingOver,
}

/// A change of state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The state before.
    pub from: LinkState,
    /// The state now.
    pub to: LinkState,
    /// What brought it about.
    pub why: LinkEvent,
}

/// Times and counts of the failure detector (protocol.md §6.4). Silences and keepalives are the link's owner's business.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tolerances {
    /// From suspicion to verdict.
    pub verdict: Duration,
    /// How long the carrier must have been back before a link may join again.
    pub carrier_stable: Duration,
    /// Length of a probation.
    pub probation: Duration,
    /// Proofs of life that a probation takes.
    pub proofs: u32,
    /// Shortest span from the first to the last of them.
    pub proofs_span: Duration,
    /// What each death adds to the penalty.
    pub penalty: u32,
    /// Half-life of the penalty.
    pub penalty_half_life: Duration,
    /// Penalty above which a link is damped.
    pub damp_above: u32,
    /// Penalty below which it no longer is.
    pub damp_below: u32,
    /// Longest damping.
    pub damping_max: Duration,
}

impl Default for Tolerances {
    fn default() -> Self {
        Tolerances {
            verdict: Duration::ms(25),
            carrier_stable: Duration::ms(100),
            probation: Duration::s(1),
            proofs: 3,
            proofs_span: Duration::ms(30),
            penalty: 1000,
            penalty_half_life: Duration::s(5),
            damp_above: 2000,
            damp_below: 750,
            damping_max: Duration::s(30),
        }
    }
}

/// What decides between several targets of one (state, event) pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Facts {
    /// The link is on probation (and may be suspect at the same time).
    on_probation: bool,
    /// The bearer has its carrier, for long enough to be believed.
    carrier_stable: bool,
    /// The penalty is above the limit.
    damped: bool,
}

/// The table. Pairs that are not named change nothing.
fn next(state: LinkState, event: LinkEvent, facts: Facts) -> LinkState {
    use LinkEvent as E;
    use LinkState as S;
    let alive = if facts.on_probation { S::Probation } else { S::Up };
    let back = match (facts.carrier_stable, facts.damped) {
        (false, _) => S::Down,
        (true, true) => S::Damped,
        (true, false) => S::Probation,
    };
    match (state, event) {
        (_, E::CarrierLost | E::BearerClosed | E::PeerEnded | E::SendFailed | E::PeerSaysDown) => S::Down,
        (S::New, E::Joined) => S::Up,
        (S::Probation, E::ProbationOver) => S::Up,
        (S::Probation | S::Up, E::Silence) => S::Suspect,
        (S::Suspect, E::ProofOfLife | E::Joined) => alive,
        (S::Suspect, E::Verdict) => S::Down,
        (S::Down, E::Joined) => back,
        (S::Damped, E::DampingOver) => S::Probation,
        (S::Damped, E::Silence) => S::Down,
        (state, _) => state,
    }
}

/// State machine of one link, with its timers and its penalty.
#[derive(Clone, Debug)]
pub struct State {
    state: LinkState,
    tolerances: Tolerances,
    on_probation: bool,
    carrier_since: Option<Instant>,
    first_proof_at: Instant,
    last_proof_at: Instant,
    proofs: u32,
    penalty: u32,
    penalty_at: Instant,
    timer: Instant,
    spurious: u64,
    downs: u64,
}

impl State {
    /// A link that asks to join; its bearer has a carrier.
    pub fn new(now: Instant) -> Self {
        State {
            state: LinkState::New,
            tolerances: Tolerances::default(),
            on_probation: false,
            carrier_since: Some(Instant::ZERO),
            first_proof_at: Instant::NEVER,
            last_proof_at: Instant::NEVER,
            proofs: 0,
            penalty: 0,
            penalty_at: now,
            timer: Instant::NEVER,
            spurious: 0,
            downs: 0,
        }
    }

    /// The same with other tolerances (planted fault only).
    #[cfg(feature = "planted")]
    pub(crate) fn with(mut self, planted: Option<crate::planted::Planted>) -> Self {
        use crate::planted::Planted;
        let tolerances = &mut self.tolerances;
        match planted {
            Some(Planted::HastyProbation) => {
                (tolerances.probation, tolerances.proofs) = (Duration::ZERO, 1);
                tolerances.proofs_span = Duration::ZERO;
            }
            Some(Planted::UndampedLink) => tolerances.damp_above = u32::MAX,
            Some(Planted::UnforgivingDamping) => {
                tolerances.penalty_half_life = tolerances.penalty_half_life.times(100);
                tolerances.damping_max = Duration::s(1_000);
            }
            _ => {}
        }
        self
    }

    /// The state.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// Whether new data may be sent on the link.
    pub fn usable(&self) -> bool {
        matches!(self.state, LinkState::Up | LinkState::Probation)
    }

    /// Suspicions that the link refuted.
    pub fn spurious(&self) -> u64 {
        self.spurious
    }

    /// How often the link died.
    pub fn downs(&self) -> u64 {
        self.downs
    }

    /// The penalty at `now`.
    pub fn penalty(&self, now: Instant) -> u32 {
        decayed(self.penalty, now.since(self.penalty_at), self.tolerances.penalty_half_life)
    }

    /// The driver stood still for `stall`: a frozen observer may accuse no one, so a verdict waits that much more.
    pub fn on_stall(&mut self, stall: Duration) {
        if self.state == LinkState::Suspect {
            self.timer += stall;
        }
    }

    /// Takes in what happened; tells the change of state, if any.
    pub fn handle(&mut self, now: Instant, event: LinkEvent) -> Option<Transition> {
        self.note(now, event);
        if (self.state, event) == (LinkState::Up, LinkEvent::ProofOfLife) {
            // It comes with nearly every packet and changes nothing.
            return None;
        }
        let facts = self.facts(now);
        let (from, to) = (self.state, next(self.state, event, facts));
        if from == to {
            return None;
        }
        self.enter(now, from, to);
        Some(Transition { from, to, why: event })
    }

    /// When [`State::handle_timeout`] has something to do.
    pub fn deadline(&self) -> Instant {
        match self.state {
            LinkState::Probation if !self.has_proved() => Instant::NEVER,
            _ => self.timer,
        }
    }

    /// Turns a passed deadline into its event.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Transition> {
        if now < self.deadline() {
            return None;
        }
        match self.state {
            LinkState::Suspect => self.handle(now, LinkEvent::Verdict),
            LinkState::Probation => self.handle(now, LinkEvent::ProbationOver),
            LinkState::Damped => self.handle(now, LinkEvent::DampingOver),
            LinkState::New | LinkState::Up | LinkState::Down => None,
        }
    }

    /// Keeps what an event says beyond the table.
    fn note(&mut self, now: Instant, event: LinkEvent) {
        match event {
            LinkEvent::CarrierLost => self.carrier_since = None,
            LinkEvent::CarrierBack => self.carrier_since = self.carrier_since.or(Some(now)),
            LinkEvent::ProofOfLife | LinkEvent::Joined => {
                self.first_proof_at = self.first_proof_at.min(now);
                self.last_proof_at = now;
                self.proofs = self.proofs.saturating_add(1);
                self.spurious += (self.state == LinkState::Suspect) as u64;
            }
            _ => {}
        }
    }

    fn facts(&self, now: Instant) -> Facts {
        Facts {
            on_probation: self.on_probation,
            carrier_stable: self
                .carrier_since
                .is_some_and(|at| at == Instant::ZERO || now.since(at) >= self.tolerances.carrier_stable),
            // The penalty as it was is above the limit for few links only, and the question comes with every packet.
            damped: self.penalty > self.tolerances.damp_above
                && self.penalty(now) > self.tolerances.damp_above,
        }
    }

    fn enter(&mut self, now: Instant, from: LinkState, to: LinkState) {
        self.state = to;
        self.timer = match to {
            LinkState::Suspect => now + self.tolerances.verdict,
            LinkState::Probation if from == LinkState::Suspect => now + self.tolerances.probation,
            LinkState::Probation => {
                (self.proofs, self.first_proof_at) = (0, Instant::NEVER);
                self.on_probation = true;
                now + self.tolerances.probation
            }
            LinkState::Damped => self.damped_until(now),
            LinkState::Up => {
                self.on_probation = false;
                Instant::NEVER
            }
            LinkState::Down => {
                self.on_down(now, from);
                Instant::NEVER
            }
            LinkState::New => Instant::NEVER,
        };
    }

    /// A death of a link that was in use is punished; one that never joined has nothing to lose, and a damped one
    /// is punished already.
    fn on_down(&mut self, now: Instant, from: LinkState) {
        self.on_probation = false;
        if matches!(from, LinkState::New | LinkState::Damped) {
            return;
        }
        self.penalty = self.penalty(now).saturating_add(self.tolerances.penalty);
        self.penalty_at = now;
        self.downs += 1;
    }

    fn has_proved(&self) -> bool {
        self.proofs >= self.tolerances.proofs
            && self.last_proof_at.since(self.first_proof_at) >= self.tolerances.proofs_span
    }

    /// When the penalty will have faded, to within 100 ms.
    fn damped_until(&self, now: Instant) -> Instant {
        let latest = now + self.tolerances.damping_max;
        let mut at = now;
        while at < latest && self.penalty(at) >= self.tolerances.damp_below {
            at += Duration::ms(100);
        }
        at.min(latest)
    }
}

/// `penalty` after `age`: halves each half-life, linearly in between.
fn decayed(penalty: u32, age: Duration, half_life: Duration) -> u32 {
    let halvings = age.0 / half_life.0.max(1);
    if halvings >= 32 {
        return 0;
    }
    let (whole, rest) = ((penalty >> halvings) as u64, age.0 % half_life.0.max(1));
    (whole - whole / 2 * (rest / 1000) / (half_life.0 / 1000).max(1)) as u32
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for LinkEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkEvent::Joined => "joined",
            LinkEvent::CarrierLost => "carrier lost",
            LinkEvent::BearerClosed => "bearer closed",
            LinkEvent::PeerEnded => "process of the peer ended",
            LinkEvent::CarrierBack => "carrier back",
            LinkEvent::SendFailed => "system refused to send",
            LinkEvent::PeerSaysDown => "peer says down",
            LinkEvent::Silence => "silence",
            LinkEvent::Verdict => "no answer to the suspicion",
            LinkEvent::ProofOfLife => "heard again",
            LinkEvent::ProbationOver => "probation passed",
            LinkEvent::DampingOver => "penalty faded",
        })
    }
}

#[cfg(test)]
mod tests;
