//! `bench serve`: listens, lets in one client at a time who has the key, and counts the others.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::HostName;
use super::addresses::devices_of;
use super::handshake::{self, Denied, Refusal, Session};
use super::key::Key;
use super::limits::{HANDSHAKES_MAX, HANDSHAKES_PER_ADDRESS_MAX, Here, Patience, WRITE_MAX};
use super::message::Tell;
use super::session::{Around, Launch, Outcome, serve as serve_client};
use crate::args::ServeArgs;
use crate::clock::now_ns;
use crate::measured::program;

/// How often every wait looks whether it shall go on.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Runs `bench serve` until `stop` is set, or one client was served and no more are wanted; gives the exit code.
pub(crate) fn serve(args: &ServeArgs, json: bool, stop: &AtomicBool) -> i32 {
    let refused = |error: String| {
        eprintln!("polyrail bench serve: {error}");
        2
    };
    if let Some(path) = &args.make_key {
        return match Key::make(path) {
            Ok(()) => {
                eprintln!(
                    "{}: a new key; copy it to the other machine by a safe way, mode 0600",
                    path.display()
                );
                0
            }
            Err(error) => refused(error),
        };
    }
    let prepared = prepare(args, stop);
    let server = match prepared {
        Ok(server) => server,
        Err((code, error)) => {
            refused(error);
            return code;
        }
    };
    server.announce(json);
    let outcome = server.run(args.once);
    eprintln!("polyrail bench serve: {}", server.summary());
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("polyrail bench serve: {error}");
            1
        }
    }
}

fn prepare<'a>(args: &ServeArgs, stop: &'a AtomicBool) -> Result<Server<'a>, (i32, String)> {
    let usage = |error: String| (2, error);
    let path = args.key_file.as_deref().ok_or_else(|| usage("--key-file is missing".to_owned()))?;
    let key = Key::load(path).map_err(usage)?;
    let listen = args.listen.as_deref().ok_or_else(|| usage("--listen is missing".to_owned()))?;
    let name: HostName = listen.parse().map_err(|error| usage(format!("--listen: {error}")))?;
    devices_of(&args.address).map_err(|error| usage(format!("--address {error}")))?;
    let listener = listen_at(&name).map_err(|error| (1, format!("--listen {name}: {error}")))?;
    Ok(Server::new(listener, key, args.address.clone(), &program, stop, Patience::USUAL))
}

fn listen_at(name: &HostName) -> io::Result<TcpListener> {
    let addresses = name.resolve()?;
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// What became of those who called.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Clients that were served.
    pub(super) clients: AtomicU64,
    /// Measured processes that they had started.
    pub(super) jobs: AtomicU64,
    /// Clients that ended otherwise than by a goodbye.
    pub(super) broken: AtomicU64,
    /// Callers without the key.
    pub(super) wrong_key: AtomicU64,
    /// Callers of another version.
    pub(super) other_version: AtomicU64,
    /// Callers that spoke something else, or said nothing.
    pub(super) not_understood: AtomicU64,
    /// Callers with the key while another client was served.
    pub(super) busy: AtomicU64,
    /// Callers that were turned away unheard, because there were too many.
    pub(super) crowded: AtomicU64,
}

/// A server.
pub(super) struct Server<'a> {
    listener: TcpListener,
    key: Key,
    /// Addresses to offer; none: the one that the control connection came in on.
    addresses: Vec<IpAddr>,
    launch: &'a Launch<'a>,
    stop: &'a AtomicBool,
    patience: Patience,
    /// Since when a client is served, in ns.
    held: Mutex<Option<u64>>,
    /// Who is in a handshake.
    handshakes: Mutex<Vec<IpAddr>>,
    /// Set once the one client that was wanted has been served.
    done: AtomicBool,
    pub(super) counts: Counts,
}

impl<'a> Server<'a> {
    pub(super) fn new(
        listener: TcpListener,
        key: Key,
        addresses: Vec<IpAddr>,
        launch: &'a Launch<'a>,
        stop: &'a AtomicBool,
        patience: Patience,
    ) -> Self {
        Self {
            listener,
            key,
            addresses,
            launch,
            stop,
            patience,
            held: Mutex::default(),
            handshakes: Mutex::default(),
            done: AtomicBool::new(false),
            counts: Counts::default(),
        }
    }

