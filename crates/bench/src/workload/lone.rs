//! One message alone, on links whose token buckets are empty.
//!
//! A bucket that is full lets a message of its depth pass at once, whatever the link's rate: on a testbed at rest the time of
//! a single message says nothing of how its pieces are shared among links. So each timed message comes behind *filler* of the
//! same protocol, which empties the buckets; the filler is waited for, what it left is taken out ([`crate::drain`]), and
//! then the message leaves at once.

use std::io;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{FAILED_AFTER_NS, Histogram, Mark, QUESTION_BYTES, Silence, Surroundings, Window};
use crate::buckets::Buckets;
use crate::check::{Check, number_of, stamp, stamp_times, times_ns};
use crate::clock::{machine_ns, now_ns};
use crate::control::{Job, SideReport};
use crate::drain::{Drain, sinks};
use crate::model::{least_ns, wire_bytes};
use crate::pace::wait_until;
use crate::protocol::Pipe;

/// What the two sides of `lone` are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoneJob {
    /// The receiver's addresses on the links that the protocol uses, from the first.
    pub sinks: Vec<IpAddr>,
    /// How long these links are delayed, in us.
    pub delays_us: Vec<u32>,
    /// Payload of a full packet of the protocol, in bytes.
    pub packet_payload: usize,
    /// Messages of filler before each timed one.
    pub filler: u64,
}

impl LoneJob {
    /// How much later than by the nearest link all arrives by each.
    fn behind_ns(&self) -> impl Iterator<Item = f64> {
        let least_us = self.delays_us.iter().copied().min().unwrap_or(0);
        self.delays_us.iter().map(move |delay_us| f64::from(delay_us - least_us) * 1e3)
    }
}

/// How lone messages stand to the least time that their links allow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoneTimes {
    /// Messages timed.
    pub messages: u64,
    /// Time of one small message the other way, median, in ns.
    pub base_ns: f64,
    /// That, and the least time in which the message's packets pass the buckets, median, in ns.
    pub ideal_ns: f64,
    /// The time by the least time, median over the messages.
    pub to_ideal: f64,
    /// Messages before which a bucket was not empty.
    pub not_emptied: u64,
}

/// The side that sends, and knows all times: the other one tells when a message was whole.
pub(super) fn send(job: &Job, pipe: &mut dyn Pipe, around: Surroundings) -> io::Result<SideReport> {
    let lone = lone_of(job)?;
    let buckets = Buckets::of(job.setup.devices.get(..lone.sinks.len()).unwrap_or_default())?;
    let drain = Drain::new(&job.setup.local, &lone.sinks)?;
    send_past(job, pipe, buckets, &drain, around)
}

fn lone_of(job: &Job) -> io::Result<&LoneJob> {
    job.lone.as_ref().ok_or_else(|| io::Error::other("a lone message without its job"))
}

fn send_past(
    job: &Job,
    pipe: &mut dyn Pipe,
    mut buckets: Buckets,
    drain: &Drain,
    around: Surroundings,
) -> io::Result<SideReport> {
    let lone = lone_of(job)?;
    let mut asker = Asker { pipe, message: vec![0x5A; job.setup.size], sent: 0 };
    let wire = wire_bytes(job.setup.size, lone.packet_payload);
    let mut times = Times::default();
    let mut window = Window::new(job, now_ns());
    loop {
        wait_until(machine_ns() + buckets.rest_ns(), job.setup.wait, u64::MAX);
        buckets.are_full()?;
        for _ in 0..lone.filler {
            asker.send()?;
        }
        buckets.look()?;
        asker.answer()?;
        drain.empty(&mut buckets)?;
        let asked_ns = machine_ns();
        let mut lanes = buckets.lanes(asked_ns);
        for (lane, behind_ns) in lanes.iter_mut().zip(lone.behind_ns()) {
            lane.behind_ns = behind_ns;
        }
        asker.send()?;
        let [arrived_ns, answered_ns] = asker.answer()?;
        let small_ns = machine_ns().saturating_sub(answered_ns);
        if window.is_open() {
            times.took_ns.push((arrived_ns.saturating_sub(asked_ns), least_ns(&lanes, wire)));
            times.small_ns.push(small_ns as f64);
            times.not_emptied += u64::from(!buckets.are_empty(&lanes));
        }
        let messages = times.took_ns.len() as u64;
        let mark = Mark { now_ns: now_ns(), messages, bytes: messages * job.setup.size as u64 };
        let report = |report| times.report(SideReport { sent: asker.sent, ..report });
        if let Some(done) = window.round(mark, around.progress, report) {
            return Ok(done);
        }
    }
}

