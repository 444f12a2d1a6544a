//! Names: what a port serves, and what it knows of those that others serve.

use super::{Limit, Port};
use crate::config::Policy;
use crate::engine::Client;
use crate::engine::admission_answers as answers;
use crate::engine::client::Arrival;
use crate::engine::command::Awaited;
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
        if self.shared.host.is_forked() {
            return Err(BindError::Forked);
        }
        let mut asked = false;
        let mut answer = None;
        self.wait_until(Limit::Never, |port| {
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
            Some(Ok(answers::NOT_PERMITTED)) => Err(BindError::NotPermitted),
            Some(Ok(answers::LIMIT)) => Err(BindError::Limit),
            Some(Ok(_)) => Err(BindError::TooMany),
            Some(Err(by)) => Err(BindError::Taken { by }),
            None => Err(BindError::Closed),
        }
    }

    /// Waits until somebody has bound `service`.
    pub fn wait_for(&self, service: ServiceAddress, timeout: Option<Duration>) -> Result<(), Error> {
        if self.shared.host.is_forked() {
            return Err(Error::Forked);
        }
        let came = self.await_that(Awaited::Bound(service), timeout);
        if came {
            return Ok(());
        }
        self.forget_wait();
        Err(Error::TimedOut(format!("; service {service} is not bound; bound now: {}", self.bound())))
    }

    /// Waits until `what` is so; false if time ran out first.
    fn await_that(&self, what: Awaited, timeout: Option<Duration>) -> bool {
        let (mut number, mut came) = (None, false);
        self.wait_until(timeout, |port| {
            let mut client = port.client.borrow_mut();
            number = number.or_else(|| client.begin_wait(what).ok());
            while !came && let Some(arrival) = client.poll_fresh() {
                match arrival {
                    // What was waited for before, and came too late, is no news.
                    Arrival::Came(its) => came = Some(its) == number,
                    other => client.keep(other),
                }
            }
            came
        });
        came
    }

    fn forget_wait(&self) {
        self.tell(|client| client.forget_wait().is_ok());
    }

    /// Hands in what no answer follows.
    fn tell(&self, tell: impl Fn(&mut Client) -> bool) {
        self.wait_until(Limit::Never, |port| tell(&mut port.client.borrow_mut()));
        self.drive();
    }

    /// Sets how this port chooses among those that serve what it sends to, from the next message on;
    /// [`Lookup::LocalFirst`] at first.
    pub fn set_lookup(&self, lookup: Lookup) {
        if self.shared.host.is_forked() {
            return;
        }
        self.tell(|client| client.set_lookup(lookup).is_ok());
    }

    /// Sets how the links to a peer share what this port sends, in flows that begin from now on: to a port, or in a class, to or
    /// in which it has sent nothing yet. `None`, as at first: what the node's settings say for the class. What goes over
    /// connections goes by the settings.
    pub fn set_policy(&self, policy: Option<Policy>) {
        if self.shared.host.is_forked() {
            return;
        }
        self.tell(|client| client.set_policy(policy).is_ok());
    }

    /// Waits until every node that is reachable now knows all bindings that ports of this node have made so far, and no
    /// longer knows those taken back: whoever is told of a service after this finds it. A node that is lost meanwhile is
    /// not waited for; one that joins later learns them before it can be reached by name.
    ///
    /// # Errors
    /// Time is up; the message names who does not know them yet.
    pub fn await_known(&self, timeout: Option<Duration>) -> Result<(), Error> {
        if self.shared.host.is_forked() {
            return Err(Error::Forked);
        }
        if self.await_that(Awaited::Known, timeout) {
            return Ok(());
        }
        let behind = match (self.shared.host.own(), &self.tie) {
            (Some(drive), _) => drive.engine().behind(self.address.port),
            (_, Some(tie)) => tie.behind(),
            (None, None) => Vec::new(),
        };
        self.forget_wait();
        match &behind[..] {
            // They have learnt it since.
            [] => Ok(()),
            names => Err(Error::TimedOut(format!("; not all bindings are known to {}", names.join(", ")))),
        }
    }
}
