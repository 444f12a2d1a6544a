//! Two measured processes, started and connected; every conversation with them has a deadline.
//!
//! A side that hangs is killed, and what it had told until then is kept.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::far::FarSample;
use super::side::{LOOK_EVERY, Launch, Side};
use crate::calibrate::Calibration;
use crate::clock::now_ns;
use crate::control::{Address, Event, Job, Order, SideReport, Task};
use crate::failover::{Cut, Look};
use crate::pss::CrowdMemory;
use crate::wait::WaitMode;
use crate::workload::ToolCost;

/// What one measurement gave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) sender: SideReport,
    pub(crate) receiver: SideReport,
    /// Senders and receivers of further pairs that went at the same time.
    pub(crate) further: Vec<(SideReport, SideReport)>,
    /// Of one server and its clients: the memory of all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) crowd_memory: Option<CrowdMemory>,
    /// The cuts of `failover`.
    pub(crate) cuts: Vec<Cut>,
    /// What had left over each link from time to time, of `failover`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) looks: Vec<Look>,
    /// Of a receiver on another machine: that machine during the sample.
    pub(crate) far: Option<FarSample>,
    /// How another system really waited.
    pub(crate) waits: Option<WaitMode>,
    /// What another system's figures must not be read without: its version, what carried it.
    pub(crate) remarks: Vec<String>,
    /// Why it did not come to its end; the reports then hold what was told until then.
    pub(crate) error: Option<String>,
}

impl Sample {
    /// Sender and receiver of every pair.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&SideReport, &SideReport)> {
        let further = self.further.iter().map(|(sender, receiver)| (sender, receiver));
        std::iter::once((&self.sender, &self.receiver)).chain(further)
    }
}

/// Longest time to start and to connect; a busy kernel may take seconds to let a process into a namespace.
pub(super) const START_MAX: Duration = Duration::from_secs(30);
/// Longest time beyond the window that the sender may take: SCTP that gets no answer asks again after 3 s, and then after 6.
pub(super) const OVERTIME_MAX: Duration = Duration::from_secs(15);
/// Longest time for what is under way to arrive.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(20);

/// Takes the machine's pulse in a process with the priority of the measured ones.
pub(super) fn pulse(launch: Launch) -> Result<Calibration, String> {
    let mut side = Side::start("calibration", launch, &Task::Calibrate)?;
    match side.next(START_MAX)? {
        Some(Event::Pulse(calibration)) => Ok(calibration),
        Some(other) => Err(format!("calibration: unexpected {other:?}")),
        None => Err(format!("calibration: no sign of life for {:.1} s, killed", START_MAX.as_secs_f64())),
    }
}

/// Takes what the instrument itself costs in a job, in a process with the priority of the measured ones.
pub(super) fn tool(launch: Launch, job: Job) -> Result<Option<ToolCost>, String> {
    let mut side = Side::start("instrument", launch, &Task::Tool(Box::new(job)))?;
    match side.next(START_MAX)? {
        Some(Event::Tool { cost }) => Ok(cost),
        Some(other) => Err(format!("instrument: unexpected {other:?}")),
        None => Err(format!("instrument: no sign of life for {:.1} s, killed", START_MAX.as_secs_f64())),
    }
}

/// The processes of one measurement: a receiver, and one sender as a rule.
pub(super) struct Pair<'a> {
    receiver: Option<Side>,
    senders: Vec<Side>,
    stop: &'a AtomicBool,
    watch: &'a mut dyn FnMut(&SideReport),
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Receiver,
    /// The only sender, or the first.
    Sender,
    /// One of several senders.
    SenderOf(usize),
}

impl<'a> Pair<'a> {
    /// Nothing runs yet. `watch` hears of the receiver's progress; `stop` ends every wait.
    pub(super) fn new(stop: &'a AtomicBool, watch: &'a mut dyn FnMut(&SideReport)) -> Self {
        Self { receiver: None, senders: Vec::new(), stop, watch }
    }

    /// Starts and connects both.
    pub(super) fn start(&mut self, receiver: (Launch, Job), sender: (Launch, Job)) -> Result<(), String> {
        let address = self.listening(receiver)?;
        self.connecting(sender, address)?;
        self.ready()
    }

    /// Starts a receiver and several senders; it has an address for each.
    pub(super) fn start_many(
        &mut self,
        receiver: (Launch, Job),
        senders: Vec<(Launch, Job)>,
    ) -> Result<(), String> {
        let addresses = self.listening(receiver)?;
        for (sender, address) in senders.into_iter().zip(addresses.split(' ')) {
            self.connecting(sender, address.to_owned())?;
        }
        self.ready()
    }

    /// Starts a receiver; where it listens.
    pub(super) fn listening(&mut self, receiver: (Launch, Job)) -> Result<String, String> {
        self.receiver = Some(Side::start("receiver", receiver.0, &Task::Play(Box::new(receiver.1)))?);
        match self.wait(Which::Receiver, START_MAX)? {
            Event::Listening { address } => Ok(address),
            other => Err(format!("receiver: unexpected {other:?}")),
        }
    }