#[derive(Default)]
struct Times {
    /// What each message took, and the least time in which its packets pass.
    took_ns: Vec<(u64, f64)>,
    /// What the answers took.
    small_ns: Vec<f64>,
    not_emptied: u64,
}

impl Times {
    fn report(&self, report: SideReport) -> SideReport {
        let mut histogram = Histogram::new();
        self.took_ns.iter().for_each(|(took_ns, _)| histogram.record(*took_ns));
        SideReport { rtt_ns: histogram.buckets(), lone: self.summary(), ..report }
    }

    fn summary(&self) -> Option<LoneTimes> {
        let base_ns = crate::stats::median(&self.small_ns)?;
        let ideal_ns: Vec<f64> = self.took_ns.iter().map(|(_, least_ns)| base_ns + least_ns).collect();
        let took =
            self.took_ns.iter().zip(&ideal_ns).map(|((took_ns, _), ideal_ns)| *took_ns as f64 / ideal_ns);
        Some(LoneTimes {
            messages: self.took_ns.len() as u64,
            base_ns,
            to_ideal: crate::stats::median(&took.collect::<Vec<f64>>())?,
            ideal_ns: crate::stats::median(&ideal_ns)?,
            not_emptied: self.not_emptied,
        })
    }
}

/// The sending end.
struct Asker<'a> {
    pipe: &'a mut dyn Pipe,
    message: Vec<u8>,
    sent: u64,
}

impl Asker<'_> {
    fn send(&mut self) -> io::Result<()> {
        stamp(&mut self.message, self.sent);
        send_whole(self.pipe, &self.message)?;
        self.sent += 1;
        Ok(())
    }

    /// Waits for the answer to the last message; when that was whole there, and when the answer was sent.
    fn answer(&mut self) -> io::Result<[u64; 2]> {
        let (wanted, since_ns) = (self.sent - 1, now_ns());
        let mut times = None;
        while times.is_none() {
            self.pipe.recv(&mut |answer| {
                if number_of(answer, QUESTION_BYTES) == Some(wanted) {
                    times = times_ns(answer);
                }
            })?;
            if now_ns() - since_ns > FAILED_AFTER_NS {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no answer to message {wanted}"),
                ));
            }
        }
        times.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// The side that receives: answers the last message of filler, and the one behind it.
pub(super) fn receive(job: &Job, pipe: &mut dyn Pipe, around: Surroundings) -> io::Result<SideReport> {
    let (lone, _sinks) = (lone_of(job)?, sinks(&job.setup.local)?);
    let size = job.setup.size;
    let mut check = Check::new(size);
    let mut answer = vec![0x5A; QUESTION_BYTES];
    let mut silence = Silence::of(FAILED_AFTER_NS);
    let mut wanted: Vec<(u64, u64)> = Vec::new();
    loop {
        let came = pipe.recv(&mut |message| {
            check.observe(message);
            let round = lone.filler + 1;
            wanted.extend(
                number_of(message, size)
                    .filter(|number| number % round >= round - 2)
                    .map(|number| (number, machine_ns())),
            );
        })?;
        for (number, arrived_ns) in wanted.drain(..) {
            stamp(&mut answer, number);
            stamp_times(&mut answer, [arrived_ns, machine_ns()]);
            send_whole(pipe, &answer)?;
        }
        if let Some(expected) = silence.ends(came, around.drain_expected(), check.counts().messages) {
            return Ok(SideReport { counts: check.finish(expected), ..SideReport::default() });
        }
    }
}

