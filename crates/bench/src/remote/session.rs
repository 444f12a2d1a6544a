//! One client of the server, from its proof to its goodbye: at most one measured process at a time.

use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::channel::{Incoming, Outgoing};
use super::limits::{BEAT, Here, JOBS_MAX, ORDER_BYTES_MAX, ORDERS_MAX, Patience, admit};
use super::lines::Broken;
use super::message::{Ask, Tell, Welcome};
use crate::clock::{machine_ns, now_ns};
use crate::control::{Event, Order, Task};
use crate::measured::Measured;

/// How measured processes are started.
pub(super) type Launch<'a> = dyn Fn() -> Result<Command, String> + Sync + 'a;

/// What a session needs of its server.
pub(super) struct Around<'a> {
    pub(super) launch: &'a Launch<'a>,
    pub(super) here: Here,
    pub(super) patience: Patience,
    /// Whether the server is to end.
    pub(super) ends: &'a dyn Fn() -> bool,
}

/// How a session ended, and what it did.
pub(super) struct Outcome {
    /// Measured processes started.
    pub(super) jobs: u64,
    /// Why, unless the client said goodbye.
    pub(super) failure: Option<String>,
}

type Out = Arc<Mutex<Outgoing>>;

struct Session<'a> {
    around: Around<'a>,
    out: Out,
    incoming: Incoming,
    running: Option<Running>,
    /// Number of the last measured process.
    jobs: u64,
    /// Since when there is none, in ns.
    idle_ns: u64,
}

/// The measured process.
struct Running {
    job: u64,
    measured: Measured,
    started_ns: u64,
    /// Orders that it was told.
    orders: u32,
    /// Lives as long as its events are relayed.
    relayed: Weak<()>,
}

/// Why a session ends.
enum End {
    /// The client said goodbye.
    Goodbye,
    /// The server is to end.
    Stopped,
    /// The client broke a limit.
    Limit(String),
    /// The connection did.
    Broken(Broken),
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

/// Serves one client to its end.
pub(super) fn serve((out, incoming): (Outgoing, Incoming), around: Around) -> Outcome {
    let out = Arc::new(Mutex::new(out));
    let mut session = Session { around, out, incoming, running: None, jobs: 0, idle_ns: now_ns() };
    let end = session.run().err();
    // First of all, so that nothing that follows can hold it up.
    session.running = None;
    let (told, failure) = match end {
        None | Some(End::Goodbye) => (None, None),
        Some(End::Stopped) => {
            let reason = "the server was ended by whoever runs it".to_owned();
            (Some(reason.clone()), Some(reason))
        }
        Some(End::Limit(reason)) => (Some(reason.clone()), Some(reason)),
        Some(End::Broken(broken)) => (Some(format!("gave up: {broken}")), Some(broken.to_string())),
    };
    if let Some(reason) = told {
        // It may have gone.
        let _ = send(&session.out, &Tell::Bye { reason });
    }
    Outcome { jobs: session.jobs, failure }
}

impl Session<'_> {
    fn run(&mut self) -> Result<(), End> {
        self.say(&Tell::Welcome(Box::new(Welcome::here(self.around.here.addresses.clone()))))?;
        loop {
            if (self.around.ends)() {
                return Err(End::Stopped);
            }
            if let Some((ask, at_ns)) = self.incoming.next::<Ask>()? {
                self.hear(ask, at_ns)?;
            }
            self.look_at_the_time()?;
            self.look_at_the_process()?;
        }
    }

    fn hear(&mut self, ask: Ask, at_ns: u64) -> Result<(), End> {
        match ask {
            Ask::Clock { number } => {
                Ok(self.say(&Tell::Clock { number, received_ns: at_ns, sent_ns: machine_ns() })?)
            }
            Ask::Start { job, task } => self.start(job, task),
            Ask::Tell { job, line } => self.tell(job, line),
            Ask::End { job } => {
                self.end(job);
                Ok(())
            }
            Ask::Alive => Ok(()),
            Ask::Bye => Err(End::Goodbye),
        }
    }

