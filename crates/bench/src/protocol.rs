//! The trait behind which every protocol is measured, and the list of those that exist.

mod byte_stream;
mod mptcp;
#[cfg(not(feature = "zmq"))]
mod no_zmq;
mod packet_socket;
mod pipes;
pub(crate) mod polyrail;
mod sctp;
mod shared_memory;
mod stream_server;
mod stream_socket;
mod tcp;
mod tipc;
mod transaction;
mod udp;
mod udp_gso;
mod unix;
#[cfg(feature = "zmq")]
mod zmq;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::args::SendKind;
pub use crate::control::Setup;
use crate::netns::Testbed;
use crate::workload::Workload;

/// A way to carry messages between two processes.
pub trait Protocol: Sync {
    /// The name used on the command line and in reports.
    fn name(&self) -> &'static str;

    /// One line about what is measured under this name.
    fn about(&self) -> &'static str;

    /// Whether it promises that everything arrives, once and in order.
    fn reliable(&self) -> bool {
        true
    }

    /// Payload of a full packet of 1,500 bytes, in bytes.
    fn packet_payload(&self) -> usize {
        1_448
    }

    /// The congestion control that is named to the kernel; none: the system's, or it has none.
    fn congestion(&self) -> Option<&'static str> {
        None
    }

    /// How far its messages go.
    fn reach(&self) -> Reach {
        Reach::Network
    }

    /// Whether it uses every link at once.
    fn striped(&self) -> bool {
        false
    }

    /// Which of so many links it uses.
    fn links(&self, count: usize) -> Range<usize> {
        if self.striped() { 0..count } else { 0..count.min(1) }
    }

    /// Whether it goes on when the link it uses is cut and there is another.
    fn fails_over(&self) -> bool {
        self.striped()
    }

    /// Whether this machine has it.
    ///
    /// # Errors
    /// The reason why not and the way to get it.
    fn available(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether it takes part where no protocols are named.
    fn is_usual(&self) -> bool {
        true
    }

    /// Whether it can do this workload with messages of this size, which is enough for a number.
    ///
    /// # Errors
    /// The reason why not.
    fn supports(&self, _workload: Workload, _size: usize) -> Result<(), String> {
        Ok(())
    }

    /// Whether it can send messages of this size with socket buffers of `bytes` instead of the system's own.
    ///
    /// # Errors
    /// The reason why not.
    fn supports_buffers(&self, _size: usize, _bytes: usize) -> Result<(), String> {
        Ok(())
    }

    /// Changes the testbed as the protocol needs it; `receivers` are the nodes at which anything is received.
    ///
    /// # Errors
    /// The reason why it cannot be used there.
    fn prepare(&self, _testbed: &Testbed, _receivers: &[usize]) -> Result<(), String> {
        Ok(())
    }

    /// Begins to listen, as the receiver.
    ///
    /// # Errors
    /// What the machine refuses.
    fn listen(&self, setup: &Setup) -> io::Result<Box<dyn Listener>>;

    /// Connects to a listening receiver, as the sender.
    ///
    /// # Errors
    /// What the machine refuses, or nobody answers within `timeout`.
    fn connect(&self, setup: &Setup, address: &str, timeout: Duration) -> io::Result<Box<dyn Pipe>>;

    /// Begins to listen for several flows that go side by side, one listener each.
    ///
    /// # Errors
    /// What the machine refuses.
    fn listen_flows(&self, setups: &[Setup]) -> io::Result<Vec<Box<dyn Listener>>> {
        setups.iter().map(|setup| self.listen(setup)).collect()
    }

    /// Connects several flows.
    ///
    /// # Errors
    /// What the machine refuses, or nobody answers within `timeout`.
    fn connect_flows(&self, flows: &[Flow], timeout: Duration) -> io::Result<Pipes> {
        flows.iter().map(|flow| self.connect(flow.setup, flow.address, timeout)).collect()
    }

    /// How it makes transactions; `None`: it opens no connection for each message.
    fn transactor(&self) -> Option<&dyn Transactor> {
        None
    }

    /// How it sends to several nodes at once; `None`: it does not.
    fn caster(&self) -> Option<&dyn Caster> {
        None
    }

    /// How it serves several clients at once; `None`: it does not.
    fn hub(&self) -> Option<&dyn Hub> {
        None
    }

    /// Whether one of its flows can be put before another.
    fn has_classes(&self) -> bool {
        false
    }

    /// Whether messages can be sent that way. Where they cannot they are sent as slices.
    fn offers(&self, send: SendKind) -> bool {
        send == SendKind::Slice
    }

    /// Whether it is a socket of bytes, whose reading calls can be told to return whole messages only.
    fn reads_whole(&self) -> bool {
        false
    }

    /// Whether threads of its own carry the messages: beside a thread that spins, each needs a core.
    fn has_carrying_threads(&self) -> bool {
        false
    }
}

