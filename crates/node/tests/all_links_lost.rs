//! Nodes on two hosts whose cables are all pulled while one of them sends.

#![forbid(unsafe_code)]

mod cabled;

use cabled::{CABLES, Cabled, PATIENCE, SERVICE};
use polyrail::{ErrorCode, Node, SendError};
use std::time::{Duration, Instant};

/// So much that the sending arena is full before all of it was taken.
const MESSAGES_MAX: u64 = 100_000;
const MESSAGE_BYTES: usize = 16 << 10;

/// A message that tells its number.
fn message(number: u64) -> Vec<u8> {
    let mut bytes = vec![0xA5; MESSAGE_BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

impl Cabled {
    fn set_cables(&self, state: &str) {
        CABLES.iter().for_each(|[near, _]| self.hosts[0].ip(&format!("link set {near} {state}")));
        let is_cable = |name: &str| name.starts_with("udp/");
        self.until(|node| {
            let bearers = node.status().bearers;
            bearers.iter().filter(|b| is_cable(&b.name)).all(|b| b.carrier == (state == "up"))
        });
    }

    /// Waits until something is so of both nodes.
    fn until(&self, is_so: impl Fn(&Node) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !self.nodes.iter().all(&is_so) {
            assert!(Instant::now() < deadline, "{:#?}", self.nodes.each_ref().map(Node::status));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The numbers of the messages that the second node's port has, up to `last`.
    fn received(&self, last: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        while numbers.last() != Some(&last) {
            let message = self.ports[1].recv_timeout(PATIENCE).unwrap().expect("the last message");
            numbers.push(u64::from_le_bytes(message.bytes()[..8].try_into().unwrap()));
        }
        numbers
    }
}

#[test]
fn a_send_without_any_link_waits_and_then_fails_with_the_reason_as_does_all_that_was_taken() {
    let claim = "a_send_without_any_link_waits_and_then_fails_with_the_reason_as_does_all_that_was_taken";
    let Some(world) = Cabled::new(claim, Duration::from_secs(2)) else { return };
    let sender = &world.ports[0];
    sender.send(SERVICE, &message(0)).unwrap();
    sender.flush(Some(PATIENCE)).unwrap();
    world.set_cables("down");

    let send = |number| sender.send_timeout(SERVICE, &message(number), PATIENCE);
    let refused = (1..MESSAGES_MAX).find_map(|number| Some((number, send(number).err()?)));
    let (not_taken, error) = refused.expect("an end of what is taken");
    let SendError::Earlier { number: 1, why } = error else { panic!("not the first failure: {error:?}") };
    let failures: Vec<(u64, ErrorCode)> =
        [(1, why)].into_iter().chain(std::iter::from_fn(|| sender.take_failure())).collect();
    let numbers: Vec<u64> = failures.iter().map(|failure| failure.0).collect();
    assert_eq!(numbers, (1..not_taken).collect::<Vec<u64>>(), "each is told once, in order");
    let reasons = [ErrorCode::Indeterminate, ErrorCode::NotSent];
    assert!(failures.iter().all(|failure| reasons.contains(&failure.1)), "{failures:?}");
    assert!(not_taken > 1 && world.nodes[0].status().peers.is_empty(), "{:#?}", world.nodes[0].status());

    world.set_cables("up");
    sender.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    sender.send(SERVICE, &message(not_taken)).unwrap();
    sender.flush(Some(PATIENCE)).unwrap();
    assert_eq!(world.received(not_taken), [0, not_taken], "nothing of what failed");
}

#[test]
fn what_is_sent_while_all_links_are_down_arrives_once_if_they_return_within_the_tolerance() {
    let claim = "what_is_sent_while_all_links_are_down_arrives_once_if_they_return_within_the_tolerance";
    let Some(world) = Cabled::new(claim, PATIENCE) else { return };
    let sender = &world.ports[0];
    for round in 0..3 {
        world.set_cables("down");
        (0..20).for_each(|number| sender.send(SERVICE, &message(20 * round + number)).unwrap());
        assert!(sender.unconfirmed() > 0, "by which way?");
        world.set_cables("up");
        sender.flush(Some(PATIENCE)).unwrap();
    }
    assert_eq!(world.received(59), (0..60).collect::<Vec<u64>>());
    let lives = world.nodes.each_ref().map(|node| node.status().peers.len());
    assert_eq!(lives, [1, 1], "the same session all the time");
}
