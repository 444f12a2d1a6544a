//! What is done over a protocol while it is measured: the two sides of each workload.

mod beside;
mod crowd;
mod histogram;
mod idle;
mod incast;
mod lone;
mod openloop;
mod parallel;
mod pingpong;
mod stalled;
mod stream;
mod tool;
mod transact;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::clock::now_ns;
use crate::control::{Job, Role, SideReport};
use crate::process::{Machine, cpu_time_ns};
use crate::protocol::Pipe;
use crate::wait::WaitMode;

pub(crate) use beside::play_beside;
pub(crate) use crowd::{serve, together as crowd_together};
pub(crate) use histogram::Histogram;
pub(crate) use incast::QUESTION_BYTES;
pub use lone::{LoneJob, LoneTimes};
pub(crate) use parallel::{play_incast, play_parallel};
pub(crate) use stalled::BLOCKED_NS_MIN;
pub(crate) use tool::{ToolCost, cost as tool_cost};
pub(crate) use transact::{answer, call};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Workload {
    /// One-way messages as fast as they go; bytes counted at the receiver.
    Stream,
    /// One message each way, the next after the answer; round-trip times at the client.
    PingPong,
    /// One message alone on links whose token buckets were emptied before; its time, and the least that they allow.
    Lone,
    /// Small one-way messages as fast as they go; messages counted at the receiver.
    Rate,
    /// Connect, one message each way, close; the next after that.
    Transact,
    /// Messages offered at a rate, and what of it is received.
    Datagram,
    /// Message length against socket buffer: one-way messages as fast as they go.
    Buffer,
    /// Several pairs of processes on one link, in the same and in opposite directions.
    Share,
    /// One-way messages over one link, two, and so on.
    Links,
    /// Many senders that answer one receiver at once; how long it takes until all answers are there.
    Incast,
    /// Messages to several nodes at once; the sender's CPU time for each.
    Multicast,
    /// Messages that arrive at a fixed rate; how long after that they are received.
    OpenLoop,
    /// A flow at a fixed rate beside bulk while links are cut; how late its messages come.
    Failover,
    /// A connected pair without traffic: memory, CPU time and wake-ups.
    Idle,
    /// A receiver that stops reading while its sender pushes on: memory on both sides.
    Stalled,
}

/// What holds where the command line says nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) links: u8,
    pub(crate) rate: &'static str,
    pub(crate) sizes: &'static [&'static str],
    pub(crate) wait: WaitMode,
    pub(crate) warmup_s: f64,
    pub(crate) duration_s: f64,
    pub(crate) repeat: u32,
}

impl Workload {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::PingPong => "pingpong",
            Self::Lone => "lone",
            Self::Rate => "rate",
            Self::Transact => "transact",
            Self::Datagram => "datagram",
            Self::Buffer => "buffer",
            Self::Share => "share",
            Self::Links => "links",
            Self::Incast => "incast",
            Self::Multicast => "multicast",
            Self::OpenLoop => "openloop",
            Self::Failover => "failover",
            Self::Idle => "idle",
            Self::Stalled => "stalled",
        }
    }

    /// Every workload.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// What holds where the command line says nothing.
    pub(crate) fn defaults(self) -> Defaults {
        let fast = Defaults {
            links: 1,
            rate: "0",
            sizes: &["64"],
            wait: WaitMode::Spin,
            warmup_s: 0.3,
            duration_s: 1.0,
            repeat: 5,
        };
        // Where several threads share a core, or none may work at all, spinning would measure the spinning.
        let calm = Defaults { wait: WaitMode::Block, ..fast };
        let (large, gigabit) = (&["128K"], "1000");
        match self {
            Self::Stream => Defaults { sizes: large, ..fast },
            Self::PingPong | Self::Rate | Self::OpenLoop => fast,
            Self::Lone => Defaults { links: 2, rate: gigabit, sizes: &["64K", "256K", "1M"], ..fast },
            Self::Transact => Defaults { sizes: &["128"], ..fast },
            Self::Datagram => Defaults { sizes: &["1400"], ..fast },
            Self::Buffer => Defaults { sizes: &["1K..16K"], duration_s: 0.5, repeat: 3, ..calm },
            Self::Share => Defaults { rate: gigabit, sizes: large, ..calm },
            Self::Links => Defaults { links: 4, rate: gigabit, sizes: large, ..calm },
            Self::Incast => Defaults { rate: gigabit, sizes: &["64K"], ..calm },
            Self::Multicast => Defaults { sizes: &["1K", "64K"], ..calm },
            Self::Failover => {
                Defaults { links: 2, rate: gigabit, sizes: &["4K"], warmup_s: 1.0, repeat: 1, ..calm }
            }
            Self::Idle => {
                Defaults { links: 2, rate: gigabit, warmup_s: 3.0, duration_s: 10.0, repeat: 3, ..calm }
            }
            Self::Stalled => Defaults { sizes: large, warmup_s: 0.0, duration_s: 2.0, repeat: 1, ..calm },
        }
    }

    /// Whether messages go one way, and what arrives within the window is what it is about.
    pub(crate) fn is_one_way(self) -> bool {
        matches!(self, Self::Stream | Self::Rate | Self::Datagram | Self::Buffer | Self::Share | Self::Links)
    }

    /// Whether the time from a question to its answer is what it is about.
    pub(crate) fn times_answers(self) -> bool {
        matches!(self, Self::PingPong | Self::Transact)
    }

    /// Whether the sender has the times of single messages, and not the receiver.
    pub(crate) fn is_timed_by_sender(self) -> bool {
        self.times_answers() || self == Self::Lone
    }

    /// Whether times of single messages are what it is about.
    pub(crate) fn has_latency(self) -> bool {
        self.is_timed_by_sender() || matches!(self, Self::OpenLoop | Self::Incast)
    }

    /// Whether it is nothing without links.
    pub(crate) fn needs_links(self) -> bool {
        matches!(
            self,
            Self::Lone | Self::Failover | Self::Idle | Self::Links | Self::Incast | Self::Multicast
        )
    }

    /// Whether messages say when they were due and when they were sent.
    pub(crate) fn carries_times(self) -> bool {
        self == Self::OpenLoop || self.checks_contents()
    }

    /// Whether the receiver compares every byte that arrives.
    pub(crate) fn checks_contents(self) -> bool {
        matches!(self, Self::Failover | Self::Stalled)
    }
}