    fn announce(&self, json: bool) {
        let address = self.listener.local_addr().map_or_else(|error| error.to_string(), |at| at.to_string());
        if json {
            let line = serde_json::json!({ "listening": address });
            let mut out = io::stdout().lock();
            // Whoever reads it may have seen enough.
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
        eprintln!(
            "polyrail bench serve: listening at {address}; what is measured is neither encrypted nor protected"
        );
    }

    /// Serves until it is to end; gives the exit code.
    ///
    /// # Errors
    /// The system refuses to wait for callers.
    pub(super) fn run(&self, once: bool) -> io::Result<i32> {
        self.listener.set_nonblocking(true)?;
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| -> io::Result<()> {
            while !self.ends() {
                let Some((stream, from)) = self.next_caller()? else { continue };
                let failed = &failed;
                scope.spawn(move || {
                    let Some(outcome) = self.meet(&stream, from) else { return };
                    if once {
                        failed.fetch_or(outcome.failure.is_some() && !self.stopped(), Ordering::Relaxed);
                        self.done.store(true, Ordering::Relaxed);
                    }
                });
            }
            Ok(())
        })?;
        Ok(i32::from(failed.load(Ordering::Relaxed)))
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn ends(&self) -> bool {
        self.stopped() || self.done.load(Ordering::Relaxed)
    }

    fn next_caller(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let mut ready = [PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
        let patience = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_EVERY.subsec_nanos()) };
        match rustix::event::poll(&mut ready, Some(&patience)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match self.listener.accept() {
            Ok(caller) => Ok(Some(caller)),
            // A caller that has gone again, or descriptors that are used up for the moment: the next look tells.
            Err(_) => {
                std::thread::sleep(Duration::from_millis(10));
                Ok(None)
            }
        }
    }

    /// One caller, from his first word; what he did if he was served.
    fn meet(&self, stream: &TcpStream, from: SocketAddr) -> Option<Outcome> {
        let client = from.ip().to_canonical();
        let (session, here) = match self.shake_hands(stream, client) {
            Ok(met) => met,
            Err(denied) => {
                self.deny(stream, client, &denied);
                return None;
            }
        };
        let Some(_seat) = self.take_seat_in_time() else {
            add(&self.counts.busy);
            let held_s = lock(&self.held).map_or(0, |since_ns| (now_ns() - since_ns) / 1_000_000_000);
            // It may have gone.
            let _ = { session }.0.send(&Tell::Busy { held_s });
            return None;
        };
        add(&self.counts.clients);
        eprintln!("polyrail bench serve: {client}: measures");
        let ends = || self.stopped();
        let around = Around { launch: self.launch, here, patience: self.patience, ends: &ends };
        let outcome = serve_client(session, around);
        self.counts.jobs.fetch_add(outcome.jobs, Ordering::Relaxed);
        let how = outcome.failure.as_deref().unwrap_or("goodbye");
        if outcome.failure.is_some() {
            add(&self.counts.broken);
        }
        eprintln!("polyrail bench serve: {client}: {how}; measured processes: {}", outcome.jobs);
        Some(outcome)
    }

    fn shake_hands(&self, stream: &TcpStream, client: IpAddr) -> Result<(Session, Here), Denied> {
        let Some(_place) = self.take_place(client) else { return Err(Denied::Refused(Refusal::Crowded)) };
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        stream.set_write_timeout(Some(WRITE_MAX))?;
        let start_ns = now_ns();
        let in_time = || u128::from(now_ns() - start_ns) < self.patience.handshake.as_nanos();
        let shaken = handshake::answer(stream.try_clone()?, &self.key, &|| in_time() && !self.ends());
        if shaken.is_err() {
            // His place stays taken meanwhile, so that guessing is slow.
            self.pause(self.patience.refusal_delay);
        }
        let session = shaken?;
        let addresses = match self.addresses.as_slice() {
            [] => vec![stream.local_addr()?.ip().to_canonical()],
            addresses => addresses.to_vec(),
        };
        let devices = devices_of(&addresses).map_err(|error| Denied::from(io::Error::other(error)))?;
        Ok((session, Here { addresses, devices, client }))
    }

    fn pause(&self, length: Duration) {
        let start_ns = now_ns();
        while !self.ends() && u128::from(now_ns() - start_ns) < length.as_nanos() {
            std::thread::sleep(LOOK_EVERY.min(length));
        }
    }

    fn deny(&self, stream: &TcpStream, client: IpAddr, denied: &Denied) {
        let (count, refusal, why) = match denied {
            Denied::Refused(Refusal::Key) => (&self.counts.wrong_key, Some(Refusal::Key), "has not the key"),
            Denied::Refused(refusal @ Refusal::Version { .. }) => {
                (&self.counts.other_version, Some(*refusal), "speaks another version of the control protocol")
            }
            Denied::Refused(Refusal::Crowded) => {
                (&self.counts.crowded, Some(Refusal::Crowded), "one of too many callers")
            }
            Denied::NotUnderstood | Denied::Refused(Refusal::NotUnderstood) => (
                &self.counts.not_understood,
                Some(Refusal::NotUnderstood),
                "does not speak the control protocol",
            ),
            Denied::Late | Denied::Impostor | Denied::Broken(_) => {
                (&self.counts.not_understood, None, "went no further than hello")
            }
        };
        // A flood of callers is counted, not written down.
        if add(count) < REFUSALS_TOLD_MAX {
            eprintln!("polyrail bench serve: {client}: {why}");
        }
        if let Some(refusal) = refusal {
            handshake::refuse(stream, refusal);
        }
    }

    /// The seat, also if it becomes free within a moment: a client that has just ended may come again before its measured
    /// process is gone.
    fn take_seat_in_time(&self) -> Option<Seat<'_>> {
        let start_ns = now_ns();
        loop {
            if let Some(seat) = self.take_seat() {
                return Some(seat);
            }
            if self.ends() || u128::from(now_ns() - start_ns) > SEAT_WAIT_MAX.as_nanos() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn take_seat(&self) -> Option<Seat<'_>> {
        let mut held = lock(&self.held);
        if held.is_some() || self.ends() {
            return None;
        }
        *held = Some(now_ns());
        Some(Seat(&self.held))
    }

    fn take_place(&self, client: IpAddr) -> Option<Place<'_>> {
        let mut places = lock(&self.handshakes);
        let of_client = places.iter().filter(|&&other| other == client).count();
        if places.len() >= HANDSHAKES_MAX || of_client >= HANDSHAKES_PER_ADDRESS_MAX {
            return None;
        }
        places.push(client);
        Some(Place(&self.handshakes, client))
    }

