//! A bearer between nodes of one machine: datagrams by memory that both share.
//!
//! Whoever sends to another node for the first time connects to its socket, makes a [`polyrail_shm::Direct`] ring, and passes it.
//! The socket has an abstract name, so nothing but the network namespace has to be common, and nothing is left behind in any
//! file system. From then on a train is an entry of that ring, copied in and copied out, and nobody makes a system call while
//! the other side looks by itself. Who is about to sleep announces it in each ring that leads to it, and is woken by a packet of
//! that ring's connection; so is a sender that waits for room. The end of a connection is the end of its ring: whoever is killed
//! leaves nothing behind, and who spoils a ring or a wake-up harms its own messages only.
//!
//! A full ring refuses, like a full socket. But where its receiver has taken nothing for a while, what is sent is lost, as it
//! is at the socket of a process that is stopped: it must not hold up what goes to others.

mod door;
mod inward;
mod outward;

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use polyrail_shm::DIRECT_ARENA_BYTES;
use polyrail_sys::clock::monotonic_ns;
use polyrail_sys::epoll::{Epoll, Events, Interest};
use polyrail_sys::unix::{Credentials, UnixSocket};

use crate::bearer::{TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX};
use crate::{
    Address, Bearer, Capabilities, Descriptors, Network, Notice, NoticeCode, RxBatch, SendOutcome, Transmit,
};
use door::Door;
use inward::Inward;
use outward::Outward;

/// Largest datagram: one fills a train.
const MTU_BYTES: u16 = 65_504;
/// Nodes that send to this one, and those that it sends to.
const PEERS_MAX: usize = 64;
/// Of these, senders of each other user.
const STRANGERS_MAX: usize = 8;
/// Notices kept until somebody asks.
const NOTICES_MAX: usize = 64;
/// Newcomers and ends are looked for so often by a node that never sleeps.
const ATTEND_SPAN_NS: u64 = 1_000_000;
/// Who has ended its connection, but sits in its seat still, is watched for so long.
const DOUBT_SPAN_NS: u64 = 1_000_000_000;
/// The token of the door; those of connections count up from there.
const DOOR: u64 = 0;

/// Where those of `machine` are who share memory.
///
/// # Errors
/// The system does not tell.
pub fn shm_seats(machine: u64) -> io::Result<Vec<Address>> {
    Ok(door::seats(machine)?.into_iter().map(|seat| Address::Shm { machine, seat }).collect())
}

/// Whoever is killed loses its sockets one after the other: its connections may end while its door is still there. A socket that
/// waits at that door ends with it.
struct Doubt {
    seat: u64,
    /// Held for its end alone.
    _socket: UnixSocket,
    token: u64,
    since_ns: u64,
}

/// A node's way to others of its machine.
pub struct ShmBearer {
    machine: u64,
    seat: u64,
    capabilities: Capabilities,
    door: Door,
    epoll: Epoll,
    events: Events,
    tokens: u64,
    outs: Vec<Outward>,
    /// The one that was sent to last.
    recent: usize,
    /// Calls of `send`.
    sends: u64,
    /// Something was received since the last of them.
    heard: bool,
    ins: Vec<Inward>,
    /// The one that is read first.
    turn: usize,
    /// The seat that had no room at the last try, and for how much.
    full: Option<(u64, usize)>,
    /// The descriptor is readable, or may be.
    told: bool,
    /// One of those who send has ended its connection.
    any_gone: bool,
    /// Who may be gone.
    doubts: Vec<Doubt>,
    attended_at_ns: u64,
    notices: Vec<Notice>,
}

impl ShmBearer {
    /// A seat of its own on `machine`, a number that all have in common who can reach each other by abstract Unix sockets, and
    /// nobody else.
    ///
    /// # Errors
    /// The system has no socket or descriptor for it.
    pub fn open(machine: u64) -> io::Result<ShmBearer> {
        let mut seat = [0; 8];
        polyrail_sys::process::random_bytes(&mut seat)?;
        let seat = u64::from_ne_bytes(seat);
        let (door, epoll) = (Door::open(machine, seat)?, Epoll::new()?);
        epoll.add(door.as_raw_fd(), DOOR, Interest::READ)?;
        let capabilities = Capabilities {
            mtu_bytes: MTU_BYTES,
            segments_max: TRAIN_SEGMENTS_MAX as u8,
            gro: true,
            lossless: false,
            ordered: true,
            checksummed: true,
            send_buffer_bytes: DIRECT_ARENA_BYTES as u32,
            receive_buffer_bytes: DIRECT_ARENA_BYTES as u32,
            lends_pages: false,
            broadcast: false,
            near: true,
        };
        Ok(ShmBearer {
            machine,
            seat,
            capabilities,
            door,
            epoll,
            // One of each, who is in doubt, and the door.
            events: Events::new(3 * PEERS_MAX + 1),
            tokens: DOOR,
            outs: Vec::new(),
            recent: 0,
            sends: 0,
            heard: false,
            ins: Vec::new(),
            turn: 0,
            full: None,
            told: false,
            any_gone: false,
            doubts: Vec::new(),
            attended_at_ns: 0,
            notices: Vec::new(),
        })
    }

