//! What an attached process and its node say to each other, beside what goes through memory: one packet each, JSON.

use crate::engine::Status;
use crate::node::events::NodeEvent;
use polyrail_proto::error::LinkSetError;
use polyrail_proto::id::{LinkId, NodeId, PortAddress};
use polyrail_proto::service::{Topic, Update};
use polyrail_proto::wire::LinkStatus;
use polyrail_shm::{Segment, Sizes};
use polyrail_sys::unix::UnixSocket;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Version of all that two processes must understand alike: these words, the commands of a queue, and how it lies in memory.
pub(super) const VERSION: u32 = 5;

/// Longest packet, bytes. What is longer goes through a file.
pub(super) const PACKET_BYTES_MAX: usize = 16 << 10;

/// What stands in a packet whose words are in the file that it brings.
const IN_FILE: &[u8] = b"@";

/// From a process to its node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(super) enum Ask {
    /// The first on each connection; answered by `Welcome`.
    Hello { version: u32, program: String },
    /// A port; answered by `Port`.
    Port { sq_entries: u32, cq_entries: u32, tx_bytes: u64, rx_bytes: u64 },
    /// A picture of the node; answered by `Status`.
    Status,
    /// How many messages of this process are not confirmed; answered by `Count`.
    Unconfirmed,
    /// An operator's word for a link; answered by `Done` or `LinkRefused`.
    SetLink { peer: NodeId, link: LinkId, status: LinkStatus },
    /// Answered by `Done`, and by a socket that updates come by.
    Subscribe { topic: Topic, timeout_ns: Option<u64> },
    /// Answered by `Done`, and by a socket that events come by.
    Events,
    /// Of a port: news are to be told by its socket. Answered by `Done`.
    Watch,
    /// Of a port: memory comes with it for a message that will be named by this number; answered by `Done`.
    Lend { number: u64 },
    /// Of a port: what is bound, for a message to the user; answered by `Text`.
    Bound,
    /// Of a port: who does not know yet what it waits for others to know; answered by `Names`.
    Behind,
    /// Of a port: who serves this, if it is one port of this machine only, and a ring to it for messages of this class if it has none:
    /// asked when nothing that it sent is under way; or a trunk, for connections. Answered by `Way`.
    Way { to: Target, class: u8, trunk: bool, rings: Vec<PortAddress> },
    /// Of a port: the ring or trunk to it that was announced under this number; answered by `Ring`.
    Take { number: u64 },
}

/// From the node to a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum Answer {
    /// It is attached. With the event counter that wakes the node.
    Welcome {
        node: NodeId,
        name: String,
        message_bytes_max: u64,
    },
    /// With its memory, that of its bell, and a socket of its own.
    Port {
        address: PortAddress,
    },
    Status {
        status: Box<Status>,
    },
    Count {
        count: u64,
    },
    LinkRefused {
        why: LinkSetError,
    },
    Text {
        text: String,
    },
    Names {
        names: Vec<String>,
    },
    /// With a ring and the bell of who receives by it, if there is to be a new one, then of a trunk the ring the other way, and a socket
    /// to the other end. Good while names are of this generation.
    Way {
        to: Option<PortAddress>,
        number: u64,
        generation: u64,
        refused: bool,
        same_user: bool,
        backlog: u32,
    },
    /// With the ring, the bell of who sends by it, and then as above.
    Ring {
        from: PortAddress,
        class: u8,
        same_user: bool,
    },
    Done,
    /// There is none, and why.
    Refused {
        code: Refusal,
        message: String,
    },
}

/// Where messages are to go that could go by a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Target {
    Port(PortAddress),
    Service { kind: u32, instance: u32 },
}

/// Why something was not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Refusal {
    /// It speaks another version.
    Version,
    /// What was asked makes no sense.
    Request,
    /// There are as many as there may be.
    TooMany,
    /// The lower bound is above the upper one.
    Inverted,
    /// The system refused.
    System,
}

/// By the socket of a subscription.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Told {
    pub update: Update,
}

/// By the socket of the events.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Happened {
    pub event: NodeEvent,
}

impl Ask {
    pub(super) fn port(sizes: Sizes) -> Ask {
        let Sizes { sq_entries, cq_entries, tx_bytes, rx_bytes } = sizes;
        Ask::Port { sq_entries, cq_entries, tx_bytes, rx_bytes }
    }
}

/// Sends words, by themselves or through a file. `WouldBlock`: whoever is there does not read.
pub(super) fn say(
    socket: &UnixSocket,
    words: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = serde_json::to_vec(words)?;
    if text.len() <= PACKET_BYTES_MAX {
        return socket.send(&text, descriptors);
    }
    let file = Segment::shared(text.len())?;
    file.write_at(0, &text);
    let file = file.fd().into_iter().chain(descriptors.iter().copied());
    socket.send(IN_FILE, &file.collect::<Vec<_>>())
}

/// What a packet says that `say` sent, with the descriptors that are its own.
pub(super) fn understand<T: DeserializeOwned>(
    bytes: &[u8],
    mut descriptors: Vec<OwnedFd>,
) -> io::Result<(T, Vec<OwnedFd>)> {
    if bytes != IN_FILE || descriptors.is_empty() {
        return Ok((serde_json::from_slice(bytes)?, descriptors));
    }
    let file = Segment::from_fd(descriptors.remove(0))?;
    let mut text = vec![0; file.len()];
    file.read_at(0, &mut text);
    // The file is as long as whole pages.
    let len = text.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    Ok((serde_json::from_slice(&text[..len])?, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_sys::eventfd::EventFd;
    use std::os::fd::AsFd;

    fn there_and_back(answer: &Answer) -> (Answer, usize) {
        let (one, other) = UnixSocket::pair().unwrap();
        let event = EventFd::new().unwrap();
        say(&one, answer, &[event.as_fd()]).unwrap();
        let mut buffer = [0; PACKET_BYTES_MAX];
        let packet = other.recv(&mut buffer).unwrap().unwrap();
        let (answer, descriptors) = understand(&buffer[..packet.bytes], packet.descriptors).unwrap();
        (answer, descriptors.len())
    }

    #[test]
    fn short_and_long_words_arrive_with_their_descriptors() {
        for len in [1, PACKET_BYTES_MAX, 10 * PACKET_BYTES_MAX] {
            let said = Answer::Text { text: "x".repeat(len) };
            let (Answer::Text { text }, 1) = there_and_back(&said) else { panic!("{len}") };
            assert_eq!(text.len(), len);
        }
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        assert!(understand::<Ask>(b"", Vec::new()).is_err());
        assert!(understand::<Ask>(b"@", Vec::new()).is_err());
        assert!(understand::<Ask>(br#"{"ask":"more"}"#, Vec::new()).is_err());
        assert!(
            understand::<Ask>(b"@", vec![EventFd::new().unwrap().as_fd().try_clone_to_owned().unwrap()])
                .is_err()
        );
    }
}
