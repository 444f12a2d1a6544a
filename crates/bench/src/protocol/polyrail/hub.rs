//! One port that several clients send to.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use polyrail::{Class, Destination, Node, Port, SendError};

use super::{Polyrail, PolyrailListener, TURN_MESSAGES_MAX, class_of};
use crate::clock::now_ns;
use crate::control::Setup;
use crate::protocol::{Hub, Listener, Server};
use crate::wait::Waiter;

/// How long a client may take no answer before it has failed.
const STUCK_AFTER_NS: u64 = 6_000_000_000;

impl Hub for Polyrail {
    fn server(&self, setup: &Setup, _clients: u32) -> io::Result<Box<dyn Server>> {
        let node = self.receiver(setup)?;
        let listener = PolyrailListener::open(&node, setup, self.door(setup))?;
        let address = listener.address();
        Ok(Box::new(PolyrailServer {
            port: listener.pipe.port,
            address,
            class: class_of(setup),
            _node: node,
        }))
    }
}

struct PolyrailServer {
    port: Port,
    address: String,
    class: Class,
    /// The node lives as long as its port is used.
    _node: Arc<Node>,
}

impl Server for PolyrailServer {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self, _timeout: Duration) -> io::Result<()> {
        // Messages come without a connection.
        Ok(())
    }

    fn serve(&mut self, sink: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<usize> {
        let mut next = self.port.recv_timeout(Waiter::BLOCK_MAX).map_err(io::Error::other)?;
        let mut count = 0;
        while let Some(message) = next {
            if sink(message.bytes()) {
                self.answer(Destination::Port(message.from()), message.bytes())?;
            }
            drop(message);
            count += 1;
            if count == TURN_MESSAGES_MAX {
                break;
            }
            next = self.port.recv_arrived().map_err(io::Error::other)?;
        }
        Ok(count)
    }
}

impl PolyrailServer {
    fn answer(&self, to: Destination, message: &[u8]) -> io::Result<()> {
        let mut stuck_ns = None;
        loop {
            match self.port.send_with(to, self.class, None, message, Some(Waiter::BLOCK_MAX)) {
                Ok(()) => return Ok(()),
                Err(SendError::Blocked) => {
                    let now = now_ns();
                    if now - *stuck_ns.get_or_insert(now) > STUCK_AFTER_NS {
                        return Err(io::Error::new(io::ErrorKind::TimedOut, "a client takes no answer"));
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}
