//! Slices longer than their port's arena has room for.

mod local;

use local::{PATIENCE, address};
use polyrail::{Class, Config, Scope, ServiceAddress};

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

#[test]
fn a_slice_longer_than_the_arena_arrives_all_the_same() {
    let receiver = local::node(Config::new().name("a"), &[]);
    let mut config = Config::new().name("b");
    config.memory.tx_arena_bytes = 1 << 20;
    let sender = local::node(config, &[address(&receiver)]);
    let (port, there) = (sender.port().unwrap(), receiver.port().unwrap());
    there.bind(SERVICE, Scope::Cluster).unwrap();
    port.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    for bytes in [300 << 10, 1 << 20, 3 << 20] {
        let slice = vec![7; bytes];
        port.send_with(SERVICE.into(), Class::Normal, None, &slice, Some(PATIENCE)).unwrap();
        let message = there.recv_timeout(PATIENCE).unwrap().expect("it has arrived");
        assert!(message.bytes() == slice, "{bytes}");
    }
}

#[test]
fn who_reads_one_long_message_after_the_other_gives_each_place_in_its_queue_back() {
    let mut config = Config::new();
    config.memory.completion_entries = 64;
    let node = local::node(config, &[]);
    let (sender, receiver) = (node.port().unwrap(), node.port().unwrap());
    let slice = vec![7; 64 << 10];
    for number in 0..200 {
        sender.send(receiver.address(), &slice).unwrap();
        let message = receiver.recv_timeout(PATIENCE).unwrap();
        assert!(message.is_some_and(|message| message.bytes() == slice), "{number}");
    }
}
