//! Socket buffers that the system keeps too small.

use super::finding::{Finding, Severity};
use super::picture::{NodePicture, Picture};
use polyrail::machine::{BufferShortage, Machine, shortages};

const WHY: &str = "bursts are lost while the receiving process is kept from running, and are sent again";

/// Of the node's sockets; without a node, of those that this process would get.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let short = match &picture.node {
        Some(node) => of_node(node, &picture.machine),
        None => picture.machine.shortages.clone(),
    };
    short.iter().map(finding).collect()
}

fn of_node(node: &NodePicture, machine: &Machine) -> Vec<BufferShortage> {
    let mut found: Vec<BufferShortage> = Vec::new();
    for short in node.bearers.iter().flat_map(|bearer| shortages(bearer.buffer_bytes, u32::MAX)) {
        let (receive, send) = machine.buffer_max_bytes;
        let limit = if short.which == "receive" { receive } else { send };
        // What is smaller than the system would allow was asked for (`socket_buffer_max`). It counts each byte twice.
        let is_limited = limit.is_none_or(|limit| short.granted_bytes >= limit.saturating_mul(2));
        if is_limited && found.iter().all(|other| other.which != short.which) {
            found.push(short);
        }
    }
    found
}

fn finding(short: &BufferShortage) -> Finding {
    let about = format!("{} buffers", short.which);
    let seen = format!("the system grants {} bytes of {} wanted", short.granted_bytes, short.wanted_bytes);
    let finding = Finding::new(Severity::Warning, "socket-buffer", about, seen, WHY);
    finding.mend(format!("sysctl -w {}={}  # then start the node again", short.sysctl, short.sysctl_value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    #[test]
    fn a_buffer_that_the_system_limits_is_found_once_with_its_setting() {
        let mut picture = planted::sound();
        assert_eq!(check(&picture), []);
        picture.machine.buffer_max_bytes.0 = Some(212_992);
        for bearer in &mut picture.node.as_mut().unwrap().bearers {
            bearer.buffer_bytes.0 = 425_984;
        }
        let found = check(&picture);
        assert_eq!((found.len(), found[0].about.as_str()), (1, "receive buffers"));
        assert!(found[0].mend[0].starts_with("sysctl -w net.core.rmem_max=8388608"), "{found:?}");
    }

    #[test]
    fn a_buffer_that_was_configured_to_be_small_is_no_finding() {
        let mut picture = planted::sound();
        picture.node.as_mut().unwrap().bearers[0].buffer_bytes = (200_000, 200_000);
        assert_eq!(check(&picture), []);
    }

    #[test]
    fn without_a_node_it_is_what_this_process_would_get() {
        let mut picture = planted::sound();
        picture.node = None;
        assert_eq!(check(&picture), []);
        picture.machine.shortages = shortages((425_984, 425_984), u32::MAX);
        let settings: Vec<String> = check(&picture).into_iter().flat_map(|found| found.mend).collect();
        assert!(settings[1].starts_with("sysctl -w net.core.wmem_max=1048576"), "{settings:?}");
    }
}
