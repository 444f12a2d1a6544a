//! The two sides of stream and pingpong for drivers written in Rust: what `driver.c` is for those written in C, with
//! the same command line and the same line of JSON at the end. Used as a module by path.

use std::process::exit;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Job {
    pub sender: bool,
    pub pingpong: bool,
    pub intra: bool,
    /// What is lent in place is copied to memory of the program's.
    pub copies: bool,
    pub size: usize,
    pub warmup: Duration,
    pub duration: Duration,
    pub address: String,
    pub port: u16,
    core: Option<usize>,
}

/// What says which library this is.
pub struct About {
    pub name: &'static str,
    pub version: &'static str,
    pub over: &'static str,
    /// How it really waits.
    pub waits: &'static str,
}

/// One side of a connected pair, as the library gives it.
pub trait Link {
    /// Sends a message of the job's size that `fill` writes.
    fn send(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<(), String>;

    /// Waits for the next message and hands it to `take`.
    fn recv<T>(&mut self, take: impl FnOnce(&[u8]) -> T) -> Result<T, String>;

    /// Lets all that was sent leave.
    fn close(self) -> Result<(), String>;
}

/// The number of the last message, which ends the run.
const END: u64 = u64::MAX;
const LOOK_BYTES: usize = 64 * 1024;
const LOOK_MESSAGES_MAX: usize = 64;
/// How much longer than its window a sender goes on, so that the receiver's later window is full to its end.
const TAIL: Duration = Duration::from_millis(100);

/// Plays the side that the command line names; `open` connects.
pub fn main<L: Link>(name: &'static str, open: fn(&Job) -> Result<(L, About), String>) -> ! {
    let ended = arguments().and_then(|job| {
        claim_the_machine();
        let (link, about) = open(&job)?;
        let pinned = pin(&job);
        let report = play(&job, link)?;
        println!("{}", report.line(&job, &about, pinned));
        Ok(())
    });
    match ended {
        Ok(()) => exit(0),
        Err(error) => {
            eprintln!("peer-{name}: {error}");
            exit(1)
        }
    }
}

/// Says that a sender may be started.
pub fn ready() {
    println!("ready");
}

fn play<L: Link>(job: &Job, mut link: L) -> Result<Report, String> {
    let mut report = Report::new();
    match (job.pingpong, job.sender) {
        (false, true) => stream_out(job, &mut link, &mut report)?,
        (false, false) => stream_in(job, &mut link, &mut report)?,
        (true, true) => ask(job, &mut link, &mut report)?,
        (true, false) => answer(job, &mut link, &mut report)?,
    }
    link.close()?;
    Ok(report)
}

fn look_every(size: usize) -> u64 {
    (LOOK_BYTES / size).clamp(1, LOOK_MESSAGES_MAX) as u64
}

fn stream_out(job: &Job, link: &mut impl Link, report: &mut Report) -> Result<(), String> {
    report.start = Some(Instant::now());
    while report.closed.is_none_or(|closed| closed.at.elapsed() < TAIL) {
        for _ in 0..look_every(job.size) {
            link.send(|message| stamp(message, report.sent))?;
            report.sent += 1;
        }
        report.tick(job, report.sent);
    }
    link.send(|message| stamp(message, END))
}

fn stream_in(job: &Job, link: &mut impl Link, report: &mut Report) -> Result<(), String> {
    let mut own = vec![0; if job.copies { job.size } else { 0 }];
    loop {
        let number = link.recv(|message| {
            if message.len() == own.len() {
                own.copy_from_slice(message);
                return number_of(std::hint::black_box(&own), job.size);
            }
            number_of(message, job.size)
        })?;
        match number {
            None => report.damaged += 1,
            Some(END) => break,
            Some(number) => report.observe(number),
        }
        report.start.get_or_insert_with(Instant::now);
        if report.received.is_multiple_of(look_every(job.size)) {
            report.tick(job, report.received);
        }
    }
    // What ends before its window does is counted until then.
    if report.opened.is_some() && report.closed.is_none() {
        report.closed = Some(Mark::of(report.received));
    }
    Ok(())
}

fn ask(job: &Job, link: &mut impl Link, report: &mut Report) -> Result<(), String> {
    report.start = Some(Instant::now());
    while report.closed.is_none() {
        let asked = Instant::now();
        link.send(|message| stamp(message, report.sent))?;
        let answer = link.recv(|message| number_of(message, job.size))?;
        let took = asked.elapsed();
        match answer {
            None => report.damaged += 1,
            Some(number) if number != report.sent => {
                return Err(format!("message {} was answered by {number}", report.sent));
            }
            Some(_) => report.received += 1,
        }
        report.sent += 1;
        if report.opened.is_some() {
            report.rtt_ns.saturating_record(took.as_nanos() as u64);
        }
        report.tick(job, report.received);
    }
    link.send(|message| stamp(message, END))
}

fn answer(job: &Job, link: &mut impl Link, report: &mut Report) -> Result<(), String> {
    let mut copy = vec![0; job.size];
    loop {
        let number = link.recv(|message| {
            let number = number_of(message, job.size)?;
            copy.copy_from_slice(message);
            Some(number)
        })?;
        match number {
            None => report.damaged += 1,
            Some(END) => return Ok(()),
            Some(_) => {
                link.send(|message| message.copy_from_slice(&copy))?;
                report.received += 1;
                report.sent += 1;
            }
        }
    }
}

fn stamp(message: &mut [u8], number: u64) {
    message[..8].copy_from_slice(&number.to_le_bytes());
    if message.len() >= 16 {
        let end = message.len() - 8;
        message[end..].copy_from_slice(&number.to_le_bytes());
    }
}

/// The number of a message, if its length is right and both of its ends agree.
fn number_of(message: &[u8], size: usize) -> Option<u64> {
    let first = u64::from_le_bytes(*message.first_chunk::<8>()?);
    let last = u64::from_le_bytes(*message.last_chunk::<8>()?);
    (message.len() == size && (size < 16 || first == last)).then_some(first)
}

/// The counters at one moment.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    messages: u64,
    cpu: Duration,
}

