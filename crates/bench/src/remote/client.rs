//! The orchestrator's end of the control connection: measured processes at the server, and the server's clock.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use super::addresses::local_towards;
use super::channel::{Incoming, Outgoing};
use super::clocks::{ROUNDS_MAX, ROUNDS_MIN, ROUNDS_NS, Reading, Round};
use super::handshake;
use super::hex;
use super::key::{Key, random};
use super::limits::{BEAT, Patience, WRITE_MAX};
use super::lines::Broken;
use super::message::{Ask, Tell, Welcome};
use super::{HostName, devices_of};
use crate::clock::{machine_ns, now_ns};
use crate::control::{Event, Far, Task};

/// Longest time to reach the server, for each of its addresses.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest time until the server has proven itself and said what there is; one that refuses takes its time.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How often the reading thread looks up.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Longest time for the server to tell the time.
const CLOCK_MAX: Duration = Duration::from_secs(5);

/// A session with a server. It ends when this is dropped.
pub(crate) struct Client {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
    /// What the server has.
    pub(crate) welcome: Welcome,
    /// Own addresses that measuring begins at.
    pub(crate) local: Vec<IpAddr>,
    /// The devices that carry them, in the same order, each once.
    pub(crate) devices: Vec<String>,
    /// What both sides must know of each other.
    pub(crate) far: Far,
}

struct Shared {
    /// The server as the user named it.
    name: String,
    patience: Patience,
    out: Mutex<Outgoing>,
    state: Mutex<State>,
    closing: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Why the session is over.
    failure: Option<String>,
    /// Number of the last measured process, and where its events go.
    job: u64,
    events: Option<Sender<Event>>,
    /// Why it has ended.
    ended: Option<String>,
    /// Where answers about the time go.
    rounds: Option<Sender<(u32, [u64; 3])>>,
}

impl Client {
    /// Opens a session. `local` are own addresses to measure from; those of the routes to the server if there are none.
    ///
    /// # Errors
    /// One line: who could not be reached, or what he said.
    pub(crate) fn connect(host: &HostName, key: &Key, local: &[IpAddr]) -> Result<Self, String> {
        Self::connect_within(host, key, local, Patience::USUAL)
    }

    pub(super) fn connect_within(
        host: &HostName,
        key: &Key,
        local: &[IpAddr],
        patience: Patience,
    ) -> Result<Self, String> {
        let named = |what: String| format!("{host}: {what}");
        let stream = reach(host)?;
        let prepared = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(LOOK_EVERY)))
            .and_then(|()| stream.set_write_timeout(Some(WRITE_MAX)));
        prepared.map_err(|error| named(error.to_string()))?;
        let (out, mut incoming) =
            handshake::call(stream, key, HANDSHAKE_MAX).map_err(|denied| named(denied.to_string()))?;
        let welcome = welcomed(&mut incoming, HANDSHAKE_MAX).map_err(named)?;
        let local =
            if local.is_empty() { routes_to(&welcome.addresses).map_err(named)? } else { local.to_vec() };
        let devices = devices_of(&local)?;
        let name = random().map_err(|error| format!("random bytes: {error}"))?;
        let far = Far { cluster: format!("bench-{}", hex::encode(&name[..8])), peers: local.clone() };
        let shared = Arc::new(Shared {
            name: host.to_string(),
            patience,
            out: Mutex::new(out),
            state: Mutex::default(),
            closing: AtomicBool::new(false),
        });
        let reader = std::thread::spawn({
            let shared = shared.clone();
            move || shared.read(incoming)
        });
        Ok(Self { shared, reader: Some(reader), welcome, local, devices, far })
    }

    /// The server as the user named it.
    pub(crate) fn name(&self) -> &str {
        &self.shared.name
    }

    /// Why the session is over, if it is.
    pub(crate) fn failure(&self) -> Option<String> {
        locked(&self.shared.state).failure.clone()
    }

    /// Has the server start a measured process; its events come by the receiver.
    ///
    /// # Errors
    /// The session is over, one line.
    pub(crate) fn start(&self, task: &Task) -> Result<(FarSide, Receiver<Event>), String> {
        let (told, events) = channel();
        let job = {
            let mut state = locked(&self.shared.state);
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            state.job += 1;
            (state.events, state.ended) = (Some(told), None);
            state.job
        };
        let side = FarSide { shared: self.shared.clone(), job };
        self.shared.send(&Ask::Start { job, task: task.clone() })?;
        Ok((side, events))
    }

    /// Compares the two machines' clocks.
    ///
    /// # Errors
    /// The session is over, or the server does not tell the time; one line.
    pub(crate) fn compare_clocks(&self) -> Result<Reading, String> {
        let (told, answers) = channel();
        locked(&self.shared.state).rounds = Some(told);
        let start_ns = now_ns();
        let mut rounds = Vec::new();
        for number in 0..ROUNDS_MAX {
            if number >= ROUNDS_MIN && now_ns() - start_ns > ROUNDS_NS {
                break;
            }
            let asked_ns = machine_ns();
            self.shared.send(&Ask::Clock { number })?;
            let Ok((answered, [received_ns, sent_ns, heard_ns])) = answers.recv_timeout(CLOCK_MAX) else {
                let silent = || format!("{}: does not tell the time", self.shared.name);
                return Err(self.failure().unwrap_or_else(silent));
            };
            if answered == number {
                rounds.push(Round { asked_ns, received_ns, sent_ns, heard_ns });
            }
        }
        Reading::of(&rounds).ok_or_else(|| format!("{}: tells times that cannot be", self.shared.name))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        // A server that has gone needs no goodbye.
        let _ = self.shared.send(&Ask::Bye);
        locked(&self.shared.out).close();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn reach(host: &HostName) -> Result<TcpStream, String> {
    let addresses = host.resolve().map_err(|error| {
        format!("--placement {host}: neither intra nor inter, and no machine is found by that name: {error}")
    })?;
    let mut failure = format!("--placement {host}: that name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = unreachable(host, address, &error),
        }
    }
    Err(failure)
}

