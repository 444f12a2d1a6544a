//! A receiver on another machine: the session with its server, and that machine's state around each sample.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pair::{Sample, pulse};
use super::side::Launch;
use super::{Run, command, stop_on_signals};
use crate::args::{Environment, ServeArgs};
use crate::calibrate::Calibration;
use crate::netns::Testbed;
use crate::protocol::Protocol;
use crate::remote::{self, Client, ClockSample, Reading};

/// Runs `bench serve`; gives the exit code.
pub(super) fn serve(args: &ServeArgs, json: bool) -> i32 {
    match stop_on_signals() {
        Ok(stop) => remote::serve(args, json, &stop),
        Err(error) => {
            eprintln!("polyrail bench serve: signals: {error}");
            1
        }
    }
}

/// The other machine during one sample.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct FarSample {
    /// Its pulse before the sample.
    pub(crate) calibration: Calibration,
    /// The two clocks; none if they could not be compared afterwards.
    pub(crate) clock: Option<ClockSample>,
}

/// The other machine before a sample.
pub(super) struct Before<'a> {
    client: &'a Arc<Client>,
    calibration: Calibration,
    reading: Reading,
}

impl<'a> Before<'a> {
    /// Takes its pulse and compares the clocks.
    pub(super) fn take(client: &'a Arc<Client>) -> Result<Self, String> {
        if let Some(failure) = client.failure() {
            return Err(failure);
        }
        let calibration = pulse(Launch::There(client.clone()))?;
        Ok(Self { client, calibration, reading: client.compare_clocks()? })
    }

    /// How much its clock is ahead of ours, in ns.
    pub(super) fn offset_ns(&self) -> i64 {
        self.reading.offset_ns
    }

    /// Adds what is known after the sample. Where the session is over, that is why the sample failed, whatever the
    /// sides took it for.
    pub(super) fn complete(self, sample: Sample) -> Sample {
        let after = self.client.compare_clocks();
        let clock = after.as_ref().ok().map(|after| ClockSample::between(self.reading, *after));
        let far = Some(FarSample { calibration: self.calibration, clock });
        // What was interrupted here says so.
        let own_end = sample.error.as_deref() == Some("interrupted");
        let error = if own_end { sample.error } else { after.err().or(sample.error) };
        Sample { far, error, ..sample }
    }
}

impl Run<'_> {
    /// Measures to the other machine, in one session with its server.
    pub(super) fn between_machines(&mut self, environment: &Environment) -> Result<(), String> {
        let host = self.plan.host.as_ref().ok_or("which machine?")?;
        let client = Client::connect(&host.name, &host.key, &host.local)?;
        self.report.set_peer(client.welcome.host.clone());
        let links = client.welcome.addresses.len().min(client.local.len());
        self.far = Some(Arc::new(client));
        let measured =
            self.points(None, &Environment::between_machines(environment.placement.clone(), links));
        self.far = None;
        measured
    }

    /// Whether a protocol can be received by on the other machine, if there is one.
    pub(super) fn received_there(&self, protocol: &dyn Protocol) -> Result<(), String> {
        let Some(client) = &self.far else { return Ok(()) };
        match client.welcome.refusal(protocol.name()) {
            None => Ok(()),
            Some(reason) => Err(format!("at {}: {reason}", client.name())),
        }
    }

    /// Where the receiver is started.
    pub(super) fn receiver(&self, testbed: Option<&Testbed>, node: usize) -> Result<Launch, String> {
        match &self.far {
            Some(client) => Ok(Launch::There(client.clone())),
            None => Ok(command(testbed, node)?.into()),
        }
    }
}
