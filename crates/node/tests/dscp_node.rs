//! What a network sees of the classes of messages: nodes on two hosts with two cables between them, where the system counts.

#![forbid(unsafe_code)]

mod cabled;

use std::process::Command;

use cabled::{CABLES, Cabled, Host, PATIENCE, SERVICE};
use polyrail::{Class, ClassDscps, Config, Dscp};
use std::time::Duration;

/// Busy machines stall.
const TOLERANCE: Duration = Duration::from_secs(5);

/// Has `host` count what comes in by both cables with each of these DSCPs.
fn count(host: &Host, dscps: &[u8]) {
    host.command("nft", "add table netdev marks");
    for [_, device] in CABLES {
        let hook = format!("{{ type filter hook ingress device {device} priority 0 ; }}");
        host.command("nft", &format!("add chain netdev marks {device} {hook}"));
        for dscp in dscps {
            host.command(
                "nft",
                &format!("add rule netdev marks {device} udp dport 1-65535 ip dscp {dscp} counter"),
            );
        }
    }
}

/// Bytes with each of those DSCPs since counting began. (The packets of a train count as one here.)
fn counted(host: &Host) -> Vec<u64> {
    let mut sums = Vec::new();
    for [_, device] in CABLES {
        let ask = move || Command::new("nft").args(["list", "chain", "netdev", "marks", device]).output();
        let text = String::from_utf8(host.run(ask).unwrap().stdout).unwrap();
        let counts = text.split(" bytes ").skip(1).map(|rest| rest.split_whitespace().next().unwrap());
        for (index, bytes) in counts.enumerate() {
            sums.resize(sums.len().max(index + 1), 0);
            sums[index] += bytes.parse::<u64>().unwrap();
        }
    }
    sums
}

/// Sends so many messages of a class one after the other, each confirmed before the next leaves.
fn send(world: &Cabled, class: Class, messages: usize, bytes: usize) {
    for _ in 0..messages {
        world.ports[0].send_with(SERVICE.into(), class, None, &vec![7; bytes], Some(PATIENCE)).unwrap();
        assert_eq!(world.ports[1].recv_timeout(PATIENCE).unwrap().expect("the message").bytes().len(), bytes);
        world.ports[0].flush(Some(PATIENCE)).unwrap();
    }
}

#[test]
fn the_network_sees_each_class_by_its_dscp() {
    let claim = "the_network_sees_each_class_by_its_dscp";
    let dscp = |name: &str| name.parse::<Dscp>().unwrap();
    let dscps =
        ClassDscps { control: dscp("cs6"), urgent: dscp("ef"), normal: dscp("af21"), bulk: dscp("cs1") };
    let settings = Config::new().tolerance(TOLERANCE).dscp(dscps);
    let Some(world) = Cabled::with(claim, settings) else { return };
    count(&world.hosts[1], &[48, 46, 18, 8, 0]);
    for (class, at) in [(Class::Urgent, 1), (Class::Normal, 2), (Class::Bulk, 3)] {
        for (messages, bytes) in [(300, 8), (3, 1 << 20)] {
            let before = counted(&world.hosts[1]);
            send(&world, class, messages, bytes);
            let after = counted(&world.hosts[1]);
            let news: Vec<u64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
            assert!(news[at] >= (messages * bytes) as u64, "{class:?} {news:?}");
            let others: u64 = (1..4).filter(|other| *other != at).map(|other| news[other]).sum();
            assert_eq!((others, news[4]), (0, 0), "no other class, and none without: {news:?}");
        }
    }
    assert!(counted(&world.hosts[1])[0] > 0, "what is no message");
    for bearer in world.nodes[0].status().bearers {
        assert!(bearer.express_frames.is_none_or(|(sent, _)| sent == 0), "frames have no DSCP: {bearer:?}");
    }
}

#[test]
fn by_default_nothing_has_a_dscp() {
    let Some(world) = Cabled::new("by_default_nothing_has_a_dscp", TOLERANCE) else { return };
    count(&world.hosts[1], &(0..64).collect::<Vec<_>>());
    for class in Class::ALL {
        send(&world, class, 20, 8);
        send(&world, class, 1, 1 << 20);
    }
    let bytes = counted(&world.hosts[1]);
    assert!(bytes[0] > 4 << 20, "{bytes:?}");
    assert_eq!(bytes[1..64], [0; 63]);
}
