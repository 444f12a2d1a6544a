//! Subscriptions: a program asks once, and is told from then on.

use crate::attach::Tie;
use crate::clock::now_ns;
use crate::config::Progress;
use crate::error::{SubscribeError, UpdateError};
use crate::host::Host;
use crate::node::{Home, Shared};
use crate::readiness::Readiness;
use crate::wait::{Sleeper, Slept};
use polyrail_proto::service::{SubscriptionId, Topic, Update};
use polyrail_sys::eventfd::EventFd;
use polyrail_sys::poll::PollSet;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// How long a thread that is not the poller sleeps where only threads like it drive: the poller may leave its seat
/// without a word.
const NO_SEAT_NS: u64 = 2_000_000;

/// A standing question about services, nodes or links: see [`Node::subscribe`](crate::Node::subscribe).
///
/// First comes what there is, then [`Update::SnapshotEnd`], then every change in the order in which this node learned of
/// it. Who reads too slowly gets [`Update::Overflow`] in place of the changes that waited: he forgets what he was told,
/// and a new snapshot follows. Dropping it ends it.
pub struct Subscription {
    shared: Arc<Shared>,
    source: Source,
}

/// Where its updates come from.
enum Source {
    Own(Own),
    /// The node is of another process, which sends them.
    Other(Tie),
}

/// Those of an engine in this process.
struct Own {
    home: Arc<Home>,
    id: SubscriptionId,
    bell: Arc<EventFd>,
    readiness: Option<Readiness>,
    asleep: PollSet,
}

impl Subscription {
    pub(crate) fn new(
        shared: Arc<Shared>,
        topic: Topic,
        timeout: Option<Duration>,
    ) -> Result<Subscription, SubscribeError> {
        if shared.host.is_forked() {
            return Err(SubscribeError::Forked);
        }
        let timeout_ns = timeout.map(|span| span.as_nanos().min(u64::MAX as u128) as u64);
        let source = match &shared.host {
            Host::Own(home) => Source::Own(Own::new(home.clone(), topic, timeout_ns)?),
            Host::Other(attached) => Source::Other(attached.subscribe(topic, timeout_ns)?),
        };
        Ok(Subscription { shared, source })
    }

    /// The next update; waits for it.
    ///
    /// # Errors
    /// The subscription is over, or the node is closed.
    #[expect(clippy::should_implement_trait, reason = "it waits, and it fails")]
    pub fn next(&mut self) -> Result<Update, UpdateError> {
        loop {
            if let Some(update) = self.next_until(None)? {
                return Ok(update);
            }
        }
    }

    /// The next update, or `None` after `timeout`.
    ///
    /// # Errors
    /// As for [`Subscription::next`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Update>, UpdateError> {
        let span = timeout.as_nanos().min(u64::MAX as u128 / 2) as u64;
        self.next_until(Some(now_ns().saturating_add(span)))
    }

    /// The next update if there is one, or if work that waits for this thread gives one.
    ///
    /// # Errors
    /// As for [`Subscription::next`].
    pub fn try_next(&mut self) -> Result<Option<Update>, UpdateError> {
        self.check_fork()?;
        match &self.source {
            Source::Own(own) => own.try_next(),
            Source::Other(tie) => tie.update(Some(0)),
        }
    }

    /// A descriptor that becomes readable when there may be an update, or work for the engine: then call `try_next` until
    /// it gives `None`. Wait for it to be readable, but do not read from it. It is the subscription's and is closed with
    /// it.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn fd(&mut self) -> io::Result<RawFd> {
        match &mut self.source {
            Source::Own(own) => own.fd(),
            Source::Other(tie) => Ok(tie.as_raw_fd()),
        }
    }

    fn next_until(&mut self, until_ns: Option<u64>) -> Result<Option<Update>, UpdateError> {
        self.check_fork()?;
        match &mut self.source {
            Source::Own(own) => own.next_until(until_ns),
            Source::Other(tie) => tie.update(until_ns.map(|until| until.saturating_sub(now_ns()))),
        }
    }

    fn check_fork(&self) -> Result<(), UpdateError> {
        if self.shared.host.is_forked() { Err(UpdateError::Forked) } else { Ok(()) }
    }
}

impl Own {
    fn new(home: Arc<Home>, topic: Topic, timeout_ns: Option<u64>) -> Result<Own, SubscribeError> {
        let bell = EventFd::new().map_err(|error| SubscribeError::System(error.to_string()))?;
        let bell = Arc::new(bell);
        // There is a snapshot to read.
        bell.signal();
        let id = {
            let mut engine = home.drive.engine();
            let id = engine.subscribe(now_ns(), topic, timeout_ns)?;
            engine.watch_subscription(id, bell.clone());
            id
        };
        // Whoever sleeps may have to wake earlier.
        home.drive.inline();
        Ok(Own { home, id, bell, readiness: None, asleep: PollSet::default() })
    }

    fn try_next(&self) -> Result<Option<Update>, UpdateError> {
        if let Some(update) = self.take()? {
            return Ok(Some(update));
        }
        self.home.drive.inline();
        self.take_or_clear()
    }

    fn fd(&mut self) -> io::Result<RawFd> {
        if let Some(readiness) = &self.readiness {
            return Ok(readiness.fd());
        }
        let readiness = Readiness::with(self.home.drive.fd()?, self.bell.clone())?;
        Ok(self.readiness.insert(readiness).fd())
    }

    fn take(&self) -> Result<Option<Update>, UpdateError> {
        Ok(self.home.drive.engine().poll_subscription(self.id)?)
    }

    /// The next update; if there is none, the bell is silent until there is.
    fn take_or_clear(&self) -> Result<Option<Update>, UpdateError> {
        if let Some(update) = self.take()? {
            return Ok(Some(update));
        }
        self.bell.clear();
        // What came before the bell was silenced is found now.
        self.take()
    }

    fn next_until(&mut self, until_ns: Option<u64>) -> Result<Option<Update>, UpdateError> {
        self.home.drive.inline();
        loop {
            if let Some(update) = self.take_or_clear()? {
                return Ok(Some(update));
            }
            if self.home.drive.is_stopping() {
                return Err(UpdateError::Closed);
            }
            if until_ns.is_some_and(|until| now_ns() >= until) {
                return Ok(None);
            }
            match self.home.config.progress {
                // The helper drives, or whoever keeps it from driving does.
                Progress::Auto => self.sleep_until(until_ns),
                Progress::Manual => self.drive_until(until_ns),
            }
        }
    }

    /// Sleeps on the engine's descriptors, or at the bell while another thread does.
    fn drive_until(&mut self, until_ns: Option<u64>) {
        let (drive, id) = (&self.home.drive, self.id);
        let slept = drive.poll(Sleeper::Port, until_ns, &mut || !drive.engine().is_waited_for(id), &|| ());
        if slept == Slept::NoSeat {
            let tick = now_ns() + NO_SEAT_NS;
            self.sleep_until(Some(until_ns.map_or(tick, |until| until.min(tick))));
        }
    }

    fn sleep_until(&mut self, until_ns: Option<u64>) {
        self.asleep.clear();
        self.asleep.add(self.bell.as_raw_fd(), false);
        // A sleep that a signal interrupts is as good as an ended one.
        let _ = self.asleep.wait(until_ns.map(|until| until.saturating_sub(now_ns())));
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if !self.home.drive.is_forked() {
            self.home.drive.engine().unsubscribe(self.id);
        }
    }
}
