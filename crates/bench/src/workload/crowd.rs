//! One server and several clients, all at once: who asks what, what of it comes, and how even their shares are.
//!
//! The numbers of each client's messages begin at one of its own, so that the server knows by the message alone whose it is, and
//! a client that gets the answer of another one sees that.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{FAILED_AFTER_NS, Histogram, Mark, NOT_DRAINING, Silence, Surroundings, Window};
use crate::check::{Check, CheckCounts, number_of};
use crate::clock::now_ns;
use crate::control::{Job, SideReport};
use crate::protocol::Server;

/// How much longer than its window each client goes on: processes that are told to begin at the same time do not.
pub(super) const TAIL_NS: u64 = 300_000_000;
/// Bits of a number that count a client's messages; those above say which client.
const COUNT_BITS: u32 = 40;

/// The number of the first message of a side.
pub(super) fn first_number(job: &Job) -> u64 {
    job.crowd.map_or(0, |crowd| first_of(crowd.number as usize))
}

fn first_of(client: usize) -> u64 {
    (client as u64) << COUNT_BITS
}

/// The server: takes what all send, gives it back where that is asked for, and counts for each client until all that they sent is
/// here or silence lasts.
pub(crate) fn serve(
    job: &Job,
    server: &mut dyn Server,
    drains: &[AtomicU64],
    around: Surroundings,
) -> io::Result<SideReport> {
    let answers = job.workload.times_answers();
    let mut clients = Clients::new(job.setup.size, job.crowd.map_or(1, |crowd| crowd.clients as usize));
    let mut silence = Silence::of(FAILED_AFTER_NS);
    let mut window: Option<Window> = None;
    loop {
        let came = server.serve(&mut |message| {
            clients.observe(message);
            answers
        })?;
        let counts = clients.counts();
        let mark = Mark { now_ns: now_ns(), messages: counts.messages, bytes: counts.bytes };
        if window.is_none() && counts.messages > 0 {
            window = Some(Window::new(job, mark.now_ns));
        }
        let due = window.as_mut().is_some_and(|window| clients.tick(window, mark));
        let so_far = || window.as_ref().map(|window| window.so_far(mark)).unwrap_or_default();
        let sent = expected(drains);
        let all_sent = sent.as_ref().map(|sent| sent.iter().sum());
        if silence.ends(came, all_sent, counts.messages).is_some() {
            let messages_by_client = clients.in_window();
            let counts = clients.finish(&sent.unwrap_or_default());
            return Ok(SideReport { counts, messages_by_client, ..so_far() });
        }
        if due {
            (around.progress)(&SideReport { counts, ..so_far() });
        }
    }
}

/// How much each client has sent in all, once that is known of all.
fn expected(drains: &[AtomicU64]) -> Option<Vec<u64>> {
    let of = |drain: &AtomicU64| Some(drain.load(Ordering::Relaxed)).filter(|&sent| sent != NOT_DRAINING);
    drains.iter().map(of).collect()
}

/// What the server knows of its clients.
struct Clients {
    size: usize,
    checks: Vec<Check>,
    /// Messages that are nobody's.
    damaged: u64,
    messages: u64,
    /// Messages of each when the window opened, and when it closed.
    opened: Vec<u64>,
    closed: Vec<u64>,
}

impl Clients {
    fn new(size: usize, count: usize) -> Self {
        let checks = (0..count).map(|client| Check::from(size, first_of(client))).collect();
        Self { size, checks, damaged: 0, messages: 0, opened: Vec::new(), closed: Vec::new() }
    }

    #[inline]
    fn observe(&mut self, message: &[u8]) {
        let client = number_of(message, self.size).map(|number| (number >> COUNT_BITS) as usize);
        match client.and_then(|client| self.checks.get_mut(client)) {
            Some(check) => {
                let before = check.counts().messages;
                check.observe(message);
                self.messages += check.counts().messages - before;
            }
            None => self.damaged += 1,
        }
    }

    /// Takes the time; whether progress is to be told.
    fn tick(&mut self, window: &mut Window, mark: Mark) -> bool {
        let (was_open, was_closed) = (window.is_open(), window.is_closed());
        let due = window.tick(mark);
        if window.is_open() && !was_open {
            self.opened = self.by_client();
        }
        if window.is_closed() && !was_closed {
            self.closed = self.by_client();
        }
        due
    }

    fn by_client(&self) -> Vec<u64> {
        self.checks.iter().map(|check| check.counts().messages).collect()
    }

    /// Messages of each client while the window was open; empty if it did not close.
    fn in_window(&self) -> Vec<u64> {
        self.closed.iter().zip(&self.opened).map(|(closed, opened)| closed - opened).collect()
    }

    /// A sum that costs little: this is asked for each time that something came.
    fn counts(&self) -> CheckCounts {
        CheckCounts {
            messages: self.messages,
            bytes: self.messages * self.size as u64,
            damaged: self.damaged,
            ..CheckCounts::default()
        }
    }

    /// What all is, now that nothing else will come of what each has `sent`.
    fn finish(self, sent: &[u64]) -> CheckCounts {
        let checks = self.checks.into_iter().zip(sent).enumerate();
        let counts = checks.map(|(client, (check, sent))| check.finish(first_of(client) + sent));
        let nobody = CheckCounts { damaged: self.damaged, ..CheckCounts::default() };
        counts.fold(nobody, CheckCounts::plus)
    }
}

/// All clients in one report. Their windows are of nearly the same length but not the same, so each counts by its rate.
pub(crate) fn together(reports: &[SideReport]) -> SideReport {
    let window_ns = reports.iter().map(|report| report.window_ns).max().unwrap_or(0);
    let scaled = |report: &SideReport, value: u64| match report.window_ns {
        0 => 0,
        own => (u128::from(value) * u128::from(window_ns) / u128::from(own)) as u64,
    };
    let sum = |value: fn(&SideReport) -> u64| -> u64 {
        reports.iter().map(|report| scaled(report, value(report))).sum()
    };
    let mut notes: Vec<String> = reports.iter().flat_map(|report| report.notes.clone()).collect();
    notes.sort();
    notes.dedup();
    SideReport {
        window_ns,
        messages: sum(|report| report.messages),
        bytes: sum(|report| report.bytes),
        cpu_ns: sum(|report| report.cpu_ns),
        // The machine's, which each has read.
        machine_busy_ns: reports.iter().filter_map(|report| report.machine_busy_ns).max(),
        sent: reports.iter().map(|report| report.sent).sum(),
        messages_by_client: reports.iter().map(|report| scaled(report, report.messages)).collect(),
        counts: reports.iter().fold(CheckCounts::default(), |sum, report| report.counts.plus(sum)),
        rtt_ns: Histogram::from_buckets(reports.iter().flat_map(|report| &report.rtt_ns)).buckets(),
        notes,
        ..SideReport::default()
    }
}

#[cfg(test)]
mod tests;
