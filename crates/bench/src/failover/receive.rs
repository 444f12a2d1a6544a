//! The receiving side of two flows: takes the time of every message, counts both, and judges cuts on demand.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::goodput::{Sizes, goodput, is_told};
use super::judge::{Delivery, Judgement, Stall, calm_lateness_ns, judge};
use super::stall::StallWatch;
use super::timeline::Timeline;
use super::{Scene, last_words};
use crate::check::{Check, CheckCounts, number_of, times_ns};
use crate::clock::{machine_ns, now_ns};
use crate::control::{Event, Job, Order, SideReport, Span};
use crate::protocol::Pipe;
use crate::workload::{FAILED_AFTER_NS, Histogram, NOT_DRAINING, Silence};

/// How long a message may be missing after the link's return until the cut is judged without it.
const MISSING_NS_MAX: u64 = 8_000_000_000;

/// What arrived, the messages since the last cut that was judged.
#[derive(Default)]
struct Log {
    /// The watched flow's messages.
    watched: Mutex<Vec<Delivery>>,
    /// When each message of the bulk was there, in ns.
    bulk_ns: Mutex<Vec<u64>>,
    /// Of the whole run.
    timeline: Mutex<Timeline>,
}

impl Log {
    fn add_bulk(&self, delivered_ns: u64, bytes: usize) {
        locked(&self.timeline).add(delivered_ns, bytes, 0);
        locked(&self.bulk_ns).push(delivered_ns);
    }
}

/// Receives both flows until everything that was sent has come; judges cuts meanwhile.
pub(super) fn receive(
    scene: Scene,
    scheduled: &mut dyn Pipe,
    bulk: &mut dyn Pipe,
) -> Result<SideReport, String> {
    let Scene { job, beside, orders, say } = scene;
    let timeline = Mutex::new(Timeline::new(job.to_sender_ns(machine_ns())));
    let log = Log { timeline, ..Log::default() };
    let expected = [AtomicU64::new(NOT_DRAINING), AtomicU64::new(NOT_DRAINING)];
    let stalls = StallWatch::start(&beside.cores);
    let start_ns = now_ns();
    let note = |message: &[u8], delivered_ns: u64| {
        if let (Some(number), Some([scheduled_ns, begun_ns])) =
            (number_of(message, message.len()), times_ns(message))
        {
            // What is due and what is cut is told by the sender's clock.
            let delivered_ns = job.to_sender_ns(delivered_ns);
            let late_ns = delivered_ns.saturating_sub(scheduled_ns);
            locked(&log.timeline).add(delivered_ns, job.setup.size, late_ns);
            locked(&log.watched).push(Delivery { number, scheduled_ns, begun_ns, delivered_ns });
        }
    };
    let note_bulk =
        |_: &[u8], delivered_ns: u64| log.add_bulk(job.to_sender_ns(delivered_ns), beside.bulk.size);
    let judge = Judge {
        log: &log,
        stalls: &stalls,
        job,
        sizes: Sizes { watched: job.setup.size, bulk: beside.bulk.size },
    };
    std::thread::scope(|scope| {
        let flows = [
            scope.spawn(|| take(scheduled, job.setup.size, &expected[0], note)),
            scope.spawn(|| take(bulk, beside.bulk.size, &expected[1], note_bulk)),
        ];
        let mut calm = Histogram::new();
        while flows.iter().any(|flow| !flow.is_finished()) {
            match orders.recv_timeout(Duration::from_millis(50)) {
                Ok(Order::Judge(span)) => say(&Event::Judged(judge.judged(span, &mut calm))),
                Ok(Order::DrainFlows { expected: sent }) => {
                    expected.iter().zip(sent).for_each(|(place, sent)| place.store(sent, Ordering::Relaxed));
                }
                _ => {}
            }
            if let Some(failed) = flows.iter().position(|flow| flow.is_finished())
                && expected[failed].load(Ordering::Relaxed) == NOT_DRAINING
            {
                // Without the other flow's end, nothing would end this one.
                expected.iter().for_each(|place| place.store(0, Ordering::Relaxed));
            }
        }
        let [watched, bulk] = flows.map(|flow| flow.join().map_err(|panic| last_words(panic.as_ref())));
        let failed = |error: io::Error| format!("{}: {error}", job.protocol);
        let (watched, bulk) = (watched?.map_err(failed)?, bulk?.map_err(failed)?);
        Ok(SideReport {
            window_ns: now_ns() - start_ns,
            messages: bulk.messages,
            bytes: bulk.bytes,
            counts: watched,
            bulk_counts: Some(bulk),
            rtt_ns: calm.buckets(),
            stalls: Some(stalls.summary()),
            timeline: Some(locked(&log.timeline).clone()),
            notes: stalls.notes(),
            ..SideReport::default()
        })
    })
}

