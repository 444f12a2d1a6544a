//! How soon another node knows what is bound, on this machine: a figure to look at, and nothing that a test could demand.

mod local;

use local::{PATIENCE, address, node};
use polyrail::{Config, Scope, ServiceAddress};
use polyrail_sys::clock::monotonic_ns;
use std::sync::mpsc;
use std::time::Duration;

const ROUNDS: u32 = 300;

#[test]
#[ignore = "prints a figure of this machine"]
fn from_a_binding_to_who_waits_for_it_at_another_node() {
    let a = node(Config::new(), &[]);
    let b = node(Config::new(), &[address(&a)]);
    let (here, there) = (a.port().unwrap(), b.port().unwrap());
    here.bind(ServiceAddress::new(1000, 0), Scope::Cluster).unwrap();
    there.wait_for(ServiceAddress::new(1000, 0), Some(PATIENCE)).unwrap();
    let (seen, times) = mpsc::channel();
    let mut latencies_ns: Vec<u64> = std::thread::scope(|scope| {
        scope.spawn(move || {
            for instance in 1..=ROUNDS {
                there.wait_for(ServiceAddress::new(1000, instance), Some(PATIENCE)).unwrap();
                seen.send(monotonic_ns()).unwrap();
            }
        });
        let one = |instance| {
            // Both nodes have nothing to do.
            std::thread::sleep(Duration::from_millis(20));
            let bound_at_ns = monotonic_ns();
            here.bind(ServiceAddress::new(1000, instance), Scope::Cluster).unwrap();
            times.recv().unwrap() - bound_at_ns
        };
        (1..=ROUNDS).map(one).collect()
    });
    latencies_ns.sort_unstable();
    let [median, late] = [50, 99].map(|percent| latencies_ns[ROUNDS as usize * percent / 100] / 1_000);
    println!("bound to seen: p50 {median} us, p99 {late} us");
}