impl Mark {
    fn of(messages: u64) -> Self {
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
        let time = |value: nix::sys::time::TimeVal| {
            Duration::new(value.tv_sec().unsigned_abs(), value.tv_usec() as u32 * 1000)
        };
        let cpu = usage.map_or(Duration::ZERO, |usage| time(usage.user_time()) + time(usage.system_time()));
        Self { at: Instant::now(), messages, cpu }
    }
}

/// What one side measures.
struct Report {
    start: Option<Instant>,
    opened: Option<Mark>,
    closed: Option<Mark>,
    sent: u64,
    expected: u64,
    received: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    damaged: u64,
    rtt_ns: Histogram<u64>,
}

impl Report {
    fn new() -> Self {
        Self {
            start: None,
            opened: None,
            closed: None,
            sent: 0,
            expected: 0,
            received: 0,
            lost: 0,
            duplicated: 0,
            reordered: 0,
            damaged: 0,
            rtt_ns: Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds are valid"),
        }
    }

    /// Takes the count; the length of the window counts from the moment it really opened.
    fn tick(&mut self, job: &Job, messages: u64) {
        let warm = self.start.is_some_and(|start| start.elapsed() >= job.warmup);
        match (self.opened, self.closed) {
            (None, _) if warm => self.opened = Some(Mark::of(messages)),
            (Some(opened), None) if opened.at.elapsed() >= job.duration => {
                self.closed = Some(Mark::of(messages));
            }
            _ => {}
        }
    }

    fn observe(&mut self, number: u64) {
        if number >= self.expected {
            self.lost += number - self.expected;
            self.expected = number + 1;
        } else if self.lost > 0 {
            // Missing until now; without gaps it can only be here a second time.
            self.lost -= 1;
            self.reordered += 1;
        } else {
            self.duplicated += 1;
            return;
        }
        self.received += 1;
    }

