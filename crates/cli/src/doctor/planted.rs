//! Pictures for the tests of the checks: a sound one, in which each test breaks what it is about.

use super::picture::{Bearer, Change, Link, NodePicture, Peer, Picture};
use polyrail::machine::{Feature, Interface, Machine};
use std::collections::BTreeMap;

fn interface(number: u8) -> Interface {
    let feature = |name: &str| Feature { name: name.into(), on: true, changeable: true };
    let own = format!("10.0.{number}.1").parse().unwrap();
    Interface {
        name: format!("eth{number}"),
        index: u32::from(number) + 2,
        up: true,
        loopback: false,
        hardware: true,
        lower: Vec::new(),
        mtu_bytes: 1500,
        addresses: vec![(own, 24)],
        chosen: Some(own),
        features: ["tx-checksum-ip-generic", "tx-udp-segmentation", "rx-gro"].map(feature).to_vec(),
        qdiscs: Vec::new(),
        rp_filter: Some(1),
        arp_ignore: Some(0),
        arp_announce: Some(0),
    }
}

fn bearer(number: u8) -> Bearer {
    Bearer {
        name: format!("udp/eth{number}"),
        interface: format!("eth{number}"),
        interface_index: Some(u32::from(number) + 2),
        address: format!("10.0.{number}.1:7430").parse().ok(),
        carrier: true,
        mtu_bytes: 1472,
        express_frames: true,
        buffer_bytes: (16 << 20, 2 << 20),
    }
}

fn link(number: u8) -> Link {
    Link {
        name: format!("beta/{number}"),
        peer: "beta".into(),
        bearer: format!("udp/eth{number}"),
        to: format!("10.0.{number}.2:7430").parse().ok(),
        state: "up".into(),
        state_before: "up".into(),
        age_s: 60.0,
        mtu_bytes: 1472,
        mtu_search: false,
        mtu_bearers_bytes: 1472,
        sent: 10_000,
        lost: 3,
        sent_meanwhile: 2,
        received_meanwhile: 2,
        shares_with: None,
        changes: vec![Change { to: "up".into(), why: "joined".into(), ago_s: 60.0 }],
    }
}

/// Two interfaces in networks of their own, a node that uses both, a peer with a link over each.
pub fn sound() -> Picture {
    let machine = Machine {
        interfaces: vec![interface(0), interface(1)],
        shortages: Vec::new(),
        buffer_max_bytes: (Some(8 << 20), Some(4 << 20)),
        may_send_frames: Some(true),
    };
    let peer = Peer {
        name: "beta".into(),
        up: true,
        uptime_s: 60.0,
        bearers: vec!["10.0.0.2:7430".parse().unwrap(), "10.0.1.2:7430".parse().unwrap()],
    };
    let node = NodePicture {
        name: "alpha".into(),
        bearers: vec![bearer(0), bearer(1)],
        missing: Vec::new(),
        lost: Vec::new(),
        peers: vec![peer],
        links: vec![link(0), link(1)],
        drops: BTreeMap::from([("version".to_owned(), 0), ("malformed".to_owned(), 0)]),
    };
    let way = |number: u8| (format!("10.0.{number}.2").parse().unwrap(), format!("eth{number}"));
    Picture { machine, node: Some(node), routes: BTreeMap::from([way(0), way(1)]) }
}

/// The same with something done to its second link.
pub fn with_link(change: impl Fn(&mut Link)) -> Picture {
    let mut picture = sound();
    change(&mut picture.node.as_mut().unwrap().links[1]);
    picture
}