/// What makes transactions: a connection, one message each way, and its end.
pub trait Transactor: Sync {
    /// Begins to answer.
    ///
    /// # Errors
    /// What the machine refuses.
    fn answerer(&self, setup: &Setup) -> io::Result<Box<dyn Answerer>>;

    /// What calls the answerer at `address`. Nothing is connected yet.
    ///
    /// # Errors
    /// What the machine refuses.
    fn caller(&self, setup: &Setup, address: &str) -> io::Result<Box<dyn Caller>>;
}

/// The side of transactions that is called.
pub trait Answerer {
    /// Where it is, in the protocol's own notation.
    fn address(&self) -> String;

    /// Waits for a caller for one turn at most, gives it its message back and ends the connection. False: nobody called.
    ///
    /// # Errors
    /// A connection that broke, or a caller that is silent.
    fn answer(&mut self) -> io::Result<bool>;
}

/// The side of transactions that calls.
pub trait Caller {
    /// Connects, sends, fills `answer` and waits until the other side has ended the connection.
    ///
    /// # Errors
    /// What the machine refuses, a connection that broke, or an answerer that is silent.
    fn call(&mut self, message: &[u8], answer: &mut [u8]) -> io::Result<()>;
}

/// What sends each message to several nodes.
pub trait Caster: Sync {
    /// Begins to listen at the node of number `setup.flow`: up to `setup.member_ports` pipes, each of which gets every message.
    ///
    /// # Errors
    /// What the machine refuses.
    fn members(&self, setup: &Setup) -> io::Result<Pipes>;

    /// What sends each message to the pipes of so many nodes, once all of them are found.
    ///
    /// # Errors
    /// What the machine refuses, or one of them is not found within `timeout`.
    fn cast(&self, setup: &Setup, nodes: u32, timeout: Duration) -> io::Result<Box<dyn Pipe>>;
}

/// What serves several clients at once, each of which connects as a sender does ([`Protocol::connect`]).
pub trait Hub: Sync {
    /// Begins to serve so many clients.
    ///
    /// # Errors
    /// What the machine refuses.
    fn server(&self, setup: &Setup, clients: u32) -> io::Result<Box<dyn Server>>;
}

/// One place that several clients send to.
pub trait Server {
    /// Where clients connect to, in the protocol's own notation.
    fn address(&self) -> String;

    /// Waits until all clients are there.
    ///
    /// # Errors
    /// One did not come within `timeout`, or the machine refuses.
    fn accept(&mut self, timeout: Duration) -> io::Result<()>;

    /// Receives what is there, waiting for one turn at most, and gives the number of messages. Each is handed to `sink`, and goes
    /// back to the client it came from where that says so.
    ///
    /// # Errors
    /// A client has ended, or takes no answer.
    fn serve(&mut self, sink: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<usize>;
}

/// How far messages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// To other machines.
    Network,
    /// To other nodes of a testbed, which it needs to have prepared.
    Testbed,
    /// Not beyond this one.
    Machine,
}

