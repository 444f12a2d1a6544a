//! Both sides of each workload over a protocol in memory that misbehaves on purpose, up to the JSON that tells of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::args::tests::parse;
use crate::args::{FlowClass, Load, Plan, ReadKind, SendKind};
use crate::calibrate::tests::pulses_for_tests;
use crate::control::Setup;
use crate::pace::Pace;
use crate::protocol::{Listener, Protocol};
use crate::report::{Case, Report, Series};
use crate::run::Sample;

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Every tenth message vanishes.
    Loses,
    /// Every tenth message comes twice.
    Duplicates,
    /// Every tenth message is overtaken by its successor.
    Reorders,
    /// Every tenth message has a wrong byte at its end.
    Damages,
    /// Takes no message for a while, once.
    Stalls,
}

/// What the report calls the protocol; the pipes are made by [`pair`].
struct Mock;

impl Protocol for Mock {
    fn name(&self) -> &'static str {
        "mock"
    }
    fn about(&self) -> &'static str {
        "in memory, with faults"
    }
    fn listen(&self, _setup: &Setup) -> io::Result<Box<dyn Listener>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn connect(&self, _setup: &Setup, _address: &str, _timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// How long [`Fault::Stalls`] takes nothing.
const STALL_NS: u64 = 400_000_000;

struct MockPipe {
    fault: Fault,
    count: u64,
    stalled_ns: Option<u64>,
    held: Option<Vec<u8>>,
    out: SyncSender<Vec<u8>>,
    input: Receiver<Vec<u8>>,
}

impl MockPipe {
    fn put(&self, message: Vec<u8>) -> bool {
        match self.out.try_send(message) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                std::thread::yield_now();
                false
            }
            // The other side has finished; what is sent now is nobody's loss.
            Err(TrySendError::Disconnected(_)) => true,
        }
    }
}

impl Pipe for MockPipe {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        if self.fault == Fault::Stalls && self.count == 100 {
            let since_ns = *self.stalled_ns.get_or_insert_with(now_ns);
            if now_ns() - since_ns < STALL_NS {
                std::thread::sleep(Duration::from_millis(1));
                return Ok(false);
            }
        }
        let tenth = self.count % 10 == 9;
        let mut bytes = message.to_vec();
        let done = match self.fault {
            Fault::Loses if tenth => true,
            Fault::Reorders if tenth && self.held.is_none() => {
                self.held = Some(bytes);
                true
            }
            Fault::Damages if tenth => {
                *bytes.last_mut().unwrap() ^= 1;
                self.put(bytes)
            }
            _ => self.put(bytes),
        };
        if !done {
            return Ok(false);
        }
        self.count += 1;
        let again = match self.fault {
            Fault::Duplicates if tenth => Some(message.to_vec()),
            Fault::Reorders if !tenth => self.held.take(),
            _ => None,
        };
        if let Some(bytes) = again {
            while !self.put(bytes.clone()) {}
        }
        Ok(true)
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        match self.input.recv_timeout(Duration::from_millis(10)) {
            Ok(message) => {
                sink(&message);
                Ok(1)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(0),
        }
    }
}

fn pair(fault: Fault) -> (MockPipe, MockPipe) {
    let (a, b) = (sync_channel(64), sync_channel(64));
    let pipe = |fault, out, input| MockPipe { fault, count: 0, stalled_ns: None, held: None, out, input };
    (pipe(fault, a.0, b.1), pipe(Fault::None, b.0, a.1))
}

/// Conditions without links.
pub(crate) fn setup_for_tests(size: usize) -> Setup {
    Setup {
        size,
        wait: WaitMode::Block,
        local: Vec::new(),
        devices: Vec::new(),
        socket_buffer_max: None,
        send: SendKind::Slice,
        read: ReadKind::Place,
        both_ways: false,
        class: FlowClass::Normal,
        prompt: false,
        flow: 0,
        cut: false,
        member_ports: 0,
        far: None,
    }
}

/// A job over a protocol that no list contains.
pub(crate) fn job_for_tests(setup: Setup) -> Job {
    Job {
        role: Role::Sender,
        protocol: "mock".to_owned(),
        workload: Workload::Stream,
        setup,
        warmup_ns: 0,
        duration_ns: 1,
        core: None,
        bytes_total: 0,
        pace: None,
        flows: 1,
        beside: None,
        lone: None,
        clock_offset_ns: 0,
        crowd: None,
    }
}