/// What a side hears from outside while it works, and where its progress goes.
pub(crate) struct Surroundings<'a> {
    /// [`NOT_DRAINING`], or the number of messages after which nothing will come.
    pub(crate) drain: &'a AtomicU64,
    /// Whether a receiver that had stopped reading may read on.
    pub(crate) resume: &'a AtomicBool,
    /// Takes a report of the work so far, a few times a second.
    pub(crate) progress: &'a mut dyn FnMut(&SideReport),
}

/// The sender still sends.
pub(crate) const NOT_DRAINING: u64 = u64::MAX;

impl Surroundings<'_> {
    fn drain_expected(&self) -> Option<u64> {
        Some(self.drain.load(Ordering::Relaxed)).filter(|&expected| expected != NOT_DRAINING)
    }
}

/// When a receiver has all that was sent, or gives up on what has not come: after a time of silence. What lies
/// received in a queue while this process is away is no silence, so that counts from when it looks, knowing that all
/// was sent.
pub(crate) struct Silence {
    limit_ns: u64,
    since_ns: u64,
    draining: bool,
}

impl Silence {
    pub(crate) fn of(limit_ns: u64) -> Self {
        Self { limit_ns, since_ns: now_ns(), draining: false }
    }

    /// Takes how many messages came in this turn and, once all was `sent`, gives that number when it is time to end:
    /// `arrived` reached it, or silence has lasted.
    pub(crate) fn ends(&mut self, came: usize, sent: Option<u64>, arrived: u64) -> Option<u64> {
        let sent = sent?;
        let now = now_ns();
        if came > 0 || !self.draining {
            (self.since_ns, self.draining) = (now, true);
        }
        (arrived >= sent || now - self.since_ns > self.limit_ns).then_some(sent)
    }
}

/// Plays one side to its end.
pub(crate) fn play(
    job: &Job,
    pipe: &mut dyn Pipe,
    reliable: bool,
    around: Surroundings,
) -> io::Result<SideReport> {
    match (job.workload, job.role) {
        (Workload::OpenLoop, Role::Receiver) => openloop::receive(job, pipe, reliable, around),
        (Workload::OpenLoop, Role::Sender) => stream::send(job, pipe, around),
        (workload, Role::Sender) if workload.is_one_way() => stream::send(job, pipe, around),
        (workload, Role::Receiver) if workload.is_one_way() => stream::receive(job, pipe, reliable, around),
        (Workload::Multicast, Role::Sender) => stream::send(job, pipe, around),
        (Workload::Multicast, Role::Receiver) => stream::receive(job, pipe, reliable, around),
        (Workload::PingPong, Role::Sender) => pingpong::ask(job, pipe, reliable, around),
        (Workload::PingPong, Role::Receiver) => pingpong::answer(job, pipe, around),
        (Workload::Lone, Role::Sender) => lone::send(job, pipe, around),
        (Workload::Lone, Role::Receiver) => lone::receive(job, pipe, around),
        (Workload::Stalled, Role::Sender) => stalled::push(job, pipe, around),
        (Workload::Stalled, Role::Receiver) => stalled::take(job, pipe, around),
        (Workload::Idle, Role::Sender) => idle::send(job, pipe),
        (Workload::Idle, Role::Receiver) => idle::receive(job, pipe),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "not played over a single pipe")),
    }
}

