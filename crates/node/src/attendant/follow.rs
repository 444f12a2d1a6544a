//! Has a node's bearers follow the interfaces and addresses of its machine.
//!
//! The kernel tells when something has changed, not reliably what; so the list is then read anew, and compared with the
//! bearers that there are. Reading it takes a lock of the kernel's, as asking for carriers does, so it is read only after a
//! change, and not more often than a few times a second: carriers are asked for in between.

use super::holds::Holds;
use super::plan::plan;
use crate::engine::{Attachment, Lost, WhyClosed};
use crate::node::{Home, bearers};
use polyrail_proto::time::Instant;
use polyrail_sys::interface;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Between two looks at the list.
const LOOK_SPAN_NS: u64 = 250_000_000;
/// The same where the kernel does not tell of changes.
const LOOK_SPAN_UNTOLD_NS: u64 = 1_000_000_000;
/// How long the port of a bearer that was closed is waited for: a thread that sleeps by the old socket keeps it until it wakes.
const PORT_WAIT_NS: u64 = 2_000_000_000;

#[derive(Debug)]
pub(super) struct Follow {
    /// The kernel tells of changes.
    is_told: bool,
    changed: bool,
    looked_at_ns: u64,
    /// Something is put off until there has been time.
    waits: bool,
    holds: Holds,
    /// Addresses of bearers that were closed, and when: their ports are about to be free.
    freed: BTreeMap<IpAddr, u64>,
}

impl Follow {
    /// The first look comes at once: the interfaces may have changed since the node's bearers were opened.
    pub fn new(is_told: bool) -> Follow {
        Follow {
            is_told,
            changed: true,
            looked_at_ns: 0,
            waits: false,
            holds: Holds::default(),
            freed: BTreeMap::new(),
        }
    }

    /// Something has changed.
    pub fn note_change(&mut self) {
        self.changed = true;
    }

    fn is_due(&self, now_ns: u64) -> bool {
        let since_ns = now_ns.saturating_sub(self.looked_at_ns);
        let asked = (self.changed || self.waits) && since_ns >= LOOK_SPAN_NS;
        asked || (!self.is_told && since_ns >= LOOK_SPAN_UNTOLD_NS)
    }

    /// Looks, if it is time, and has bearers come and go; whether any did.
    pub fn step(&mut self, home: &Home, now_ns: u64) -> bool {
        if !self.is_due(now_ns) {
            return false;
        }
        // In this order: what changes from here on is told again.
        (self.looked_at_ns, self.changed, self.waits) = (now_ns, false, false);
        let Ok(all) = interface::list() else {
            self.waits = true;
            return false;
        };
        let held = home.drive.engine().attachments();
        let plan = plan(&home.config.interfaces, &held, &all);
        for (bearer, mtu_bytes) in &plan.resize {
            home.drive.change_bearers(|engine| engine.resize_bearer(now_ns, *bearer, *mtu_bytes));
        }
        for (at, why) in &plan.close {
            self.close(home, now_ns, &held[*at], why);
        }
        // Whoever could not be given one may not want one any more.
        let wants = |name: &str| plan.open.iter().any(|(wanted, _)| wanted == name);
        home.drive.engine().forget_refused(wants);
        let mut has_changed = !plan.close.is_empty();
        self.freed.retain(|_, freed_at_ns| now_ns.saturating_sub(*freed_at_ns) < PORT_WAIT_NS);
        for (name, address) in &plan.open {
            if !self.holds.may_open(name, now_ns) {
                self.waits = true;
                continue;
            }
            match self.open(home, now_ns, name, *address) {
                Ok(()) => has_changed = true,
                Err(Some(why)) => {
                    self.holds.note_refused(name, now_ns);
                    self.waits = true;
                    note_missing(home, now_ns, name, None, why);
                }
                Err(None) => self.waits = true,
            }
        }
        has_changed
    }

    fn close(&mut self, home: &Home, now_ns: u64, held: &Attachment, why: &WhyClosed) {
        let closed = home.drive.change_bearers(|engine| engine.close_bearer(now_ns, held.bearer, why));
        // Its sockets close here, on the thread that may take its time.
        drop(closed);
        self.freed.insert(held.address.ip(), now_ns);
        self.holds.note_closed(&held.interface, now_ns);
        note_missing(home, now_ns, &held.interface, Some(held), why.clone());
    }

    /// Opens a bearer; or why not. `None`: not yet, for its port is about to be free.
    fn open(
        &mut self,
        home: &Home,
        now_ns: u64,
        name: &str,
        address: IpAddr,
    ) -> Result<(), Option<WhyClosed>> {
        let bearer = bearers::open(&home.config, name, address);
        let bearer = bearer.map_err(|error| Some(WhyClosed::Refused(error.to_string())))?;
        if bearer.port_taken() && self.freed.contains_key(&address) {
            return Err(None);
        }
        let opened = home.drive.change_bearers(|engine| engine.open_bearer(now_ns, Box::new(bearer)));
        opened.ok_or(Some(WhyClosed::TooMany))?;
        self.holds.note_opened(name, now_ns);
        Ok(())
    }
}

fn note_missing(home: &Home, now_ns: u64, name: &str, held: Option<&Attachment>, why: WhyClosed) {
    let is_named = home.config.interfaces.names(name);
    let (at, address) = (Instant(now_ns), held.map(|held| held.address));
    let lost = Lost { at, address, why, is_named };
    home.drive.engine().note_missing(name, lost);
}