    fn start(&mut self, job: u64, task: Task) -> Result<(), End> {
        if self.jobs == JOBS_MAX {
            return Err(End::Limit(format!("{JOBS_MAX} measured processes: no more for one connection")));
        }
        self.running = None;
        self.jobs += 1;
        let alive = Arc::new(());
        let relayed = Arc::downgrade(&alive);
        let started = admit(task, &self.around.here).and_then(|task| {
            let out = self.out.clone();
            Measured::start((self.around.launch)()?, &task, move |event| {
                let _alive = &alive;
                relay(&out, job, event)
            })
        });
        match started {
            Ok(measured) => {
                self.running = Some(Running { job, measured, started_ns: now_ns(), orders: 0, relayed });
                Ok(())
            }
            Err(reason) => Ok(self.say(&Tell::Ended { job, reason })?),
        }
    }

    fn tell(&mut self, job: u64, line: serde_json::Value) -> Result<(), End> {
        // Orders to a process that has just ended come too late and do no harm.
        let Some(running) = self.running.as_mut().filter(|running| running.job == job) else { return Ok(()) };
        let order: Order =
            serde_json::from_value(line).map_err(|error| Broken::NotUnderstood(error.to_string()))?;
        running.orders += 1;
        let length = serde_json::to_string(&order).map_or(usize::MAX, |text| text.len());
        if running.orders > ORDERS_MAX || length > ORDER_BYTES_MAX {
            return Err(End::Limit(format!(
                "more than {ORDERS_MAX} orders, or one of more than {ORDER_BYTES_MAX} bytes, to one measured process"
            )));
        }
        // If it does not listen any more it has ended, which is looked at anyway.
        let _ = running.measured.tell(&order);
        Ok(())
    }

    fn end(&mut self, job: u64) {
        if self.running.as_ref().is_some_and(|running| running.job == job) {
            self.running = None;
            self.idle_ns = now_ns();
        }
    }

    fn look_at_the_time(&mut self) -> Result<(), End> {
        let patience = &self.around.patience;
        if u128::from(self.incoming.quiet_ns()) > patience.silence.as_nanos() {
            return Err(Broken::Silent(patience.silence.as_secs_f64()).into());
        }
        let past = |since_ns: u64, limit: Duration| u128::from(now_ns() - since_ns) > limit.as_nanos();
        match &self.running {
            Some(running) if past(running.started_ns, patience.job) => {
                let limit_s = patience.job.as_secs_f64();
                return Err(End::Limit(format!("a measured process of more than {limit_s:.1} s: killed")));
            }
            None if past(self.idle_ns, patience.idle) => {
                let limit_s = patience.idle.as_secs_f64();
                return Err(End::Limit(format!(
                    "nothing was asked for in {limit_s:.1} s: others may want to measure"
                )));
            }
            _ => {}
        }
        let beat = u128::from(lock(&self.out).quiet_ns()) > BEAT.as_nanos();
        if beat { Ok(self.say(&Tell::Alive)?) } else { Ok(()) }
    }

    /// Tells of a process that has ended by itself.
    fn look_at_the_process(&mut self) -> Result<(), End> {
        if let Some(running) = self.running.take_if(|running| running.relayed.strong_count() == 0) {
            let Running { job, mut measured, .. } = running;
            self.idle_ns = now_ns();
            self.say(&Tell::Ended { job, reason: measured.epitaph() })?;
        }
        Ok(())
    }

    fn say(&self, tell: &Tell) -> Result<(), Broken> {
        send(&self.out, tell)
    }
}

/// Hands an event on; false once nobody is there to take it.
fn relay(out: &Out, job: u64, event: Event) -> bool {
    match send(out, &Tell::Event { job, event: Box::new(event) }) {
        Ok(()) => true,
        Err(Broken::TooLong) => {
            let error = "its report is longer than a control line may be".to_owned();
            send(out, &Tell::Event { job, event: Box::new(Event::Failed { error }) }).is_ok()
        }
        Err(_) => false,
    }
}

fn send(out: &Out, tell: &Tell) -> Result<(), Broken> {
    lock(out).send(tell)
}

fn lock(out: &Out) -> MutexGuard<'_, Outgoing> {
    // Half a line ends the connection, so whoever panicked left it whole or closed.
    out.lock().unwrap_or_else(PoisonError::into_inner)
}
