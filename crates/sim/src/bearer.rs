//! One station of the simulated network behind the trait that the real bearers implement.

use crate::network::{Network, Sent, Station};
use polyrail_bearer::{
    Address, Bearer, Capabilities, Descriptors, Network as Subnet, Notice, NoticeCode, RxBatch, SendOutcome,
    TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, Transmit,
};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

/// The network as it is shared by all bearers of a run. The run is single-threaded; the lock only satisfies
/// `Bearer: Send`.
pub type SharedNetwork = Arc<Mutex<Network>>;

const UDP_PORT: u16 = 7430;

/// Takes the network for a moment.
pub fn lock(network: &SharedNetwork) -> MutexGuard<'_, Network> {
    network.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The address of `node` on `rail`: each rail is a subnet of its own.
pub fn address(node: usize, rail: usize) -> Address {
    let ip = Ipv4Addr::new(10, 0, rail as u8, node as u8 + 1);
    Address::Ip(SocketAddr::from((ip, UDP_PORT)))
}

/// The node and rail behind an address; `None` if it is not one of ours.
fn node_and_rail(address: &Address) -> Option<(usize, usize)> {
    match address {
        Address::Ip(SocketAddr::V4(ip)) => {
            let [ten, zero, rail, host] = ip.ip().octets();
            let ours = ten == 10 && zero == 0 && host > 0 && ip.port() == UDP_PORT;
            ours.then(|| (usize::from(host) - 1, usize::from(rail)))
        }
        _ => None,
    }
}

/// A node's attachment to a rail.
#[derive(Debug)]
pub struct SimBearer {
    network: SharedNetwork,
    station: Station,
    rail: usize,
    name: String,
    capabilities: Capabilities,
    train: Vec<u8>,
}

impl SimBearer {
    /// The bearer of `node` on `rail`.
    pub fn new(network: &SharedNetwork, node: usize, rail: usize) -> SimBearer {
        let (station, conditions) = {
            let network = lock(network);
            (network.station(node, rail), *network.conditions(rail))
        };
        let capabilities = Capabilities {
            mtu_bytes: conditions.mtu_bytes as u16,
            segments_max: TRAIN_SEGMENTS_MAX as u8,
            gro: true,
            lossless: false,
            ordered: !conditions.reorder,
            checksummed: true,
            send_buffer_bytes: conditions.sndbuf_bytes as u32,
            receive_buffer_bytes: conditions.rcvbuf_bytes as u32,
            lends_pages: false,
            broadcast: true,
            near: false,
        };
        let name = format!("sim/rail{rail}");
        SimBearer { network: Arc::clone(network), station, rail, name, capabilities, train: Vec::new() }
    }

    fn hand_over(&mut self, to: Option<Station>, segment: usize) -> SendOutcome {
        match lock(&self.network).send(self.station, to, &self.train, segment) {
            Sent::Taken => SendOutcome::Sent,
            Sent::WouldBlock => SendOutcome::WouldBlock,
            Sent::Dropped => SendOutcome::Dropped,
        }
    }

    fn receive(
        &self,
        batch: &mut RxBatch,
        mut next: impl FnMut(&mut Network) -> Option<crate::network::Unit>,
    ) -> usize {
        let mut network = lock(&self.network);
        let mut groups = 0;
        while batch.spare() > 0 {
            let Some(unit) = next(&mut network) else { break };
            let (node, rail) = network.place(unit.from);
            batch.push(address(node, rail), &unit.bytes, unit.segment, false);
            groups += 1;
        }
        groups
    }
}

impl Bearer for SimBearer {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> Option<&str> {
        None
    }