/// Plays both sides and gives the report's row of it.
fn measured(line: &str, fault: Fault) -> (Value, Sample) {
    let plan = parse(line).unwrap().plan().unwrap();
    let setup = Setup {
        wait: plan.points[0].wait,
        send: plan.send,
        read: plan.read,
        both_ways: plan.workload == Workload::PingPong,
        ..setup_for_tests(plan.points[0].size)
    };
    let job = |role| Job {
        role,
        workload: plan.workload,
        warmup_ns: plan.warmup_ns,
        duration_ns: plan.duration_ns,
        bytes_total: plan.bytes,
        pace: match plan.points[0].load {
            Load::Arrivals(per_s) => Some(Pace::per_second(per_s)),
            _ => None,
        },
        ..job_for_tests(setup.clone())
    };
    let tool = tool_cost(&job(Role::Sender)).unwrap();
    let (sender_pipe, receiver_pipe) = pair(fault);
    measured_over(&plan, &job, tool, [Box::new(sender_pipe), Box::new(receiver_pipe)], fault == Fault::None)
}

/// The same over these pipes.
fn measured_over(
    plan: &Plan,
    job: &(dyn Fn(Role) -> Job + Sync),
    tool: Option<ToolCost>,
    [mut sender_pipe, mut receiver_pipe]: [Box<dyn Pipe>; 2],
    reliable: bool,
) -> (Value, Sample) {
    let drain = AtomicU64::new(NOT_DRAINING);
    let resume = AtomicBool::new(false);
    let sample = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let around = Surroundings { drain: &drain, resume: &resume, progress: &mut |_| {} };
            play(&job(Role::Receiver), receiver_pipe.as_mut(), reliable, around).unwrap()
        });
        let never = AtomicU64::new(NOT_DRAINING);
        // A sender that stands still is what makes a receiver that had stopped reading read on.
        let mut progress = |report: &SideReport| {
            resume.fetch_or(report.blocked_ns > BLOCKED_NS_MIN, Ordering::Relaxed);
        };
        let around = Surroundings { drain: &never, resume: &resume, progress: &mut progress };
        let sender = play(&job(Role::Sender), sender_pipe.as_mut(), reliable, around).unwrap();
        drain.store(sender.sent, Ordering::Relaxed);
        Sample { sender, receiver: receiver.join().unwrap(), ..Sample::default() }
    });
    let mut series =
        Series::new(Case::new(plan, &Mock, &plan.environments[0], &plan.points[0]).with_tool(tool));
    series.add(0, sample.clone(), pulses_for_tests(50.0, 50.0));
    let mut report = Report::new();
    report.add(series);
    let document: Value = serde_json::from_str(&report.json()).unwrap();
    (document["results"][0].clone(), sample)
}

const STREAM: &str = "stream --size 64 --duration 0.05 --warmup 0.01";

fn faults(row: &Value) -> [u64; 4] {
    ["lost", "duplicated", "reordered", "damaged"].map(|name| row[name].as_u64().unwrap())
}

#[test]
fn an_honest_protocol_is_clean_and_all_of_it_is_counted() {
    let (row, sample) = measured(STREAM, Fault::None);
    assert_eq!(faults(&row), [0; 4]);
    assert_eq!(sample.receiver.counts.messages, sample.sender.sent);
    assert!(row["throughput_mbps"]["median"].as_f64().unwrap() > 0.0);
    assert_eq!(sample.receiver.bytes, sample.receiver.messages * 64);
    assert!(sample.receiver.messages < sample.receiver.counts.messages, "the warm-up is not in the window");
}

#[test]
fn a_protocol_that_loses_is_reported_as_such() {
    let (row, sample) = measured(STREAM, Fault::Loses);
    assert_eq!(faults(&row), [sample.sender.sent / 10, 0, 0, 0]);
}

#[test]
fn a_protocol_that_duplicates_is_reported_as_such() {
    let (row, sample) = measured(STREAM, Fault::Duplicates);
    let [lost, duplicated, reordered, damaged] = faults(&row);
    // The last copy may come after the receiver has all it waits for.
    let expected = sample.sender.sent / 10;
    assert!(duplicated == expected || duplicated + 1 == expected, "{duplicated} of {expected}");
    assert_eq!([lost, reordered, damaged], [0; 3]);
}