    fn out_to(&mut self, seat: u64) -> io::Result<usize> {
        if self.outs.get(self.recent).is_none_or(|out| out.seat != seat) {
            self.recent = match self.outs.iter().position(|out| out.seat == seat) {
                Some(known) => known,
                None => self.reach(seat)?,
            };
        }
        Ok(self.recent)
    }

    /// Makes a way to a node that was not sent to before.
    fn reach(&mut self, seat: u64) -> io::Result<usize> {
        if self.outs.len() == PEERS_MAX {
            // What is in its ring is still read.
            let oldest = self.outs.iter().enumerate().min_by_key(|(_, out)| out.used_at);
            oldest.map(|(at, _)| at).map(|at| self.outs.swap_remove(at));
        }
        self.tokens += 1;
        let out = Outward::open(self.machine, (self.seat, seat), self.tokens)?;
        self.epoll.add(out.as_raw_fd(), out.token, Interest::READ)?;
        self.outs.push(out);
        Ok(self.outs.len() - 1)
    }

    /// Looks who has come, who calls, and who is gone.
    fn attend(&mut self) {
        (self.told, self.attended_at_ns) = (false, monotonic_ns());
        let mut events = std::mem::replace(&mut self.events, Events::new(1));
        // A signal may end it for nothing; what is missed then is seen the next time.
        let _ = self.epoll.wait(&mut events, Some(0));
        for token in events.iter().map(|event| event.token) {
            if token == DOOR {
                self.let_in();
            } else if let Some(at) = self.ins.iter().position(|one| one.token == token) {
                if self.ins[at].hear(self.machine) {
                    let _ = self.epoll.remove(self.ins[at].as_raw_fd());
                    self.any_gone = true;
                }
            } else if let Some(at) = self.outs.iter().position(|out| out.token == token)
                && self.outs[at].hear()
            {
                self.outs.swap_remove(at);
            } else if let Some(at) = self.doubts.iter().position(|doubt| doubt.token == token) {
                // It has shut its door, or this socket alone.
                let seat = self.doubts.swap_remove(at).seat;
                self.knock(seat);
            }
        }
        self.events = events;
        let now_ns = self.attended_at_ns;
        self.doubts.retain(|doubt| now_ns - doubt.since_ns < DOUBT_SPAN_NS);
    }

    /// Forgets those who are gone, once what they had put in was read.
    fn part(&mut self) {
        let over: Vec<Option<u64>> =
            self.ins.extract_if(.., |one| one.is_over()).map(|one| one.seat()).collect();
        self.any_gone = self.ins.iter().any(Inward::is_gone);
        for seat in over.into_iter().flatten() {
            if let Some(socket) = self.knock(seat) {
                self.doubt(seat, socket);
            }
        }
    }

    /// Looks whether anybody is still in a seat: one that lives may have ended a connection for want of room.
    fn knock(&mut self, seat: u64) -> Option<UnixSocket> {
        let knocked = door::knock(self.machine, seat);
        if matches!(&knocked, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused) {
            self.note(Notice::Gone { to: Address::Shm { machine: self.machine, seat } });
        }
        knocked.ok()
    }

    fn doubt(&mut self, seat: u64, socket: UnixSocket) {
        self.tokens += 1;
        let (token, since_ns) = (self.tokens, monotonic_ns());
        let has_room = self.doubts.len() < PEERS_MAX;
        if has_room && self.epoll.add(socket.as_raw_fd(), token, Interest::READ).is_ok() {
            self.doubts.push(Doubt { seat, _socket: socket, token, since_ns });
        }
    }

    fn has_seat_for(&self, who: Credentials) -> bool {
        let of_user = || self.ins.iter().filter(|one| one.uid() == who.uid).count();
        self.ins.len() < PEERS_MAX && (who.uid == self.door.uid() || of_user() < STRANGERS_MAX)
    }