    fn local(&self) -> Subnet {
        let (node, rail) = lock(&self.network).place(self.station);
        Subnet { address: address(node, rail), prefix_bits: 24 }
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> SendOutcome {
        let largest = transmit.segment_bytes.min(transmit.bytes);
        if largest > usize::from(self.capabilities.mtu_bytes)
            || transmit.segments() > TRAIN_SEGMENTS_MAX
            || transmit.bytes > TRAIN_BYTES_MAX
        {
            return SendOutcome::TooLarge;
        }
        let to = {
            let network = lock(&self.network);
            match node_and_rail(&transmit.to) {
                Some((node, rail)) if rail == self.rail && node < network.nodes() => {
                    network.station(node, rail)
                }
                _ => return SendOutcome::Failed(io::ErrorKind::NetworkUnreachable.into()),
            }
        };
        self.train.clear();
        for slice in transmit.slices {
            self.train.extend_from_slice(slice);
        }
        assert_eq!(self.train.len(), transmit.bytes, "the train's length is the sum of its slices");
        self.hand_over(Some(to), transmit.segment_bytes)
    }

    fn broadcast(&mut self, bytes: &[u8]) -> SendOutcome {
        if bytes.len() > usize::from(self.capabilities.mtu_bytes) {
            return SendOutcome::TooLarge;
        }
        self.train.clear();
        self.train.extend_from_slice(bytes);
        self.hand_over(None, bytes.len())
    }

    fn recv(&mut self, batch: &mut RxBatch, _thorough: bool) -> io::Result<usize> {
        let station = self.station;
        Ok(self.receive(batch, |network| network.recv(station)))
    }

    fn recv_beacons(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        let station = self.station;
        Ok(self.receive(batch, |network| network.recv_beacon(station)))
    }

    fn notices(&mut self, out: &mut Vec<Notice>) {
        let mut network = lock(&self.network);
        for about in network.take_notices(self.station) {
            let (node, rail) = network.place(about);
            out.push(Notice::Unreachable { to: address(node, rail), code: NoticeCode::Port });
        }
    }

    fn writable(&mut self) -> bool {
        lock(&self.network).writable(self.station)
    }

    fn backlog_bytes(&mut self) -> u32 {
        lock(&self.network).backlog_bytes(self.station) as u32
    }

    fn set_send_buffer(&mut self, bytes: u32) {
        let granted = bytes.clamp(4_608, 4 << 20);
        lock(&self.network).set_send_buffer(self.station, u64::from(granted));
        self.capabilities.send_buffer_bytes = granted;
    }

    fn fds(&self) -> Descriptors {
        Descriptors::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Conditions, EgressKind};
    use std::io::IoSlice;

    fn pair(conditions: Conditions) -> (SharedNetwork, SimBearer, SimBearer) {
        let network = Arc::new(Mutex::new(Network::new(2, vec![conditions, conditions], 1)));
        let (a, b) = (SimBearer::new(&network, 0, 1), SimBearer::new(&network, 1, 1));
        (network, a, b)
    }

    fn settle(network: &SharedNetwork) {
        while lock(network).next_at_ns().is_some() {
            lock(network).step();
        }
    }

    fn send(bearer: &mut SimBearer, to: Address, bytes: &[u8], segment_bytes: usize) -> SendOutcome {
        let (head, tail) = bytes.split_at(bytes.len() / 3);
        let slices = [IoSlice::new(head), IoSlice::new(tail)];
        bearer.send(&Transmit {
            to,
            segment_bytes,
            bytes: bytes.len(),
            slices: &slices,
            express: false,
            lend: false,
            dscp: 0,
        })
    }

    #[test]
    fn a_train_arrives_as_one_group() {
        let (network, mut a, mut b) = pair(Conditions::default());
        let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        assert!(matches!(send(&mut a, b.local().address, &bytes, 1_472), SendOutcome::Sent));
        let mut batch = RxBatch::new(4);
        assert_eq!(b.recv(&mut batch, true).unwrap(), 0, "not before its time");
        settle(&network);
        assert_eq!(b.recv(&mut batch, true).unwrap(), 1);
        let group = batch.iter().next().unwrap();
        assert_eq!((group.from, group.stride, group.bytes), (a.local().address, 1_472, &bytes[..]));
    }

    #[test]
    fn rails_do_not_reach_each_other() {
        let (network, mut a, _b) = pair(Conditions::default());
        let other = SimBearer::new(&network, 1, 0).local().address;
        assert!(!a.local().reaches(&other));
        assert!(matches!(send(&mut a, other, b"x", 1), SendOutcome::Failed(_)));
        assert!(matches!(send(&mut a, address(1, 1), &[0; 1_473], 1_473), SendOutcome::TooLarge));
    }

    #[test]
    fn beacons_reach_the_others_but_not_the_sender() {
        let (network, mut a, mut b) = pair(Conditions::default());
        a.broadcast(b"here I am");
        settle(&network);
        let mut batch = RxBatch::new(4);
        assert_eq!(a.recv_beacons(&mut batch).unwrap(), 0);
        assert_eq!(b.recv(&mut batch, true).unwrap(), 0);
        assert_eq!(b.recv_beacons(&mut batch).unwrap(), 1);
    }

    #[test]
    fn a_closed_port_is_reported() {
        let (network, mut a, _b) = pair(Conditions { egress: EgressKind::NoQueue, ..Conditions::default() });
        lock(&network).set_listening(1, false);
        send(&mut a, address(1, 1), b"x", 1);
        settle(&network);
        let mut notices = Vec::new();
        a.notices(&mut notices);
        assert_eq!(notices, [Notice::Unreachable { to: address(1, 1), code: NoticeCode::Port }]);
    }
}