/// Follows the time: when the measured window opens and closes, and when to tell of progress.
pub(crate) struct Window {
    opens_ns: u64,
    length_ns: u64,
    /// How long a side goes on asking after its window, so that those of others are full to their ends.
    tail_ns: u64,
    progress_ns: u64,
    /// Whether what the whole machine does meanwhile is told.
    watches_machine: bool,
    opened: Option<Opened>,
    closed: Option<SideReport>,
    closed_ns: u64,
}

/// What there was when the measured window opened.
struct Opened {
    mark: Mark,
    cpu_ns: u64,
    machine: Option<Machine>,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) now_ns: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

const PROGRESS_EVERY_NS: u64 = 250_000_000;

/// Silence after which what an unreliable protocol still misses will not come.
const LOST_AFTER_NS: u64 = 400_000_000;

/// Silence after which a reliable protocol has failed: several of TCP's doubling timeouts in a row fit in.
pub(crate) const FAILED_AFTER_NS: u64 = 6_000_000_000;

impl Window {
    /// A window that opens after the job's warm-up, counted from `start_ns`.
    pub(crate) fn new(job: &Job, start_ns: u64) -> Self {
        Self {
            opens_ns: start_ns + job.warmup_ns,
            length_ns: job.duration_ns,
            tail_ns: if job.crowd.is_some() { crowd::TAIL_NS } else { 0 },
            progress_ns: start_ns + PROGRESS_EVERY_NS,
            // Not where a side spins: its core is busy whatever it does. The other side would tell the same again.
            watches_machine: job.role == Role::Sender
                && job.workload.is_one_way()
                && job.setup.wait != WaitMode::Spin,
            opened: None,
            closed: None,
            closed_ns: u64::MAX,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opened.is_some() && self.closed.is_none()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Whether it is closed, and its tail is over.
    fn is_over(&self, now_ns: u64) -> bool {
        self.is_closed() && now_ns - self.closed_ns >= self.tail_ns
    }

    /// Takes the counters; true when it is time to tell of progress. The length counts from the moment the window
    /// really opened: a side that was away until shortly before a fixed end would otherwise measure only how fast it
    /// catches up.
    pub(crate) fn tick(&mut self, mark: Mark) -> bool {
        match (&self.opened, &self.closed) {
            (None, _) if mark.now_ns >= self.opens_ns => {
                self.opened = Some(Opened { mark, cpu_ns: cpu_time_ns(), machine: self.machine() });
            }
            (Some(opened), None) if mark.now_ns >= opened.mark.now_ns + self.length_ns => {
                let report = self.so_far(mark);
                let busy_ns = |before, now: Machine| now.busy_ns_since(before, report.window_ns);
                let machine_busy_ns = opened.machine.as_ref().zip(self.machine()).map(|(a, b)| busy_ns(a, b));
                self.closed = Some(SideReport { machine_busy_ns, ..report });
                self.closed_ns = mark.now_ns;
            }
            _ => {}
        }
        let due = mark.now_ns >= self.progress_ns;
        if due {
            self.progress_ns = mark.now_ns + PROGRESS_EVERY_NS;
        }
        due
    }

    /// Takes the counters after a question was answered; gives the side's report once the window is closed, and tells of
    /// progress when that is due. `complete` adds what only the workload knows.
    pub(crate) fn round(
        &mut self,
        mark: Mark,
        progress: &mut dyn FnMut(&SideReport),
        complete: impl Fn(SideReport) -> SideReport,
    ) -> Option<SideReport> {
        let due = self.tick(mark);
        if self.is_over(mark.now_ns) {
            return Some(complete(self.so_far(mark)));
        }
        if due && !self.is_closed() {
            progress(&complete(self.so_far(mark)));
        }
        None
    }

    fn machine(&self) -> Option<Machine> {
        if self.watches_machine { Machine::now() } else { None }
    }

    /// What the window held: all of it once it is closed, until then what it holds at `mark`.
    pub(crate) fn so_far(&self, mark: Mark) -> SideReport {
        if let Some(report) = &self.closed {
            return report.clone();
        }
        let Some(opened) = &self.opened else { return SideReport::default() };
        SideReport {
            window_ns: mark.now_ns - opened.mark.now_ns,
            messages: mark.messages - opened.mark.messages,
            bytes: mark.bytes - opened.mark.bytes,
            cpu_ns: cpu_time_ns() - opened.cpu_ns,
            ..SideReport::default()
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::{job_for_tests, setup_for_tests};