/// One of several flows that are connected side by side.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// Its conditions.
    pub setup: &'a Setup,
    /// Where its listener is.
    pub address: &'a str,
}

/// The ends of several flows.
pub type Pipes = Vec<Box<dyn Pipe>>;

/// A receiver that waits for its sender.
pub trait Listener {
    /// Where the sender must connect to, in the protocol's own notation.
    fn address(&self) -> String;

    /// Waits for the sender.
    ///
    /// # Errors
    /// Nobody came within `timeout`, or the machine refuses.
    fn accept(self: Box<Self>, timeout: Duration) -> io::Result<Box<dyn Pipe>>;
}

/// One end of a connected pair. Messages all have the size given at setup.
pub trait Pipe: Send {
    /// Sends a message, waiting for one turn at most. `false`: not yet (or only a part of it); call again with the
    /// same message.
    ///
    /// # Errors
    /// The pipe is broken.
    fn send(&mut self, message: &[u8]) -> io::Result<bool>;

    /// Sends messages in order, by one call where it has one for several, waiting for one turn at most; how many. If not all: call again
    /// with the others.
    ///
    /// # Errors
    /// The pipe is broken.
    fn send_each(&mut self, messages: &[Vec<u8>]) -> io::Result<usize> {
        for (count, message) in messages.iter().enumerate() {
            if !self.send(message)? {
                return Ok(count);
            }
        }
        Ok(messages.len())
    }

    /// Sends what was kept back to be sent with more, waiting for one turn at most; whether nothing of it is left.
    ///
    /// # Errors
    /// The pipe is broken.
    fn flush(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    /// Receives what is there, waiting for one turn at most; hands each message to `sink`, gives their number.
    ///
    /// # Errors
    /// The pipe is broken, or ended by the other side (`UnexpectedEof`).
    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize>;
}

/// Every protocol that this build knows.
pub fn all() -> Vec<&'static dyn Protocol> {
    let mut list: Vec<&'static dyn Protocol> = vec![
        &polyrail::ADAPTIVE,
        &polyrail::MESSAGES,
        &polyrail::BYTES,
        &polyrail::Multicast,
        &tcp::CUBIC,
        &tcp::BBR,
        &tcp::NODELAY,
        &udp::PLAIN,
        &udp::ADDRESSED,
        &udp::GSO,
        &mptcp::CUBIC,
        &mptcp::BBR,
        &sctp::Sctp,
    ];
    list.extend(polyrail::POLICIES.iter().map(|p| p as &dyn Protocol));
    list.extend(
        [&polyrail::FIRST, &polyrail::LAST, &polyrail::ATTACHED, &polyrail::HOSTED]
            .map(|p| p as &dyn Protocol),
    );
    list.extend(tipc::ALL.map(|p| p as &dyn Protocol));
    list.extend([&unix::STREAM, &unix::SEQPACKET, &unix::DATAGRAM].map(|p| p as &dyn Protocol));
    list.push(&pipes::PipePair);
    list.extend([&shared_memory::CACHE_LINE, &shared_memory::MEMCPY].map(|p| p as &dyn Protocol));
    #[cfg(feature = "zmq")]
    list.push(&zmq::Zmq);
    #[cfg(not(feature = "zmq"))]
    list.push(&no_zmq::NoZmq);
    list
}

/// Polyrail with every policy, the usual one first.
pub fn policies() -> Vec<&'static dyn Protocol> {
    let others = polyrail::POLICIES.iter().map(|policy| policy as &dyn Protocol);
    std::iter::once(&polyrail::ADAPTIVE as &dyn Protocol).chain(others).collect()
}

/// The protocol of this name.
pub fn find(name: &str) -> Option<&'static dyn Protocol> {
    all().into_iter().find(|protocol| protocol.name() == name)
}

/// A name on this machine that no other process and no other end of this one has.
fn local_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("polyrail-bench-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests;