    fn line(&self, job: &Job, about: &About, pinned: bool) -> String {
        let window = self.opened.zip(self.closed);
        let messages = window.map_or(0, |(opened, closed)| closed.messages - opened.messages);
        let window_ns = window.map_or(0, |(opened, closed)| (closed.at - opened.at).as_nanos());
        let cpu_ns = window.map_or(0, |(opened, closed)| (closed.cpu - opened.cpu).as_nanos());
        let buckets = self.rtt_ns.iter_recorded();
        let buckets: Vec<String> =
            buckets.map(|step| format!("[{},{}]", step.value_iterated_to(), step.count_at_value())).collect();
        let role = if job.sender { "sender" } else { "receiver" };
        let (About { name, version, over, waits }, bytes) = (about, messages * job.size as u64);
        let Self { sent, received, lost, duplicated, reordered, damaged, .. } = self;
        format!(
            "{{\"peer\":\"{name}\",\"version\":\"{version}\",\"role\":\"{role}\",\"wait\":\"{waits}\",\
             \"over\":\"{over}\",\"sent\":{sent},\"window_ns\":{window_ns},\"messages\":{messages},\
             \"bytes\":{bytes},\"cpu_ns\":{cpu_ns},\"received\":{received},\"lost\":{lost},\
             \"duplicated\":{duplicated},\"reordered\":{reordered},\"damaged\":{damaged},\
             \"rtt_ns\":[{}],\"notes\":[{}]}}",
            buckets.join(","),
            if pinned { "" } else { "\"not pinned\"" },
        )
    }
}

/// A launcher may have made a session of its own, which then has no weight yet.
fn claim_the_machine() {
    // Where it is refused, whoever started this has noted the same about itself.
    let _ = std::fs::write("/proc/self/autogroup", "-20");
}

/// Only the measuring thread: the library's own threads were started before and stay free.
fn pin(job: &Job) -> bool {
    let Some(core) = job.core else { return true };
    let mut set = CpuSet::new();
    set.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).is_ok()
}

fn arguments() -> Result<Job, String> {
    let mut words = std::env::args().skip(1);
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing: see peers/driver.h"));
    let (role, workload) = (next("the role")?, next("the workload")?);
    let sender = match role.as_str() {
        "sender" => true,
        "receiver" => false,
        other => return Err(format!("no role: {other}")),
    };
    let pingpong = match workload.as_str() {
        "pingpong" => true,
        "stream" => false,
        other => return Err(format!("no workload: {other}")),
    };
    let mut job = Job {
        sender,
        pingpong,
        intra: false,
        copies: false,
        size: 0,
        warmup: Duration::ZERO,
        duration: Duration::ZERO,
        address: "127.0.0.1".to_owned(),
        port: 0,
        core: None,
    };
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name}: `{value}` is no number"));
        match name.as_str() {
            "--size" => job.size = number()? as usize,
            "--warmup-ns" => job.warmup = Duration::from_nanos(number()?),
            "--duration-ns" => job.duration = Duration::from_nanos(number()?),
            "--read" => job.copies = value == "copy",
            "--placement" => job.intra = value == "intra",
            "--address" => job.address = value,
            "--port" => job.port = u16::try_from(number()?).map_err(|error| format!("{name}: {error}"))?,
            "--sender-core" if sender => job.core = Some(number()? as usize),
            "--receiver-core" if !sender => job.core = Some(number()? as usize),
            "--sender-core" | "--receiver-core" | "--wait" | "--sender-address" => {}
            other => return Err(format!("unknown: {other}; see peers/driver.h")),
        }
    }
    match job.size {
        8..=0x0400_0000 if !job.duration.is_zero() && job.port > 0 => Ok(job),
        _ => Err("--size, --duration-ns or --port is missing or out of range: see peers/driver.h".to_owned()),
    }
}