/// Takes messages until as many came as were sent, or none for a long time. `note` gets each that is whole and new,
/// and when it came.
fn take(
    pipe: &mut dyn Pipe,
    size: usize,
    expected: &AtomicU64,
    note: impl Fn(&[u8], u64),
) -> io::Result<CheckCounts> {
    let mut check = Check::of_contents(size);
    let mut silence = Silence::of(FAILED_AFTER_NS);
    loop {
        let count = pipe.recv(&mut |message| {
            let (delivered_ns, before) = (machine_ns(), check.counts().messages);
            check.observe(message);
            if check.counts().messages > before {
                note(message, delivered_ns);
            }
        })?;
        let sent = Some(expected.load(Ordering::Relaxed)).filter(|&sent| sent != NOT_DRAINING);
        if let Some(sent) = silence.ends(count, sent, check.counts().messages) {
            return Ok(check.finish(sent));
        }
    }
}

/// What cuts are judged by.
struct Judge<'a> {
    log: &'a Log,
    stalls: &'a StallWatch,
    job: &'a Job,
    sizes: Sizes,
}

impl Judge<'_> {
    /// Judges one cut once every message has come that it needs, and forgets what is then judged.
    fn judged(&self, span: Span, calm: &mut Histogram) -> Judgement {
        while !self.is_complete(span) && !self.is_given_up(span) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // The goodput first: of what it counts, messages due after the return are forgotten later than this cut.
        let bulk_ns = std::mem::take(&mut *locked(&self.log.bulk_ns));
        let goodput = goodput(&bulk_ns, &locked(&self.log.watched), self.sizes, span, self.sender_ns());
        let deliveries = self.taken(span);
        calm_lateness_ns(&deliveries, span).for_each(|late_ns| calm.record(late_ns));
        let by_sender = |stall: Stall| Stall {
            from_ns: self.job.to_sender_ns(stall.from_ns),
            until_ns: self.job.to_sender_ns(stall.until_ns),
        };
        let stalls: Vec<Stall> = self.stalls.found().into_iter().map(by_sender).collect();
        Judgement { goodput, ..judge(&deliveries, &stalls, span, self.sender_ns()) }
    }

    /// Whether every watched message due before the link's return is here, and the bulk's that closes the count.
    fn is_complete(&self, span: Span) -> bool {
        let watched =
            locked(&self.log.watched).last().is_some_and(|last| last.scheduled_ns > span.restored_ns);
        watched && is_told(&locked(&self.log.bulk_ns), span)
    }

    fn is_given_up(&self, span: Span) -> bool {
        self.sender_ns().saturating_sub(span.restored_ns) > MISSING_NS_MAX
    }

    /// The watched flow's messages; those due after the link's return stay for the next judgement.
    fn taken(&self, span: Span) -> Vec<Delivery> {
        let mut log = locked(&self.log.watched);
        let next = log.iter().filter(|delivery| delivery.scheduled_ns > span.restored_ns).copied().collect();
        std::mem::replace(&mut *log, next)
    }

    fn sender_ns(&self) -> u64 {
        self.job.to_sender_ns(machine_ns())
    }
}

fn locked<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    // Times that were noted are whole whoever panicked beside them.
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
