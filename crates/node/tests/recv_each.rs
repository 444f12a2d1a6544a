//! One call hands over all that is here, in order, whatever else has come in between.

mod local;

use local::PATIENCE;
use polyrail::{Config, Message, Node, Port, Scope, ServiceAddress, ServiceRange};
use std::time::Duration;

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 7);

fn ports(node: &Node) -> (Port, Port) {
    let (from, to) = (node.port().unwrap(), node.port().unwrap());
    to.bind(ServiceRange::from(SERVICE), Scope::Node).unwrap();
    from.wait_for(SERVICE, Some(PATIENCE)).unwrap();
    (from, to)
}

fn body(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 13 + number) as u8).collect()
}

/// Receives up to `most` of the messages of these lengths that come behind the first `taken`; how many there were.
fn receive(port: &Port, most: usize, lens: &[usize], mut taken: usize) -> usize {
    let each = |message: &Message<'_>| {
        assert_eq!(message.bytes(), body(taken, lens[taken]), "message {taken}");
        taken += 1;
    };
    port.recv_each(most, Some(PATIENCE), each).unwrap()
}

#[test]
fn a_call_takes_all_that_is_here_and_no_more_than_was_asked_for() {
    let node = local::node(Config::new(), &[]);
    let (from, to) = ports(&node);
    let lens: Vec<usize> = (0..10).map(|number| number * 100).collect();
    for (number, len) in lens.iter().enumerate() {
        from.send(SERVICE, &body(number, *len)).unwrap();
    }
    from.flush(Some(PATIENCE)).unwrap();
    // The first is looked for, and those that are here behind it come with it.
    assert_eq!(receive(&to, 4, &lens, 0), 4);
    assert_eq!(receive(&to, 64, &lens, 4), 6);
    assert_eq!(to.recv_each(64, Some(Duration::ZERO), |_| ()).unwrap(), 0);
}

#[test]
fn large_messages_and_failures_in_between_change_no_order() {
    let node = local::node(Config::new(), &[]);
    let (from, to) = ports(&node);
    let lens: Vec<usize> =
        (0..60).map(|number| if number % 7 == 3 { 3 << 20 } else { number * 40 }).collect();
    let sending = std::thread::spawn({
        let lens = lens.clone();
        move || {
            for (number, len) in lens.iter().enumerate() {
                from.send(SERVICE, &body(number, *len)).unwrap();
            }
            from.flush(Some(PATIENCE)).unwrap();
        }
    });
    let mut taken = 0;
    while taken < lens.len() {
        // What it sends itself fails, of which it hears beside what it receives.
        let nobody = ServiceAddress::new(1000, 8);
        assert!(to.send(nobody, b"?").is_err());
        let count = receive(&to, 1 + taken % 20, &lens, taken);
        assert!((1..=1 + taken % 20).contains(&count), "{count} at once");
        taken += count;
    }
    sending.join().unwrap();
}

#[test]
fn a_program_may_use_its_port_while_it_is_handed_a_message() {
    let node = local::node(Config::new(), &[]);
    let (from, to) = ports(&node);
    for number in 0..50u64 {
        from.send(SERVICE, &number.to_le_bytes()).unwrap();
    }
    from.flush(Some(PATIENCE)).unwrap();
    let (mut seen, mut within) = (Vec::new(), Vec::new());
    while seen.len() + within.len() < 50 {
        to.recv_each(8, Some(PATIENCE), |message: &Message<'_>| {
            seen.push(u64::from_le_bytes(message.bytes().try_into().unwrap()));
            to.send(message.from(), message.bytes()).unwrap();
            if let Some(next) = to.recv_arrived().unwrap() {
                within.push(u64::from_le_bytes(next.bytes().try_into().unwrap()));
            }
        })
        .unwrap();
    }
    let mut all: Vec<u64> = seen.iter().chain(&within).copied().collect();
    all.sort_unstable();
    assert_eq!(all, (0..50).collect::<Vec<_>>(), "each once");
    assert!(seen.is_sorted() && within.is_sorted());
    for number in &seen {
        let answer = from.recv_timeout(PATIENCE).unwrap().expect("waited in vain");
        assert_eq!(answer.bytes(), number.to_le_bytes());
    }
}
