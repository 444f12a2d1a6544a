//! The right to send express frames.

use super::finding::{Finding, Severity};
use super::picture::{NodePicture, Picture};

const WHY: &str = "small messages go as datagrams, which takes the system twice as long there and back";

/// Whether the node, or without one this process, may. It is a note: frames may be turned off on purpose.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let (about, seen) = match &picture.node {
        Some(node) => {
            let without: Vec<&str> = without(picture, node).collect();
            if without.is_empty() {
                return Vec::new();
            }
            let why = "the right (CAP_NET_RAW) is missing, or they are turned off, or it is no Ethernet";
            (format!("node {}", node.name), format!("no express frames on {}: {why}", without.join(", ")))
        }
        None if picture.machine.may_send_frames != Some(false) => return Vec::new(),
        None => {
            let seen = "this user has no right to send express frames (CAP_NET_RAW)";
            ("this machine".to_owned(), seen.to_owned())
        }
    };
    let finding = Finding::new(Severity::Note, "express-frames", about, seen, WHY);
    vec![finding.mend("setcap cap_net_raw+ep \"$(command -v polyrail)\"  # then start the node again")]
}

/// The bearers that send no frames, but for loopback, where there are none.
fn without<'a>(picture: &'a Picture, node: &'a NodePicture) -> impl Iterator<Item = &'a str> {
    let is_loopback =
        |name: &str| picture.machine.interface(name).is_some_and(|interface| interface.loopback);
    let bearers = node.bearers.iter().filter(|bearer| !bearer.express_frames);
    bearers.filter(move |bearer| !is_loopback(&bearer.interface)).map(|bearer| bearer.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    #[test]
    fn a_node_that_sends_no_frames_is_noted_with_its_bearers() {
        let mut picture = planted::sound();
        picture.machine.may_send_frames = Some(false);
        assert_eq!(check(&picture), [], "whoever asks is not the node");
        picture.node.as_mut().unwrap().bearers[1].express_frames = false;
        let found = check(&picture);
        assert!(found[0].seen.starts_with("no express frames on udp/eth1:"), "{found:?}");
        picture.machine.interfaces[1].loopback = true;
        assert_eq!(check(&picture), [], "there are none on loopback");
    }

    #[test]
    fn without_a_node_it_is_this_users_right() {
        let mut picture = planted::sound();
        picture.node = None;
        assert_eq!(check(&picture), []);
        picture.machine.may_send_frames = Some(false);
        assert_eq!(check(&picture).len(), 1);
        picture.machine.may_send_frames = None;
        assert_eq!(check(&picture), [], "unknown is no finding");
    }
}