    fn let_in(&mut self) {
        while let Some((socket, who)) = self.door.next() {
            if !self.has_seat_for(who) {
                // It learns that by the end of the connection.
                continue;
            }
            self.tokens += 1;
            if self.epoll.add(socket.as_raw_fd(), self.tokens, Interest::READ).is_err() {
                continue;
            }
            let mut newcomer = Inward::new(socket, who, self.tokens);
            // Its first word has come with it, most likely.
            if !newcomer.hear(self.machine) {
                self.ins.push(newcomer);
            }
        }
    }

    fn note(&mut self, notice: Notice) {
        // Nobody is told twice at a time, lest who is not there drive out who is gone.
        if self.notices.len() < NOTICES_MAX && !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }
}

impl Bearer for ShmBearer {
    fn name(&self) -> &str {
        "shm"
    }

    fn device(&self) -> Option<&str> {
        None
    }

    fn local(&self) -> Network {
        Network { address: Address::Shm { machine: self.machine, seat: self.seat }, prefix_bits: 64 }
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> SendOutcome {
        let largest = transmit.segment_bytes.min(transmit.bytes);
        let bounds = transmit.segments() > TRAIN_SEGMENTS_MAX || transmit.bytes > TRAIN_BYTES_MAX;
        if bounds || largest > usize::from(MTU_BYTES) {
            return SendOutcome::TooLarge;
        }
        let seat = match transmit.to {
            Address::Shm { machine, seat } if machine == self.machine => seat,
            _ => return SendOutcome::Failed(io::ErrorKind::InvalidInput.into()),
        };
        let at = match self.out_to(seat) {
            Ok(at) => at,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.note(Notice::Unreachable { to: transmit.to, code: NoticeCode::Port });
                return SendOutcome::Sent;
            }
            // It has more newcomers than it has looked at yet.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return SendOutcome::Dropped,
            Err(error) => return SendOutcome::Failed(error),
        };
        self.sends += 1;
        self.outs[at].used_at = self.sends;
        if std::mem::take(&mut self.heard) {
            self.outs[at].rest();
        }
        let outcome = self.outs[at].send(transmit);
        self.full = matches!(outcome, SendOutcome::WouldBlock).then_some((seat, transmit.bytes));
        outcome
    }

    fn broadcast(&mut self, _bytes: &[u8]) -> SendOutcome {
        SendOutcome::Failed(io::ErrorKind::Unsupported.into())
    }

    fn recv(&mut self, batch: &mut RxBatch, thorough: bool) -> io::Result<usize> {
        if self.told || thorough && monotonic_ns() - self.attended_at_ns >= ATTEND_SPAN_NS {
            self.attend();
        }
        let (before, count) = (batch.len(), self.ins.len());
        for step in 0..count {
            let at = (self.turn + step) % count;
            self.ins[at].take(self.machine, batch);
            if batch.spare() == 0 {
                self.turn = at + 1;
                break;
            }
        }
        if self.any_gone {
            self.part();
        }
        let count = batch.len() - before;
        self.heard |= count > 0;
        Ok(count)
    }

    fn prefer(&mut self, _fd: RawFd) -> bool {
        self.told = true;
        true
    }

    fn recv_beacons(&mut self, _batch: &mut RxBatch) -> io::Result<usize> {
        self.attend();
        self.part();
        Ok(0)
    }

    fn notices(&mut self, out: &mut Vec<Notice>) {
        out.append(&mut self.notices);
    }

    fn writable(&mut self) -> bool {
        let Some((seat, bytes)) = self.full else { return true };
        self.outs.iter_mut().find(|out| out.seat == seat).is_none_or(|out| out.takes(bytes))
    }

    fn backlog_bytes(&mut self) -> u32 {
        0
    }

    fn set_send_buffer(&mut self, _bytes: u32) {}

    /// One for everything: a sender that was refused finds it readable as soon as there is room again.
    fn fds(&self) -> Descriptors {
        let all = self.epoll.as_raw_fd();
        Descriptors { data: vec![all], room: Some(all), beacon: None }
    }

    fn has_senders(&self) -> bool {
        !self.ins.is_empty()
    }

    fn doze(&mut self, names: bool) -> bool {
        // Else the descriptor would stay readable, for nothing, until it is looked there anyway.
        let knows_others = !self.ins.is_empty() || !self.outs.is_empty();
        self.told |= knows_others && !names;
        self.ins.iter().for_each(Inward::await_data);
        self.ins.iter_mut().any(Inward::has_something)
    }

    fn rouse(&mut self) {
        self.ins.iter().for_each(Inward::forget_sleep);
    }
}

#[cfg(test)]
mod tests;
