//! Links that take time: a process between the two nodes that hands each frame on when it has been held for so long.
//!
//! Kernels without netem have nothing that delays. The relay stands in a namespace of its own, joined to each node by one veth pair
//! per delayed link; frames come and go by packet sockets with their descriptions, so that large segments pass whole. It has
//! real-time priority where that is permitted: a node that spins would else delay its own link.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use polyrail_sys::interface::list;
use polyrail_sys::packet::open_wire;
use polyrail_sys::process::set_realtime;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::command::NetnsError;
use super::spec::{Spec, relay_port};
use crate::clock::now_ns;
use crate::measured::program;
use crate::process::claim_the_machine;

/// What the hidden sub-command is told first to be a relay.
pub(crate) const RELAY_WORD: &str = "relay";
/// Said once every frame is handed on.
const READY: &str = "ready";
/// The longest frame, with its description.
const FRAME_BYTES_MAX: usize = 80 << 10;
/// Room for frames that arrive while the relay is away, in bytes, as far as the system lets it be.
const ROOM_BYTES: usize = 16 << 20;
/// Frames taken from one end before the next is looked at.
const BATCH: usize = 64;
/// Bytes held for one direction at most; more is dropped, as a wire drops what does not fit.
const HELD_BYTES_MAX: usize = 256 << 20;

/// Starts the relay of a testbed, if a link is delayed, and waits until it hands frames on.
pub(super) fn start(spec: &Spec) -> Result<Option<Child>, NetnsError> {
    let delayed = spec.links.iter().enumerate().filter(|(_, link)| link.delay_us > 0);
    let words: Vec<String> = delayed.map(|(link, with)| format!("{link}={}", with.delay_us)).collect();
    if words.is_empty() {
        return Ok(None);
    }
    let failed = |error: String| NetnsError::State(format!("relay: {error}"));
    let here = program().map_err(failed)?;
    let mut child = Command::new("ip")
        .args(["netns", "exec", &spec.relay_namespace()])
        .arg(here.get_program())
        .args(here.get_args())
        .arg(RELAY_WORD)
        .args(words)
        // An interrupt from the terminal must not end it before the rest.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        // One that ends without a word gives an empty line.
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line.trim() == READY {
        return Ok(Some(child));
    }
    let _ = child.kill();
    let told = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    Err(failed(format!("not ready: {}", String::from_utf8_lossy(&told.stderr).trim())))
}

/// A delayed link, as the relay is told of it.
#[derive(Debug, PartialEq, Eq)]
struct Wire {
    link: usize,
    delay_ns: u64,
}

impl FromStr for Wire {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let parts = word.split_once('=').and_then(|(link, delay_us)| {
            let delay_us: u64 = delay_us.parse().ok()?;
            Some(Self { link: link.parse().ok()?, delay_ns: delay_us * 1_000 })
        });
        parts.ok_or_else(|| format!("{word:?} is no LINK=MICROSECONDS"))
    }
}

/// Is the relay, until it is killed or the devices are gone. `words` name the links.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let wires = words.iter().map(|word| word.parse()).collect::<Result<Vec<Wire>, String>>()?;
    if let Err(error) = set_realtime(1) {
        claim_the_machine();
        eprintln!("no real-time priority: {error}");
    }
    let (ends, mut ways) = open(&wires).map_err(|error| error.to_string())?;
    println!("{READY}");
    let mut room = vec![0; FRAME_BYTES_MAX];
    loop {
        hand_on(&ends, &mut ways);
        wait(&ends, &ways).map_err(|error| error.to_string())?;
        for (from, end) in ends.iter().enumerate() {
            take(end, &mut ways[from], &mut room)?;
        }
    }
}

/// What arrives at one end and goes on at the other: end 2n belongs to the first node, end 2n + 1 to the second.
struct Way {
    to: usize,
    delay_ns: u64,
    /// When each is due, and the frame.
    held: VecDeque<(u64, Vec<u8>)>,
    held_bytes: usize,
}

