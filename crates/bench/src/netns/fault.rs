//! What can go wrong with a link on purpose: carrier loss, black holes, random loss.
//!
//! Carrier loss is seen by the node that suffers it; a black hole is not, which is the harder case. Both kinds of
//! dropping sit at the receiving device, so that no sender is told of it by its own kernel.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::build::bridge_port;
use super::command::{NetnsError, run, run_with_input};
use super::spec::{Spec, device, relay_port};

/// Ethernet type of express frames, from docs/protocol.md §2.5. The bearer has the same number in `udp/express/frame.rs`;
/// it cannot be shared, for no arrow of ARCHITECTURE.md leads from the instrument to the bearers.
const EXPRESS_TYPE: &str = "0x88b5";

/// Ethernet type of the kernel's TIPC.
const TIPC_TYPE: &str = "0x88ca";

/// Which of a node's packets on a link vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Those that would arrive at the node.
    Into,
    /// Those that the node sends.
    OutOf,
    /// Both; the two switches are thrown by two commands started together, a few ms apart at most.
    Both,
}

/// A device at which packets can be dropped on arrival.
type Gate = (String, String);

/// Prepares the tables, so that switching later is one short command.
pub(super) fn prepare(spec: &Spec) -> Result<(), NetnsError> {
    let node_devices: Vec<String> = (0..spec.links.len()).map(device).collect();
    for node in 0..spec.nodes {
        nft(&spec.namespace(node), &table(&node_devices))?;
    }
    if spec.nodes > 2 {
        let ports: Vec<String> = (0..spec.nodes).map(bridge_port).collect();
        for link in 0..spec.links.len() {
            nft(&spec.bridge_namespace(link), &table(&ports))?;
        }
    }
    Ok(())
}

/// Takes away or gives back the carrier that `node` sees on a link, by setting the other end of the wire down.
pub(super) fn set_carrier(spec: &Spec, link: usize, node: usize, up: bool) -> Result<(), NetnsError> {
    let (namespace, device) = if spec.is_delayed(link) {
        // The relay holds the other end of the wire. The other node hears nothing, as behind a switch.
        (spec.relay_namespace(), relay_port(link, node))
    } else {
        opposite(spec, link, node)
    };
    run("ip", &["-n", &namespace, "link", "set", &device, if up { "up" } else { "down" }]).map(drop)
}

/// Switches a black hole; with `length` it closes by itself, exactly (the kernel times it).
pub(super) fn set_hole(
    spec: &Spec,
    link: usize,
    node: usize,
    direction: Direction,
    on: bool,
    length: Option<Duration>,
) -> Result<(), NetnsError> {
    let arriving = (spec.namespace(node), device(link));
    let leaving = opposite(spec, link, node);
    let gates: &[Gate] = match direction {
        Direction::Into => &[arriving],
        Direction::OutOf => &[leaving],
        Direction::Both => &[arriving, leaving],
    };
    let timeout = length.map_or(String::new(), |length| format!(" timeout {}ms", length.as_millis()));
    let verb = if on { "add" } else { "delete" };
    std::thread::scope(|scope| {
        let calls: Vec<_> = gates
            .iter()
            .map(|(namespace, device)| {
                let change = format!("{verb} element netdev polyrail holes {{ \"{device}\"{timeout} }}");
                scope.spawn(move || nft(namespace, &change))
            })
            .collect();
        calls.into_iter().try_for_each(|call| {
            call.join().unwrap_or_else(|_| Err(NetnsError::State("a switching thread panicked".into())))
        })
    })
}

/// Sets the share of IP packets, express frames (docs/protocol.md §2.5) and TIPC's packets dropped on arrival, at every node of a link.
pub(super) fn set_loss(spec: &Spec, link: usize, percent: f64) -> Result<(), NetnsError> {
    let device = device(link);
    let mut change = format!("flush chain netdev polyrail loss_{device}\n");
    // numgen compares whole numbers; a millionth is finer than any loss that can be told apart here.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100 percent, checked")]
    let millionths = (percent * 10_000.0).round() as u32;
    let chance = match millionths {
        0 => None,
        // nft refuses a comparison that is always true.
        1_000_000.. => Some(String::new()),
        _ => Some(format!("numgen random mod 1000000 < {millionths}")),
    };
    if let Some(chance) = chance {
        // Two counters in one rule: what came by, and what was lost of it.
        let packets = format!("meta protocol {{ ip, ip6, {EXPRESS_TYPE}, {TIPC_TYPE} }}");
        change +=
            &format!("add rule netdev polyrail loss_{device} {packets} counter {chance} counter drop\n");
    }
    (0..spec.nodes).try_for_each(|node| nft(&spec.namespace(node), &change))
}

/// Where what a node sends arrives: at the other node, or the bridge's port.
fn opposite(spec: &Spec, link: usize, node: usize) -> Gate {
    if spec.nodes == 2 {
        return (spec.namespace(1 - node), device(link));
    }
    (spec.bridge_namespace(link), bridge_port(node))
}

fn nft(namespace: &str, change: &str) -> Result<(), NetnsError> {
    run_with_input("ip", &["netns", "exec", namespace, "nft", "-f", "-"], change).map(drop)
}

fn table(devices: &[String]) -> String {
    let mut text = String::from("table netdev polyrail {\n set holes { type ifname; flags timeout; }\n");
    for device in devices {
        text += &format!(
            " chain loss_{device} {{ }}\n chain in_{device} {{ type filter hook ingress device \"{device}\" \
             priority 0; policy accept; meta iifname @holes counter drop; jump loss_{device}; }}\n"
        );
    }
    text + "}\n"
}