fn send_whole(pipe: &mut dyn Pipe, message: &[u8]) -> io::Result<()> {
    let since_ns = now_ns();
    while !pipe.send(message)? {
        if now_ns() - since_ns > FAILED_AFTER_NS {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a message is not taken"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;
    use crate::buckets::{Count, Shape};
    use crate::workload::{NOT_DRAINING, job_for_tests, setup_for_tests};

    /// Answers at once, as the receiving side would.
    struct Mirror {
        filler: u64,
        answers: Vec<[u64; 3]>,
        received: Vec<u64>,
    }

    impl Pipe for Mirror {
        fn send(&mut self, message: &[u8]) -> io::Result<bool> {
            let number = number_of(message, message.len()).unwrap();
            self.received.push(number);
            if number % (self.filler + 1) >= self.filler - 1 {
                self.answers.push([number, machine_ns(), machine_ns()]);
            }
            Ok(true)
        }

        fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
            let mut answer = [0; QUESTION_BYTES];
            for [number, arrived_ns, answered_ns] in self.answers.drain(..) {
                stamp(&mut answer, number);
                stamp_times(&mut answer, [arrived_ns, answered_ns]);
                sink(&answer);
            }
            Ok(0)
        }
    }

    #[test]
    fn each_timed_message_comes_behind_filler_and_what_was_left_in_the_buckets_is_told() {
        let lone = LoneJob { sinks: Vec::new(), delays_us: Vec::new(), packet_payload: 1_432, filler: 3 };
        let job = Job { lone: Some(lone), duration_ns: 2_000_000, ..job_for_tests(setup_for_tests(64)) };
        let mut mirror = Mirror { filler: 3, answers: Vec::new(), received: Vec::new() };
        // Nothing ever leaves this bucket, so that it is full before every message.
        let shape = Shape { rate: 1e9, burst: 5_000.0 };
        let nowhere = Drain::new(&[], &[]).unwrap();
        let buckets = Buckets::new(vec![shape], Box::new(|| Ok(vec![Count::default()])));
        let (drain, resume) = (AtomicU64::new(NOT_DRAINING), AtomicBool::new(false));
        let around = Surroundings { drain: &drain, resume: &resume, progress: &mut |_| {} };
        let report = send_past(&job, &mut mirror, buckets, &nowhere, around).unwrap();
        let times = report.lone.unwrap();
        assert!(times.messages > 0 && times.messages == report.messages, "{times:?}");
        assert_eq!(times.not_emptied, times.messages);
        assert_eq!(report.sent % 4, 0, "three of filler and the one that is timed");
        assert_eq!(mirror.received, (0..report.sent).collect::<Vec<_>>());
    }

    #[test]
    fn a_link_is_behind_by_how_much_more_it_is_delayed() {
        let lone = LoneJob { sinks: Vec::new(), delays_us: vec![3, 1, 1], packet_payload: 1, filler: 1 };
        assert_eq!(lone.behind_ns().collect::<Vec<_>>(), [2_000.0, 0.0, 0.0]);
    }

    #[test]
    fn the_least_time_holds_what_a_small_message_takes() {
        let times = Times {
            took_ns: vec![(3_000, 1_000.0), (6_000, 2_000.0), (9_000, 2_000.0)],
            small_ns: vec![400.0, 500.0, 9_000.0],
            not_emptied: 1,
        };
        let summary = times.summary().unwrap();
        assert_eq!((summary.base_ns, summary.ideal_ns, summary.to_ideal), (500.0, 2_500.0, 2.4));
        assert_eq!(Times::default().summary(), None);
    }
}