#[test]
fn a_protocol_that_reorders_is_reported_as_such() {
    let (row, sample) = measured(STREAM, Fault::Reorders);
    let [lost, duplicated, reordered, damaged] = faults(&row);
    // A message held back at the very end has no successor to follow.
    let held = u64::from(sample.sender.sent % 10 == 0);
    assert_eq!([lost, reordered], [held, sample.sender.sent / 10 - held]);
    assert_eq!([duplicated, damaged], [0; 2]);
}

#[test]
fn a_protocol_that_damages_is_reported_as_such() {
    let (row, sample) = measured(STREAM, Fault::Damages);
    let [lost, duplicated, reordered, damaged] = faults(&row);
    let expected = sample.sender.sent / 10;
    assert_eq!([lost, damaged], [expected; 2], "a damaged message did not arrive");
    assert_eq!([duplicated, reordered], [0; 2]);
}

#[test]
fn ping_pong_times_every_answer_within_the_window() {
    let (row, sample) = measured("pingpong --duration 0.05 --warmup 0.01", Fault::None);
    let timed: u64 = sample.sender.rtt_ns.iter().map(|(_, count)| count).sum();
    assert!(timed > 0 && timed < sample.sender.counts.messages, "warm-up answers are not timed");
    // The answer that closes the window is timed but lies on its edge.
    assert!(timed.abs_diff(sample.sender.messages) <= 1, "{timed} of {}", sample.sender.messages);
    assert!(row["latency_us"]["p50"]["median"].as_f64().unwrap() > 0.0);
    assert_eq!(faults(&row), [0; 4]);
}

#[test]
fn a_lost_ping_is_counted_and_not_timed() {
    let (row, sample) = measured("pingpong --duration 0.3 --warmup 0", Fault::Loses);
    let (lost, counts) = (row["lost"].as_u64().unwrap(), sample.sender.counts);
    let timed: u64 = sample.sender.rtt_ns.iter().map(|(_, count)| count).sum();
    assert_eq!(counts.messages + counts.reordered + lost, sample.sender.sent);
    assert!(lost > 0 && timed <= counts.messages, "the wait for a lost message is no round trip: {timed}");
}

