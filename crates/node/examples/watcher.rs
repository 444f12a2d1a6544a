//! A directory of servers that keeps itself up to date: `watcher INTERFACE...`.
//!
//! It subscribes to service type 1000 once and then only listens. Whatever happens (servers that start, stop, crash, a
//! network that is cut and healed, a watcher that is stopped for an hour) its directory ends up right, because it obeys
//! three rules: what is published is put in, what is withdrawn is taken out, and at an overflow it starts from nothing.
//!
//! Try it with a few servers in other terminals: `polyrail recv --insecure --interface lo 1000:7`. With `--attach=PATH` for the
//! interfaces it uses a node that runs already.

mod common;

use polyrail::{PortAddress, ServiceRange, Subscription, Topic, Update, UpdateError};
use std::collections::BTreeMap;

/// All instances of the service type that is watched.
pub const SERVICES: ServiceRange = ServiceRange::new(1000, 0, u32::MAX);

/// Who serves what, as far as it was told. A port may have bound one range twice: the key tells the bindings apart.
#[derive(Default)]
pub struct Directory {
    servers: BTreeMap<(PortAddress, u64), ServiceRange>,
    /// The snapshot is complete: until then a server that is missing may only not have been told yet.
    pub complete: bool,
}

impl Directory {
    /// Takes in what the node tells; whether there is something new to show.
    pub fn take(&mut self, update: &Update) -> bool {
        match update {
            Update::Published(server) => {
                self.servers.insert((server.port, server.key), server.range);
                self.complete
            }
            Update::Withdrawn(server) => {
                self.servers.remove(&(server.port, server.key));
                self.complete
            }
            Update::SnapshotEnd => {
                self.complete = true;
                true
            }
            // We were too slow and changes were lost. What we know may be wrong; all of it will be told again.
            Update::Overflow => {
                *self = Directory::default();
                false
            }
            _ => false,
        }
    }

    /// The ports that serve `instance`.
    pub fn servers_of(&self, instance: u32) -> impl Iterator<Item = PortAddress> {
        let serves = move |range: &ServiceRange| range.lower <= instance && instance <= range.upper;
        self.servers.iter().filter(move |(_, range)| serves(range)).map(|((port, _), _)| *port)
    }

    /// How many bindings there are.
    pub fn bindings(&self) -> usize {
        self.servers.len()
    }
}

/// Follows a subscription, showing the directory whenever it changed, until `show` says that it is enough.
pub fn watch(
    mut updates: Subscription,
    mut show: impl FnMut(&Directory) -> bool,
) -> Result<Directory, UpdateError> {
    let mut directory = Directory::default();
    loop {
        let update = updates.next()?;
        if directory.take(&update) && show(&directory) {
            return Ok(directory);
        }
    }
}

#[allow(dead_code, reason = "its test uses the rest of this file as a module")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let node = common::node(&words)?;
    watch(node.subscribe(Topic::services(SERVICES))?, |directory| {
        println!("{} servers", directory.bindings());
        for ((port, _), range) in &directory.servers {
            println!("  {range} at {port}");
        }
        false
    })?;
    Ok(())
}
