//! What stands in the place of a bearer that was closed, until another one gets its number: it has nothing and takes nothing.

use polyrail_bearer::{
    Address, Bearer, Capabilities, Descriptors, Network, Notice, RxBatch, SendOutcome, Transmit,
};
use std::io;

/// The place, with the name of the bearer that was there: what is remembered of its links is told by it.
pub(super) struct Vacant(pub String);

const NOTHING: Capabilities = Capabilities {
    mtu_bytes: 0,
    segments_max: 1,
    gro: false,
    lossless: false,
    ordered: false,
    checksummed: false,
    send_buffer_bytes: 0,
    receive_buffer_bytes: 0,
    lends_pages: false,
    broadcast: false,
    near: false,
};

fn refusal() -> SendOutcome {
    SendOutcome::Failed(io::ErrorKind::NotConnected.into())
}

impl Bearer for Vacant {
    fn name(&self) -> &str {
        &self.0
    }

    fn device(&self) -> Option<&str> {
        None
    }

    fn local(&self) -> Network {
        Network { address: Address::Memory(0), prefix_bits: 0 }
    }

    fn capabilities(&self) -> &Capabilities {
        &NOTHING
    }

    fn send(&mut self, _: &Transmit<'_>) -> SendOutcome {
        refusal()
    }

    fn broadcast(&mut self, _: &[u8]) -> SendOutcome {
        refusal()
    }

    fn recv(&mut self, _: &mut RxBatch, _: bool) -> io::Result<usize> {
        Ok(0)
    }

    fn recv_beacons(&mut self, _: &mut RxBatch) -> io::Result<usize> {
        Ok(0)
    }

    fn notices(&mut self, _: &mut Vec<Notice>) {}

    fn writable(&mut self) -> bool {
        true
    }

    fn backlog_bytes(&mut self) -> u32 {
        0
    }

    fn set_send_buffer(&mut self, _: u32) {}

    fn fds(&self) -> Descriptors {
        Descriptors::default()
    }
}