    fn summary(&self) -> String {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        format!(
            "ended; clients: {} ({} without a goodbye), measured processes: {}; turned away: {} without the key, {} of another version, {} not understood, {} while busy, {} in a crowd",
            count(&counts.clients),
            count(&counts.broken),
            count(&counts.jobs),
            count(&counts.wrong_key),
            count(&counts.other_version),
            count(&counts.not_understood),
            count(&counts.busy),
            count(&counts.crowded)
        )
    }
}

/// How long a caller with the key waits for the seat before it is told that the server is busy.
const SEAT_WAIT_MAX: Duration = Duration::from_secs(2);

/// Refusals of one kind that are written down; the rest is counted.
const REFUSALS_TOLD_MAX: u64 = 100;

/// The one client's seat, free again when dropped.
struct Seat<'a>(&'a Mutex<Option<u64>>);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        *lock(self.0) = None;
    }
}

/// A place among those who shake hands.
struct Place<'a>(&'a Mutex<Vec<IpAddr>>, IpAddr);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut places = lock(self.0);
        if let Some(index) = places.iter().position(|&client| client == self.1) {
            places.swap_remove(index);
        }
    }
}

/// Counts one more; gives how many there were.
fn add(count: &AtomicU64) -> u64 {
    count.fetch_add(1, Ordering::Relaxed)
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each holder leaves it whole, whoever panicked.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