#[test]
fn a_receiver_that_stops_reading_blocks_its_sender_and_gets_everything_afterwards() {
    let (row, sample) = measured("stalled --size 1024 --bytes 1M", Fault::None);
    assert_eq!(faults(&row), [0; 4]);
    assert_eq!((sample.receiver.counts.messages, sample.sender.sent), (1024, 1024));
    assert!(sample.sender.blocked_ns >= BLOCKED_NS_MIN, "{sample:?}");
    // The channel of the mock holds 64 messages.
    assert_eq!(row["sent_before_block_bytes"].as_u64(), Some(64 * 1024));
    assert!(row["memory_mib"]["receiver"]["blocked"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn an_idle_pair_ends_with_one_message_that_shows_it_was_connected() {
    let (row, sample) = measured("idle", Fault::None);
    assert_eq!((sample.sender.sent, sample.receiver.counts.messages), (1, 1));
    assert_eq!(faults(&row), [0; 4]);
}

/// Hands messages over as quickly as can be: nothing but a number goes from one side to the other.
struct Instant {
    passed: Arc<AtomicU64>,
    message: Vec<u8>,
    kept_back: u64,
    taken: u64,
}

impl Pipe for Instant {
    fn send(&mut self, _message: &[u8]) -> io::Result<bool> {
        self.kept_back += 1;
        // Seldom: else two cores would pass a cache line to and fro for each message, and that would be the limit.
        if self.kept_back < 256 { Ok(true) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<bool> {
        self.passed.fetch_add(std::mem::take(&mut self.kept_back), Ordering::Relaxed);
        Ok(true)
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let count = (self.passed.load(Ordering::Relaxed) - self.taken).min(64);
        for _ in 0..count {
            crate::check::stamp(&mut self.message, self.taken);
            sink(&self.message);
            self.taken += 1;
        }
        Ok(count as usize)
    }
}

#[test]
fn a_protocol_that_is_as_quick_as_the_instrument_is_limited_by_the_tool_and_a_slow_one_is_not() {
    // A window so short that a busy machine leaves both sides their cores for all of it every now and then.
    let plan = parse("stream --size 64 --duration 0.01 --warmup 0").unwrap().plan().unwrap();
    let setup = Setup { wait: WaitMode::Spin, ..setup_for_tests(64) };
    let job = |role| Job {
        role,
        warmup_ns: plan.warmup_ns,
        duration_ns: plan.duration_ns,
        ..job_for_tests(setup.clone())
    };
    let tool = tool_cost(&job(Role::Sender)).unwrap();
    let is_limited_by_the_tool = || {
        let passed = Arc::new(AtomicU64::new(0));
        let pipe = || -> Box<dyn Pipe> {
            Box::new(Instant { passed: passed.clone(), message: vec![0; 64], kept_back: 0, taken: 0 })
        };
        let (row, _) = measured_over(&plan, &job, tool, [pipe(), pipe()], true);
        assert!(row["tool_ns"]["receiver_ns"].as_f64() > Some(0.0), "{row:#}");
        row["limited_by"] == "tool"
    };
    assert!((0..100).any(|_| is_limited_by_the_tool()));
    // The channel of the mock costs many times what a stamp and a check do.
    let (row, _) = measured("pingpong --duration 0.05 --warmup 0.01", Fault::None);
    assert!(row.get("limited_by").is_none(), "{row:#}");
}

#[test]
fn what_waited_behind_a_stall_is_late_from_when_it_was_due_and_not_from_when_it_was_sent() {
    let (row, sample) = measured("openloop --arrivals 1000 --duration 1 --warmup 0", Fault::Stalls);
    let late = |buckets: &[(u64, u64)]| -> u64 {
        buckets.iter().filter(|(ns, _)| *ns > STALL_NS / 4).map(|(_, count)| count).sum()
    };
    let (corrected, raw) = (late(&sample.receiver.rtt_ns), late(&sample.receiver.raw_ns));
    // Of 400 messages that were due in those 400 ms, 300 are late by over 100; one was sent before.
    assert!(corrected >= 290, "{corrected}");
    assert!(raw < corrected / 2, "{raw} of {corrected}");
    let p99 = |name: &str| row[name]["p99"]["median"].as_f64().unwrap();
    assert!(p99("latency_us") > 300_000.0, "{row:#}");
    assert_eq!(faults(&row), [0; 4]);
}

#[test]
fn a_paced_sender_offers_what_it_was_told_to() {
    let (row, sample) = measured("openloop --arrivals 2000 --duration 0.4 --warmup 0", Fault::None);
    // Never more than was due; how much less depends on the machine.
    let ns = sample.sender.window_ns;
    assert!(sample.sender.messages <= 2 * ns / 1_000_000 + 100, "{} in {ns} ns", sample.sender.messages);
    assert_eq!(sample.receiver.counts.messages, sample.sender.sent);
    assert!(row["raw_latency_us"]["p50"]["median"].as_f64() <= row["latency_us"]["p50"]["median"].as_f64());
}

#[test]
fn a_sender_that_sleeps_tells_what_the_machine_did_in_its_window_once_that_is_over() {
    use WaitMode::{Block, Spin};
    for (role, workload, wait, told) in [
        (Role::Sender, Workload::Stream, Block, true),
        (Role::Sender, Workload::Stream, Spin, false),
        (Role::Receiver, Workload::Stream, Block, false),
        (Role::Sender, Workload::PingPong, Block, false),
    ] {
        let setup = Setup { wait, ..setup_for_tests(64) };
        let job = Job { role, workload, duration_ns: 1_000_000_000_000, ..job_for_tests(setup) };
        let mut window = Window::new(&job, 0);
        let mark = |now_ns| Mark { now_ns, messages: 0, bytes: 0 };
        window.tick(mark(1));
        assert_eq!(window.so_far(mark(2)).machine_busy_ns, None, "it is open");
        window.tick(mark(1_000_000_000_001));
        let busy_ns = window.so_far(mark(1_000_000_000_002)).machine_busy_ns;
        assert_eq!(busy_ns.is_some(), told, "{role:?} {workload:?} {wait:?}");
        // Hardly any of the time that is made up here has been spent idle.
        assert!(busy_ns.is_none_or(|busy_ns| busy_ns > 900_000_000_000), "{busy_ns:?}");
    }
}
