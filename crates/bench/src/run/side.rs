//! One measured process as the orchestrator sees it: lines in, events out, and its end; on this machine or at a
//! server.

use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::Serialize;

use crate::control::{Event, SideReport, Task};
use crate::measured::Measured;
use crate::remote::{Client, FarSide};

/// How often a wait looks whether it shall go on.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Where a measured process is started.
pub(crate) enum Launch {
    /// On this machine, by this command.
    Here(Command),
    /// By the server of this session.
    There(Arc<Client>),
}

impl From<Command> for Launch {
    fn from(command: Command) -> Self {
        Self::Here(command)
    }
}

/// One measured process, killed when dropped.
pub(super) struct Side {
    pub(super) name: &'static str,
    place: Place,
    events: Receiver<Event>,
    /// An event heard while waiting for the other side.
    kept: Option<Event>,
    /// The last report it gave.
    pub(super) last: SideReport,
}

enum Place {
    Here(Measured),
    There(FarSide),
}

impl Side {
    pub(super) fn start(name: &'static str, launch: Launch, task: &Task) -> Result<Self, String> {
        let named = |error: String| format!("{name}: {error}");
        let (place, events) = match launch {
            Launch::Here(command) => {
                let (told, events) = channel();
                let measured = Measured::start(command, task, move |event| told.send(event).is_ok());
                (Place::Here(measured.map_err(named)?), events)
            }
            Launch::There(client) => {
                let (side, events) = client.start(task).map_err(named)?;
                (Place::There(side), events)
            }
        };
        Ok(Self { name, place, events, kept: None, last: SideReport::default() })
    }

    /// Its process, if it is on this machine.
    pub(super) fn pid(&self) -> Result<u32, String> {
        match &self.place {
            Place::Here(measured) => Ok(measured.pid()),
            Place::There(_) => Err(format!("{}: its process is on another machine", self.name)),
        }
    }

    pub(super) fn tell(&mut self, line: &impl Serialize) -> Result<(), String> {
        let told = match &mut self.place {
            Place::Here(measured) => measured.tell(line),
            Place::There(side) => side.tell(line),
        };
        told.map_err(|error| {
            // A side that has ended has usually said why.
            match self.next(LOOK_EVERY * 10) {
                Err(reason) => reason,
                Ok(_) => format!("{}: {error}", self.name),
            }
        })
    }

    /// The next event within `timeout`; its report is kept as the last one.
    pub(super) fn next(&mut self, timeout: Duration) -> Result<Option<Event>, String> {
        let event = match self.kept.take() {
            Some(event) => event,
            None => match self.events.recv_timeout(timeout) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(self.epitaph()),
            },
        };
        match event {
            Event::Failed { error } => Err(format!("{}: {error}", self.name)),
            Event::Progress(ref report) | Event::Done(ref report) => {
                self.last = report.clone();
                Ok(Some(event))
            }
            _ => Ok(Some(event)),
        }
    }

    /// Takes what has come without waiting; keeps an event for its proper time, tells a failure at once.
    pub(super) fn overhear(&mut self) -> Result<(), String> {
        while self.kept.is_none() {
            match self.next(Duration::ZERO)? {
                Some(Event::Progress(_)) => {}
                Some(event) => self.kept = Some(event),
                None => break,
            }
        }
        Ok(())
    }

    /// The event that was kept for whoever asks for it.
    pub(super) fn heard(&mut self) -> Option<Event> {
        self.kept.take()
    }

    /// Why the process has ended without a word.
    fn epitaph(&mut self) -> String {
        let why = match &mut self.place {
            Place::Here(measured) => measured.epitaph(),
            Place::There(side) => side.epitaph(),
        };
        format!("{}: {why}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_that_dies_is_told_of_in_one_line_with_its_last_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "read task; echo >&2; echo boom >&2; echo bang >&2; echo more >&2; exit 7"]);
        let mut side = Side::start("receiver", command.into(), &Task::Calibrate).unwrap();
        let error = loop {
            match side.next(LOOK_EVERY) {
                Ok(event) => assert!(event.is_none(), "{event:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, "receiver: ended early (exit status: 7) boom bang");
    }
}