fn open(wires: &[Wire]) -> io::Result<(Vec<OwnedFd>, Vec<Way>)> {
    let interfaces = list()?;
    let (mut ends, mut ways) = (Vec::new(), Vec::new());
    for wire in wires {
        for node in 0..2 {
            let name = relay_port(wire.link, node);
            let found = interfaces.iter().find(|interface| interface.name == name);
            let index = found.ok_or_else(|| io::Error::other(format!("no device {name}")))?.index;
            let end = open_wire(index)?;
            socket2::SockRef::from(&end).set_recv_buffer_size(ROOM_BYTES)?;
            ways.push(Way {
                to: ends.len() ^ 1,
                delay_ns: wire.delay_ns,
                held: VecDeque::new(),
                held_bytes: 0,
            });
            ends.push(end);
        }
    }
    Ok((ends, ways))
}

/// Takes what has arrived at one end.
fn take(end: &OwnedFd, way: &mut Way, room: &mut [u8]) -> Result<(), String> {
    for _ in 0..BATCH {
        match recv(end, &mut *room, RecvFlags::DONTWAIT) {
            Ok((bytes, _)) => {
                let due_ns = now_ns() + way.delay_ns;
                if way.held_bytes + bytes <= HELD_BYTES_MAX {
                    way.held_bytes += bytes;
                    way.held.push_back((due_ns, room[..bytes].to_vec()));
                }
            }
            // A cable that was pulled is told once; it may be put back. A frame that has no description is lost.
            Err(rustix::io::Errno::NETDOWN | rustix::io::Errno::INTR | rustix::io::Errno::INVAL) => {}
            Err(rustix::io::Errno::AGAIN) => break,
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Sends what is due. What cannot be sent is lost, as on a wire whose other end is pulled.
fn hand_on(ends: &[OwnedFd], ways: &mut [Way]) {
    for way in ways {
        while way.held.front().is_some_and(|(due_ns, _)| *due_ns <= now_ns()) {
            let Some((_, frame)) = way.held.pop_front() else { break };
            way.held_bytes -= frame.len();
            let _ = send(&ends[way.to], &frame, SendFlags::empty());
        }
    }
}

/// Sleeps until something arrives or is due.
fn wait(ends: &[OwnedFd], ways: &[Way]) -> io::Result<()> {
    let due_ns = ways.iter().filter_map(|way| way.held.front().map(|(due_ns, _)| *due_ns)).min();
    let left = due_ns.map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns())));
    let limit = left.map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    });
    let mut watched: Vec<PollFd> = ends.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
    match poll(&mut watched, limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_told_by_its_number_and_delay() {
        assert_eq!("3=1500".parse::<Wire>(), Ok(Wire { link: 3, delay_ns: 1_500_000 }));
        for wrong in ["", "3", "=1", "3=", "3=x", "x=1", "3=-1"] {
            assert!(wrong.parse::<Wire>().unwrap_err().contains("LINK=MICROSECONDS"), "{wrong:?}");
        }
        assert!(run(&["x".to_owned()]).is_err());
    }

    #[test]
    fn frames_go_on_in_order_when_they_are_due_and_not_before() {
        let (near, far) = std::os::unix::net::UnixDatagram::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let ends = [OwnedFd::from(near.try_clone().unwrap()), OwnedFd::from(near)];
        let (past, future) = (now_ns(), now_ns() + 3_600_000_000_000);
        let held = VecDeque::from([(past, vec![1]), (past, vec![2, 2]), (future, vec![3, 3, 3])]);
        let mut ways = [Way { to: 1, delay_ns: 0, held, held_bytes: 6 }];
        hand_on(&ends, &mut ways);
        let mut got = [0; 9];
        assert_eq!((far.recv(&mut got).unwrap(), far.recv(&mut got).unwrap()), (1, 2));
        assert!(far.recv(&mut got).is_err());
        assert_eq!((ways[0].held.len(), ways[0].held_bytes), (1, 3));
        // What arrives is held for the delay.
        far.send(&[4, 4]).unwrap();
        let mut way = Way { to: 1, delay_ns: 5_000_000_000, held: VecDeque::new(), held_bytes: 0 };
        let before_ns = now_ns();
        take(&ends[0], &mut way, &mut [0; 16]).unwrap();
        assert!(way.held[0].0 >= before_ns + 5_000_000_000 && way.held[0].1 == [4, 4]);
    }
}