    /// Starts a sender, which connects to there.
    pub(super) fn connecting(&mut self, sender: (Launch, Job), address: String) -> Result<(), String> {
        let mut side = Side::start("sender", sender.0, &Task::Play(Box::new(sender.1)))?;
        side.tell(&Address { address })?;
        self.senders.push(side);
        Ok(())
    }

    /// Waits until all are connected.
    pub(super) fn ready(&mut self) -> Result<(), String> {
        let senders = (0..self.senders.len()).map(Which::SenderOf);
        for which in senders.chain([Which::Receiver]).collect::<Vec<_>>() {
            match self.wait(which, START_MAX)? {
                Event::Ready => {}
                other => return Err(format!("unexpected {other:?}")),
            }
        }
        Ok(())
    }

    /// Lets all begin.
    pub(super) fn go(&mut self) -> Result<(), String> {
        self.tell(Which::Receiver, &Order::Go)?;
        self.senders.iter_mut().try_for_each(|sender| sender.tell(&Order::Go))
    }

    /// All have reported: how they end no longer matters, and dropping ends them for certain.
    pub(super) fn quit(&mut self) {
        for side in self.senders.iter_mut().chain(&mut self.receiver) {
            let _ = side.tell(&Order::Quit);
        }
    }

    /// What the receiver and the first sender have told so far.
    pub(super) fn sample(&self) -> Sample {
        let report = |side: Option<&Side>| side.map(|side| side.last.clone()).unwrap_or_default();
        Sample {
            sender: report(self.senders.first()),
            receiver: report(self.receiver.as_ref()),
            ..Sample::default()
        }
    }

    /// What every sender has told so far.
    pub(super) fn reports(&self) -> Vec<SideReport> {
        self.senders.iter().map(|sender| sender.last.clone()).collect()
    }

    /// The last report of one side.
    pub(super) fn report(&mut self, which: Which) -> Result<&mut SideReport, String> {
        Ok(&mut self.side(which)?.last)
    }

    /// The process of one side.
    pub(super) fn pid(&mut self, which: Which) -> Result<u32, String> {
        self.side(which)?.pid()
    }

    fn side(&mut self, which: Which) -> Result<&mut Side, String> {
        let side = match which {
            Which::Receiver => self.receiver.as_mut(),
            Which::Sender => self.senders.first_mut(),
            Which::SenderOf(number) => self.senders.get_mut(number),
        };
        side.ok_or_else(|| "side not started".to_owned())
    }

    /// Says something to one side.
    pub(super) fn tell(&mut self, which: Which, line: &impl Serialize) -> Result<(), String> {
        self.side(which)?.tell(line)
    }

    /// Waits for the next event of one side that is not progress.
    pub(super) fn wait(&mut self, which: Which, timeout: Duration) -> Result<Event, String> {
        let event = self.wait_until(which, timeout, |event| !matches!(event, Event::Progress(_)))?;
        event.ok_or_else(|| {
            let name = if which == Which::Receiver { "receiver" } else { "sender" };
            format!("{name}: no sign of life for {:.1} s, killed", timeout.as_secs_f64())
        })
    }

    /// Waits for an event of one side that `wanted` accepts, and hears the other side's complaints meanwhile. None:
    /// not within `timeout`.
    pub(super) fn wait_until(
        &mut self,
        which: Which,
        timeout: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Option<Event>, String> {
        let start_ns = now_ns();
        loop {
            match self.side(which)?.next(LOOK_EVERY)? {
                Some(event) if wanted(&event) => return Ok(Some(event)),
                None if u128::from(now_ns() - start_ns) > timeout.as_nanos() => return Ok(None),
                _ => {}
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            self.overhear_all_but(Some(which))?;
            if let Some(receiver) = &self.receiver {
                (self.watch)(&receiver.last);
            }
        }
    }

    /// Lets time pass and hears both sides' complaints; what else they say waits for whoever asks for it.
    pub(super) fn pass(&mut self, length: Duration) -> Result<(), String> {
        let start_ns = now_ns();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            self.overhear_all_but(None)?;
            let left = length.saturating_sub(Duration::from_nanos(now_ns() - start_ns));
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }

    /// What one side has said, if it has said something that is not progress; waits for nothing.
    pub(super) fn heard(&mut self, which: Which) -> Result<Option<Event>, String> {
        self.overhear_all_but(None)?;
        Ok(self.side(which)?.heard())
    }

    fn overhear_all_but(&mut self, which: Option<Which>) -> Result<(), String> {
        let asked = match which {
            Some(Which::Sender) => Some(0),
            Some(Which::SenderOf(number)) => Some(number),
            Some(Which::Receiver) | None => None,
        };
        for (number, sender) in self.senders.iter_mut().enumerate() {
            if Some(number) != asked {
                sender.overhear()?;
            }
        }
        match &mut self.receiver {
            Some(receiver) if which != Some(Which::Receiver) => receiver.overhear(),
            _ => Ok(()),
        }
    }
}
