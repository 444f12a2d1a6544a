//! Makes the namespaces, devices, addresses and token buckets of a testbed.

use std::fmt::Write;

use super::command::{NetnsError, run, run_with_input};
use super::spec::{LinkSpec, Spec, device, relay_port};

/// Creates everything that `spec` names. What exists after an error is removed by [`destroy`].
pub(super) fn create(spec: &Spec, subnet: u8) -> Result<(), NetnsError> {
    for namespace in spec.namespaces() {
        run("ip", &["netns", "add", &namespace])?;
        quiet_duplicate_address_detection(&namespace);
    }
    run_with_input("ip", &["-batch", "-"], &veth_batch(spec))?;
    for node in 0..spec.nodes {
        let batch = node_batch(spec, subnet, node);
        run_with_input("ip", &["-n", &spec.namespace(node), "-batch", "-"], &batch)?;
    }
    let delayed: Vec<usize> = (0..spec.links.len()).filter(|&link| spec.is_delayed(link)).collect();
    if !delayed.is_empty() {
        let ports = delayed.iter().flat_map(|&link| (0..2).map(move |node| relay_port(link, node)));
        // Nothing of its own leaves them: no addresses, no neighbours.
        let batch: String = ports.map(|port| format!("link set {port} addrgenmode none up\n")).collect();
        run_with_input("ip", &["-n", &spec.relay_namespace(), "-batch", "-"], &batch)?;
    }
    if spec.nodes > 2 {
        for link in 0..spec.links.len() {
            let batch = bridge_batch(spec, link);
            run_with_input("ip", &["-n", &spec.bridge_namespace(link), "-batch", "-"], &batch)?;
        }
    }
    for (link, link_spec) in spec.links.iter().enumerate() {
        for (namespace, device) in ends(spec, link) {
            set_rate(&namespace, &device, link_spec)?;
            if !link_spec.gso {
                set_segmentation_off(&namespace, &device)?;
            }
        }
    }
    Ok(())
}

/// Removes the namespaces, and with them every device; ends the processes that live in them.
pub(super) fn destroy(spec: &Spec) -> Result<(), NetnsError> {
    let existing = run("ip", &["netns", "list"])?;
    let mut first_error = None;
    for namespace in spec.namespaces() {
        let exists = existing.lines().any(|line| line.split_whitespace().next() == Some(namespace.as_str()));
        if !exists {
            continue;
        }
        end_processes(&namespace);
        if let Err(error) = run("ip", &["netns", "del", &namespace]) {
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// Every end of a link where a token bucket sits: the nodes' devices and, with a bridge, the bridge's ports.
pub(super) fn ends(spec: &Spec, link: usize) -> Vec<(String, String)> {
    let nodes = (0..spec.nodes).map(|node| (spec.namespace(node), device(link)));
    if spec.nodes == 2 {
        return nodes.collect();
    }
    nodes.chain((0..spec.nodes).map(|node| (spec.bridge_namespace(link), bridge_port(node)))).collect()
}

/// Name of a bridge's port towards a node.
pub(super) fn bridge_port(node: usize) -> String {
    format!("n{node}")
}

/// Sets or removes the token bucket of one device.
pub(super) fn set_rate(namespace: &str, device: &str, link: &LinkSpec) -> Result<(), NetnsError> {
    let Some(rate_mbit) = link.rate_mbit else {
        // Removing what is not there is no error worth telling.
        let _ = run("tc", &["-n", namespace, "qdisc", "del", "dev", device, "root"]);
        return Ok(());
    };
    let rate = format!("{rate_mbit}mbit");
    let burst = format!("{}kb", link.burst_kb);
    let latency = format!("{}ms", link.latency_ms);
    let bucket = ["tbf", "rate", &rate, "burst", &burst, "latency", &latency];
    let args = [&["-n", namespace, "qdisc", "replace", "dev", device, "root"], bucket.as_slice()].concat();
    run("tc", &args).map(drop)
}

/// Sets the MTU of one device.
pub(super) fn set_mtu(namespace: &str, device: &str, mtu: u32) -> Result<(), NetnsError> {
    run("ip", &["-n", namespace, "link", "set", device, "mtu", &mtu.to_string()]).map(drop)
}

fn set_segmentation_off(namespace: &str, device: &str) -> Result<(), NetnsError> {
    let features = ["tso", "off", "gso", "off", "gro", "off", "tx-udp-segmentation", "off"];
    let args = [&["netns", "exec", namespace, "ethtool", "-K", device], features.as_slice()].concat();
    run("ip", &args).map(drop)
}

/// A fresh IPv6 address is "tentative" for a second; on a private wire that only delays the first packet.
fn quiet_duplicate_address_detection(namespace: &str) {
    let script = "for f in all default; do echo 0 > /proc/sys/net/ipv6/conf/$f/accept_dad; done";
    // A kernel without IPv6 has nothing to quiet.
    let _ = run("ip", &["netns", "exec", namespace, "sh", "-c", script]);
}

fn end_processes(namespace: &str) {
    let Ok(pids) = run("ip", &["netns", "pids", namespace]) else { return };
    let own = std::process::id();
    for pid in pids.lines().filter_map(|line| line.trim().parse::<i32>().ok()) {
        if u32::try_from(pid) == Ok(own) {
            continue;
        }
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            // It may have ended by itself meanwhile.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

fn veth_batch(spec: &Spec) -> String {
    let mut batch = String::new();
    for link in 0..spec.links.len() {
        let device = device(link);
        if spec.is_delayed(link) {
            for node in 0..2 {
                let (namespace, relay, port) =
                    (spec.namespace(node), spec.relay_namespace(), relay_port(link, node));
                // The relay's end takes whatever the node's may send.
                let _ = writeln!(
                    batch,
                    "link add name {device} netns {namespace} type veth peer name {port} netns {relay} mtu 65535"
                );
            }
            continue;
        }
        if spec.nodes == 2 {
            let (a, b) = (spec.namespace(0), spec.namespace(1));
            let _ =
                writeln!(batch, "link add name {device} netns {a} type veth peer name {device} netns {b}");
            continue;
        }
        let bridge = spec.bridge_namespace(link);
        for node in 0..spec.nodes {
            let (namespace, port) = (spec.namespace(node), bridge_port(node));
            let _ = writeln!(
                batch,
                "link add name {device} netns {namespace} type veth peer name {port} netns {bridge}"
            );
        }
    }
    batch
}

fn node_batch(spec: &Spec, subnet: u8, node: usize) -> String {
    let mut batch = String::from("link set lo up\n");
    for (link, link_spec) in spec.links.iter().enumerate() {
        let device = device(link);
        let _ = writeln!(batch, "addr add 10.{subnet}.{link}.{}/24 dev {device}", node + 1);
        let _ = writeln!(batch, "link set {device} mtu {} up", link_spec.mtu);
    }
    batch
}

fn bridge_batch(spec: &Spec, link: usize) -> String {
    let mtu = spec.links[link].mtu;
    let mut batch = format!("link add name br0 mtu {mtu} type bridge\nlink set br0 up\n");
    for node in 0..spec.nodes {
        let _ = writeln!(batch, "link set {} mtu {mtu} master br0 up", bridge_port(node));
    }
    batch
}