fn unreachable(host: &HostName, address: SocketAddr, error: &std::io::Error) -> String {
    let how = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            "nobody listens: start `polyrail bench serve` there".to_owned()
        }
        std::io::ErrorKind::TimedOut => {
            "no answer: is it up, and does its firewall let TCP through?".to_owned()
        }
        _ => error.to_string(),
    };
    format!("{host} ({}): {how}", address.ip())
}

fn welcomed(incoming: &mut Incoming, patience: Duration) -> Result<Welcome, String> {
    let start_ns = now_ns();
    while u128::from(now_ns() - start_ns) < patience.as_nanos() {
        match incoming.next::<Tell>().map_err(|broken| broken.to_string())? {
            None | Some((Tell::Alive, _)) => {}
            Some((Tell::Welcome(welcome), _)) if !welcome.addresses.is_empty() => return Ok(*welcome),
            Some((Tell::Busy { held_s }, _)) => {
                return Err(format!("busy: another client has had it for {held_s} s; try again later"));
            }
            Some((Tell::Bye { reason }, _)) => return Err(reason),
            Some(_) => return Err("its first words make no sense".to_owned()),
        }
    }
    Err("says nothing after the handshake".to_owned())
}

/// The addresses that this machine would use towards each of those, each once.
fn routes_to(addresses: &[IpAddr]) -> Result<Vec<IpAddr>, String> {
    let mut local = Vec::new();
    for &address in addresses {
        let from =
            local_towards(address).map_err(|error| format!("no route to its address {address}: {error}"))?;
        if !local.contains(&from) {
            local.push(from);
        }
    }
    Ok(local)
}

impl Shared {
    /// Sends one line. An error is the session's end.
    fn send(&self, ask: &Ask) -> Result<(), String> {
        locked(&self.out).send(ask).map_err(|broken| self.fail(&broken.to_string()))
    }

    /// Hears the server until the session is over.
    fn read(&self, mut incoming: Incoming) {
        loop {
            match incoming.next::<Tell>() {
                Ok(Some((Tell::Bye { reason }, _))) => break drop(self.fail(&reason)),
                Ok(Some((tell, at_ns))) => self.hear(tell, at_ns),
                Ok(None) if self.closing.load(Ordering::Relaxed) => break,
                Ok(None) => {}
                Err(broken) => break drop(self.fail(&broken.to_string())),
            }
            if u128::from(incoming.quiet_ns()) > self.patience.silence.as_nanos() {
                break drop(self.fail(&Broken::Silent(self.patience.silence.as_secs_f64()).to_string()));
            }
            let quiet = u128::from(locked(&self.out).quiet_ns()) > BEAT.as_nanos();
            if quiet && self.send(&Ask::Alive).is_err() {
                break;
            }
        }
        // Whoever still waits is not to wait on.
        let mut state = locked(&self.state);
        (state.events, state.rounds) = (None, None);
    }

    fn hear(&self, tell: Tell, at_ns: u64) {
        let mut state = locked(&self.state);
        match tell {
            Tell::Event { job, event } if job == state.job => {
                // A side that was given up hears no more.
                if let Some(events) = &state.events {
                    let _ = events.send(*event);
                }
            }
            Tell::Ended { job, reason } if job == state.job => {
                (state.events, state.ended) = (None, Some(reason));
            }
            Tell::Clock { number, received_ns, sent_ns } => {
                let _ =
                    state.rounds.as_ref().map(|rounds| rounds.send((number, [received_ns, sent_ns, at_ns])));
            }
            // Of a process that has been given up, or nothing new.
            _ => {}
        }
    }

    /// Notes why the session is over; the first reason counts. Gives that.
    fn fail(&self, reason: &str) -> String {
        let mut state = locked(&self.state);
        (state.events, state.rounds) = (None, None);
        state.failure.get_or_insert_with(|| format!("{}: {reason}", self.name)).clone()
    }
}

/// A measured process at the server; it is ended when this is dropped.
pub(crate) struct FarSide {
    shared: Arc<Shared>,
    job: u64,
}

impl FarSide {
    /// Says one line to it.
    ///
    /// # Errors
    /// The session is over, one line.
    pub(crate) fn tell(&mut self, line: &impl Serialize) -> Result<(), String> {
        let line = serde_json::to_value(line).map_err(|error| error.to_string())?;
        self.shared.send(&Ask::Tell { job: self.job, line })
    }

    /// Why it has ended without a word.
    pub(crate) fn epitaph(&mut self) -> String {
        let state = locked(&self.shared.state);
        let why = state.failure.as_ref().or(state.ended.as_ref()).cloned();
        why.unwrap_or_else(|| format!("{}: ended", self.shared.name))
    }
}

impl Drop for FarSide {
    fn drop(&mut self) {
        // A session that is over has ended it.
        let _ = self.shared.send(&Ask::End { job: self.job });
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each holder leaves it whole, whoever panicked.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
