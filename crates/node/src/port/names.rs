//! Names: what a port serves, and what it knows of those that others serve.

use super::{Port, deadline};
use crate::config::Policy;
use crate::engine::Client;
use crate::engine::admission_answers as answers;
use crate::engine::client::Arrival;
use crate::error::{BindError, Error};
use polyrail_proto::address::{Scope, ServiceAddress, ServiceRange};
use polyrail_proto::service::Lookup;
use std::time::Duration;

impl Port {
    /// Makes this port one that serves `range`. A port may have several bindings, and several ports may serve one
    /// service: they share its messages.
    pub fn bind(&self, range: impl Into<ServiceRange>, scope: Scope) -> Result<(), BindError> {
        self.bind_weighted(range, scope, 1)
    }

    /// The same with a share among the bindings of one service: of weights 1 and 3, the second gets three of four messages.
    /// 0 counts as 1.
    pub fn bind_weighted(
        &self,
        range: impl Into<ServiceRange>,
        scope: Scope,
        weight: u8,
    ) -> Result<(), BindError> {
        let range = range.into();
        self.ask_to_bind(|client| client.bind_weighted(range, scope, weight).is_ok())
    }

    /// Makes this port the only one that serves `range`: of all that this node knows of in the cluster, or, if the scope is
    /// the node, of those of this node. From then on nobody who knows of it can bind any of the range.
    ///
    /// Two nodes can't see what they do at the same time, or while they can't hear each other. When they do, one of two such
    /// bindings is taken back, and the port that had it is told by the next [`Port::recv`]: [`RecvError::Unbound`](crate::RecvError::Unbound).
    ///
    /// # Errors
    /// [`BindError::Taken`] if somebody is known to have bound any of the range.
    pub fn bind_exclusive(&self, range: impl Into<ServiceRange>, scope: Scope) -> Result<(), BindError> {
        let range = range.into();
        self.ask_to_bind(|client| client.bind_exclusive(range, scope).is_ok())
    }

    /// Takes one binding back.
    pub fn unbind(&self, range: impl Into<ServiceRange>, scope: Scope) -> Result<(), BindError> {
        let range = range.into();
        self.ask_to_bind(|client| client.unbind(range, scope).is_ok())
    }

    fn ask_to_bind(&self, ask: impl Fn(&mut Client) -> bool) -> Result<(), BindError> {
        if self.shared.drive.is_forked() {
            return Err(BindError::Forked);
        }
        let mut asked = false;
        let mut answer = None;
        self.wait_until(None, |port| {
            let mut client = port.client.borrow_mut();
            asked = asked || ask(&mut client);
            while let Some(arrival) = client.poll_fresh() {
                match arrival {
                    Arrival::Answer(code) => {
                        answer = Some(Ok(code));
                        break;
                    }
                    Arrival::Taken(by) => {
                        answer = Some(Err(by));
                        break;
                    }
                    other => client.keep(other),
                }
            }
            answer.is_some()
        });
        match answer {
            Some(Ok(answers::OK)) => Ok(()),
            Some(Ok(answers::RESERVED)) => Err(BindError::Reserved),
            Some(Ok(answers::INVERTED)) => Err(BindError::Inverted),
            Some(Ok(answers::NOT_BOUND)) => Err(BindError::NotBound),
            Some(Ok(_)) => Err(BindError::TooMany),
            Some(Err(by)) => Err(BindError::Taken { by }),
            None => Err(BindError::Closed),
        }
    }

    /// Waits until somebody has bound `service`.
    pub fn wait_for(&self, service: ServiceAddress, timeout: Option<Duration>) -> Result<(), Error> {
        if self.shared.drive.is_forked() {
            return Err(Error::Forked);
        }
        let mut generation = u64::MAX;
        let mut found = false;
        let await_names = |awaits| self.shared.drive.engine().await_names(self.address.port, awaits);
        await_names(true);
        self.wait_until(deadline(timeout), |port| {
            let engine = port.shared.drive.engine();
            let table = engine.core().table();
            if table.generation() != generation {
                generation = table.generation();
                found = !table.lookup(service).is_empty();
            }
            found
        });
        await_names(false);
        if found {
            return Ok(());
        }
        Err(Error::TimedOut(format!("; service {service} is not bound; bound now: {}", self.shared.bound())))
    }

    /// Sets how this port chooses among those that serve what it sends to, from the next message on;
    /// [`Lookup::LocalFirst`] at first.
    pub fn set_lookup(&self, lookup: Lookup) {
        if self.shared.drive.is_forked() {
            return;
        }
        // What was sent before is chosen as it was meant then.
        self.wait_until(None, |port| port.client.borrow_mut().backlog() == 0);
        self.shared.drive.engine().set_lookup(self.address.port, lookup);
    }

    /// Sets how the links to a peer share what this port sends, in flows that begin from now on: to a port, or in a class, to or
    /// in which it has sent nothing yet. `None`, as at first: what the node's settings say for the class. What goes over
    /// connections goes by the settings.
    pub fn set_policy(&self, policy: Option<Policy>) {
        if self.shared.drive.is_forked() {
            return;
        }
        // What was sent before goes as it was meant then.
        self.wait_until(None, |port| port.client.borrow_mut().backlog() == 0);
        self.shared.drive.engine().set_policy(self.address.port, policy);
    }

    /// Waits until every node that is reachable now knows all bindings that ports of this node have made so far, and no
    /// longer knows those taken back: whoever is told of a service after this finds it. A node that is lost meanwhile is
    /// not waited for; one that joins later learns them before it can be reached by name.
    ///
    /// # Errors
    /// Time is up; the message names who does not know them yet.
    pub fn await_known(&self, timeout: Option<Duration>) -> Result<(), Error> {
        if self.shared.drive.is_forked() {
            return Err(Error::Forked);
        }
        let barrier = self.shared.drive.engine().begin_barrier(self.address.port);
        self.wait_until(deadline(timeout), |port| port.shared.drive.engine().is_past(barrier));
        let behind = self.shared.drive.engine().end_barrier(barrier);
        match &behind[..] {
            [] => Ok(()),
            names => Err(Error::TimedOut(format!("; not all bindings are known to {}", names.join(", ")))),
        }
    }
}
