//! Other nodes of the machine, which are found by the sockets that they listen at, without any network.

use crate::config::Config;
use crate::engine::Engine;
use polyrail_bearer::{Address, shm_seats};

/// The times between looks: whoever comes later looks for us, so the later ones are for who began at the same moment.
const LOOK_SPANS_NS: [u64; 3] = [100_000_000, 1_000_000_000, 10_000_000_000];

#[derive(Debug)]
pub(super) struct Neighbours {
    /// Where we sit, if others are to be found.
    own: Option<Address>,
    looks: usize,
    look_at_ns: u64,
    found: Vec<Address>,
}

impl Neighbours {
    pub fn new(config: &Config, engine: &Engine) -> Neighbours {
        let own = engine.seat().filter(|_| config.discovery);
        Neighbours { own, looks: 0, look_at_ns: 0, found: Vec::new() }
    }

    /// Where they are.
    pub fn found(&self) -> &[Address] {
        &self.found
    }

    /// Looks, if it is time; whether others are there than before.
    pub fn look(&mut self, now_ns: u64) -> bool {
        let Some(own @ Address::Shm { machine, .. }) = self.own else { return false };
        if now_ns < self.look_at_ns {
            return false;
        }
        self.look_at_ns = now_ns + LOOK_SPANS_NS[self.looks.min(LOOK_SPANS_NS.len() - 1)];
        self.looks += 1;
        // Where the system does not tell, they meet by its network.
        let Ok(mut found) = shm_seats(machine) else { return false };
        found.retain(|seat| *seat != own);
        let has_changed = found != self.found;
        self.found = found;
        has_changed
    }
}
