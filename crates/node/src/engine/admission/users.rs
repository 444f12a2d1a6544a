//! What users have of a node and may have: the programs that attach, by the user that the system says they are of. The program that
//! embeds the node is its operator: its memory counts to the budget, and nothing else is counted of it.

use super::denied::{Denied, Reason, Refusals};
use crate::config::{Right, UserLimits};
use crate::engine::Engine;
use polyrail_proto::address::ServiceRange;
use polyrail_proto::id::PortId;
use polyrail_proto::limits::{BINDINGS_NODE_MAX, SUBSCRIPTIONS_MAX};
use polyrail_shm::{Charge, Quota};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Users that are remembered without having anything, for what was refused to them.
const USERS_IDLE_MAX: usize = 1_024;
/// No user has more than half of what there is for all, unless the settings say so.
const SHARE: usize = 2;
/// Clients that an engine has at most.
pub(in crate::engine) const CLIENTS_MAX: usize = 1 << 14;

/// The settings of a node that are about users.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// What the node may promise in all.
    pub memory_bytes_max: usize,
    /// Descriptors that its process may have open for its users.
    pub descriptors_max: usize,
    /// What each user may have.
    pub each: UserLimits,
    /// What particular users may.
    pub users: BTreeMap<u32, UserLimits>,
    pub rights: Vec<Right>,
}

impl Default for Limits {
    fn default() -> Limits {
        let (each, users, rights) = (UserLimits::default(), BTreeMap::new(), Vec::new());
        Limits { memory_bytes_max: usize::MAX, descriptors_max: usize::MAX, each, users, rights }
    }
}

/// What one user may have.
struct Own {
    ports: usize,
    names: usize,
    memory_bytes: usize,
}

impl Limits {
    fn of(&self, uid: u32) -> Own {
        let own = self.users.get(&uid).copied().unwrap_or_default().or(self.each);
        Own {
            ports: own.ports.unwrap_or(CLIENTS_MAX / SHARE),
            names: own.names.unwrap_or(BINDINGS_NODE_MAX / SHARE),
            memory_bytes: own.memory_bytes.map_or(self.memory_bytes_max / SHARE, |bytes| bytes as usize),
        }
    }
}

/// Whose something is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Whose {
    pub uid: u32,
    pub pid: u32,
    pub program: Arc<str>,
}

/// What something takes of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cost {
    /// Of memory that is promised.
    pub bytes: usize,
    /// Descriptors that the node's process has open for it: one user is not to have so many that there are none left for others.
    pub descriptors: usize,
}

/// What counts to somebody until this is dropped.
#[derive(Debug)]
pub(crate) struct Charged {
    memory: Charge,
    /// None of what the node's own program has: it is its own concern.
    _descriptors: Option<Charge>,
}

impl Charged {
    /// Of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Nothing that anybody counts.
    #[cfg(test)]
    pub(crate) fn nothing() -> Charged {
        let memory = Quota::charge(&Quota::new(0), 0);
        Charged { memory: memory.expect("it is nothing"), _descriptors: None }
    }
}

/// The same, with whose it is.
#[derive(Debug)]
pub(crate) struct Paid {
    /// Nobody: the program that embeds the node.
    pub whose: Option<Whose>,
    pub charge: Charged,
}

/// All users.
pub(crate) struct Users {
    limits: Limits,
    budget: Arc<Quota>,
    /// Of descriptors, each of which counts as one.
    descriptors: Arc<Quota>,
    all: BTreeMap<u32, User>,
    refused: Refusals,
}

/// What one has, and may have.
pub(crate) struct User {
    pub ports: usize,
    pub ports_max: usize,
    pub names: usize,
    pub names_max: usize,
    pub subscriptions: usize,
    pub memory: Arc<Quota>,
    pub descriptors: Arc<Quota>,
    pub refused: Refusals,
}

impl User {
    fn is_idle(&self) -> bool {
        let counted = self.memory.used_bytes() + self.descriptors.used_bytes();
        self.ports + self.names + self.subscriptions + counted == 0
    }
}

impl Default for Users {
    fn default() -> Users {
        Users::new(Limits::default())
    }
}

impl Users {
    pub(crate) fn new(limits: Limits) -> Users {
        let (budget, descriptors) = (Quota::new(limits.memory_bytes_max), Quota::new(limits.descriptors_max));
        Users { limits, budget, descriptors, all: BTreeMap::new(), refused: Refusals::default() }
    }

    /// What all memory of the node counts to.
    pub(crate) fn budget(&self) -> &Arc<Quota> {
        &self.budget
    }

    fn left_bytes(&self) -> usize {
        self.budget.limit_bytes().saturating_sub(self.budget.used_bytes())
    }

    /// What was refused to all of them.
    pub(crate) fn refused(&self) -> Refusals {
        self.refused
    }

    /// Those who have something, or were refused something.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &User)> {
        self.all.iter().map(|(uid, user)| (*uid, user))
    }

    fn of(&mut self, uid: u32) -> &mut User {
        if !self.all.contains_key(&uid) && self.all.len() >= USERS_IDLE_MAX {
            let idle = self.all.iter().find(|(_, user)| user.is_idle()).map(|(uid, _)| *uid);
            idle.map(|uid| self.all.remove(&uid));
        }
        let (limits, budget, descriptors) = (&self.limits, &self.budget, &self.descriptors);
        self.all.entry(uid).or_insert_with(|| {
            let own = limits.of(uid);
            User {
                ports: 0,
                ports_max: own.ports,
                names: 0,
                names_max: own.names,
                subscriptions: 0,
                memory: Quota::of(budget, own.memory_bytes),
                descriptors: Quota::of(descriptors, descriptors.limit_bytes() / SHARE),
                refused: Refusals::default(),
            }
        })
    }

    /// Sets what users may have from now on. What they have stays theirs, be it more.
    fn renew(&mut self, limits: Limits) {
        self.budget.set_limit(limits.memory_bytes_max);
        for (uid, user) in &mut self.all {
            let own = limits.of(*uid);
            (user.ports_max, user.names_max) = (own.ports, own.names);
            user.memory.set_limit(own.memory_bytes);
        }
        self.limits = limits;
    }

    /// Counts a refusal, and puts it into words.
    pub(crate) fn deny(&mut self, uid: Option<u32>, reason: Reason, message: String) -> Denied {
        self.refused.note(reason);
        if let Some(uid) = uid {
            self.of(uid).refused.note(reason);
        }
        Denied { reason, message }
    }

    fn charge(&mut self, whose: Option<&Whose>, bytes: usize) -> Option<Charge> {
        match whose {
            Some(whose) => Quota::charge(&self.of(whose.uid).memory, bytes),
            None => Quota::charge(&self.budget, bytes),
        }
    }

    fn charge_descriptors(&mut self, uid: u32, count: usize) -> Result<Charge, Denied> {
        let quota = self.of(uid).descriptors.clone();
        Quota::charge(&quota, count).ok_or_else(|| {
            let what = format!(
                "user {uid} has the node keep {} descriptors open, and may have {} of {} in all; close ports and subscriptions, or have the \
                 limit of the node's process raised (`ulimit -Hn`)",
                quota.used_bytes(),
                quota.limit_bytes(),
                self.descriptors.limit_bytes()
            );
            self.deny(Some(uid), Reason::Descriptors, what)
        })
    }

    /// Why `bytes` more can't be had.
    fn deny_memory(&mut self, whose: Option<&Whose>, bytes: usize) -> Denied {
        let own = whose.map(|whose| (whose.uid, self.of(whose.uid).memory.clone()));
        match own {
            Some((uid, memory)) if bytes > memory.limit_bytes().saturating_sub(memory.used_bytes()) => {
                let (used, limit) = (memory.used_bytes(), memory.limit_bytes());
                let what = format!(
                    "{bytes} bytes more are too much: user {uid} has {used} of the {limit} bytes of this node's memory that it may have; \
                     close ports, open them with smaller arenas (`memory`), or have `memory_bytes` raised in the node's settings"
                );
                self.deny(Some(uid), Reason::UserMemory, what)
            }
            _ => {
                let (used, limit) = (self.budget.used_bytes(), self.budget.limit_bytes());
                let what = format!(
                    "{bytes} bytes more are too much: the node has promised {used} of its {limit} bytes; `polyrail mem` tells to \
                     whom; close ports, open them with smaller arenas (`memory`), or have `memory_bytes_max` raised in the node's settings"
                );
                self.deny(whose.map(|whose| whose.uid), Reason::NodeMemory, what)
            }
        }
    }

    /// Counts one port more.
    fn add_port(&mut self, uid: u32) -> Result<(), Denied> {
        let user = self.of(uid);
        if user.ports < user.ports_max {
            user.ports += 1;
            return Ok(());
        }
        let what = format!(
            "user {uid} has as many ports on this node as it may ({}); close some, or have `ports` raised in the node's settings",
            user.ports
        );
        Err(self.deny(Some(uid), Reason::Ports, what))
    }

    /// Whether one name more may be bound, of services of this type.
    fn admit_name(&mut self, uid: u32, kind: u32) -> Result<(), Reason> {
        let mut rights = self.limits.rights.iter();
        let allowed = rights.find(|right| right.types.contains(&kind));
        let reason = if allowed.is_some_and(|right| !right.users.contains(&uid)) {
            Reason::Rights
        } else {
            let user = self.of(uid);
            if user.names < user.names_max {
                return Ok(());
            }
            Reason::Names
        };
        // Its port has an answer for each.
        self.deny(Some(uid), reason, String::new());
        Err(reason)
    }

    fn add_subscription(&mut self, uid: u32) -> Result<(), Denied> {
        let user = self.of(uid);
        if user.subscriptions < SUBSCRIPTIONS_MAX / SHARE {
            user.subscriptions += 1;
            return Ok(());
        }
        let what =
            format!("user {uid} has as many subscriptions on this node as it may ({})", user.subscriptions);
        Err(self.deny(Some(uid), Reason::Subscriptions, what))
    }
}

impl Engine {
    /// Sets what users may have, before there are any.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.users = Users::new(limits);
    }

    /// Sets what they may have from now on. Descriptors are not among it: they are the process's.
    pub(crate) fn renew_limits(&mut self, limits: Limits) {
        self.users.renew(limits);
    }

    /// What users have.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Notes that a user was refused something outside the engine.
    pub(crate) fn deny(&mut self, uid: u32, reason: Reason, message: String) -> Denied {
        self.users.deny(Some(uid), reason, message)
    }

    /// Has something count to somebody, or to the node alone. Buffers that nobody uses make room.
    pub(crate) fn pay(&mut self, whose: Option<&Whose>, cost: Cost) -> Result<Charged, Denied> {
        let descriptors = whose.map(|whose| self.users.charge_descriptors(whose.uid, cost.descriptors));
        let descriptors = descriptors.transpose()?;
        let bytes = cost.bytes;
        let memory = self.users.charge(whose, bytes).or_else(|| {
            // Not for a user that has all that it may: the buffers are of use to others.
            let is_full = self.users.left_bytes() < bytes;
            is_full.then(|| self.store.give_up_idle(bytes))?;
            self.users.charge(whose, bytes)
        });
        match memory {
            Some(memory) => Ok(Charged { memory, _descriptors: descriptors }),
            None => Err(self.users.deny_memory(whose, bytes)),
        }
    }

    /// Lets a user have a port more, which takes so much.
    pub(in crate::engine) fn admit_port(&mut self, whose: &Whose, cost: Cost) -> Result<Charged, Denied> {
        self.users.add_port(whose.uid)?;
        let paid = self.pay(Some(whose), cost);
        if paid.is_err() {
            self.note_port_gone(whose.uid);
        }
        paid
    }

    /// A port of that user is gone.
    pub(in crate::engine) fn note_port_gone(&mut self, uid: u32) {
        let user = self.users.of(uid);
        user.ports = user.ports.saturating_sub(1);
        if user.ports == 0 {
            user.names = 0;
        }
    }

    /// Whether a port may bind a name more in `range`.
    pub(super) fn admit_name(&mut self, port: PortId, range: ServiceRange) -> Result<(), Reason> {
        match self.uid_of(port) {
            Some(uid) => self.users.admit_name(uid, range.kind),
            None => Ok(()),
        }
    }

    /// A port has so many names more.
    pub(super) fn note_bound(&mut self, port: PortId, names: usize) {
        if let Some(uid) = self.uid_of(port) {
            self.users.of(uid).names += names;
        }
    }

    /// A port has so many names less.
    pub(in crate::engine) fn note_unbound(&mut self, port: PortId, names: usize) {
        if let Some(uid) = self.uid_of(port) {
            let user = self.users.of(uid);
            user.names = user.names.saturating_sub(names);
        }
    }

    /// Lets a user have a subscription more.
    pub(in crate::engine) fn admit_subscription(
        &mut self,
        whose: Option<Whose>,
        cost: Cost,
    ) -> Result<Paid, Denied> {
        if let Some(whose) = &whose {
            self.users.add_subscription(whose.uid)?;
        }
        let paid = self.pay(whose.as_ref(), cost);
        if paid.is_err() {
            self.note_subscription_gone(whose.as_ref());
        }
        paid.map(|charge| Paid { whose, charge })
    }

    pub(in crate::engine) fn note_subscription_gone(&mut self, whose: Option<&Whose>) {
        if let Some(whose) = whose {
            let user = self.users.of(whose.uid);
            user.subscriptions = user.subscriptions.saturating_sub(1);
        }
    }

    /// The user of a port of another process.
    fn uid_of(&mut self, port: PortId) -> Option<u32> {
        self.store.guest_of(port).map(|guest| guest.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Budget, Client, Guest, Sizes};
    use polyrail_proto::Config;
    use polyrail_proto::address::Scope;
    use polyrail_proto::id::{Incarnation, NodeId};

    const SIZES: Sizes = Sizes { sq_entries: 64, cq_entries: 64, tx_bytes: 1 << 16, rx_bytes: 1 << 16 };

    fn engine(limits: Limits) -> Engine {
        let mut engine = Engine::new(0, Config::new(NodeId(1), Incarnation(1)));
        engine.set_limits(limits);
        engine
    }

    fn opened(engine: &mut Engine, uid: u32) -> std::io::Result<Client> {
        let (address, memory) = engine.open_guest(SIZES, Guest::new(1, uid, "test".into()))?;
        let [memory, bell] = memory.map(|segment| segment.fd().unwrap().try_clone_to_owned().unwrap());
        Client::of_guest(memory, bell, address)
    }

    fn turn(engine: &mut Engine) {
        for _ in 0..4 {
            let next = engine.turns() + 1;
            engine.turn(next * 1_000_000, Budget::THOROUGH);
        }
    }

    fn has(engine: &Engine, uid: u32) -> (usize, usize) {
        engine.users().all().find(|(of, _)| *of == uid).map_or((0, 0), |(_, user)| (user.ports, user.names))
    }

    #[test]
    fn names_are_counted_as_the_table_has_them_whatever_becomes_of_their_ports() {
        let mut engine = engine(Limits::default());
        let mut ports = [1, 1, 2].map(|uid| opened(&mut engine, uid).unwrap());
        let range = |lower| ServiceRange::new(1_000, lower, lower + 5);
        for (at, port) in ports.iter_mut().enumerate() {
            for instance in 0..6 {
                port.bind(range(instance), Scope::Node).unwrap();
            }
            port.unbind(range(0), Scope::Node).unwrap();
            // It has none of these, and that is reserved.
            port.unbind(range(77), Scope::Node).unwrap();
            port.bind(ServiceRange::new(1, 0, 0), Scope::Node).unwrap();
            port.bind_exclusive(ServiceRange::new(1_001 + at as u32, 0, 0), Scope::Node).unwrap();
        }
        turn(&mut engine);
        assert_eq!((has(&engine, 1), has(&engine, 2)), ((2, 12), (1, 6)));
        assert_eq!(engine.core().table().len(), 18);
        engine.lose_guest(ports[0].address().port);
        turn(&mut engine);
        assert_eq!((has(&engine, 1), has(&engine, 2)), ((1, 6), (1, 6)));
        ports.iter().for_each(|port| engine.lose_guest(port.address().port));
        turn(&mut engine);
        assert_eq!((has(&engine, 1), has(&engine, 2)), ((0, 0), (0, 0)));
        assert_eq!((engine.core().table().len(), engine.users().budget().used_bytes()), (0, 0));
    }

    #[test]
    fn who_is_refused_a_port_is_charged_nothing() {
        let each = UserLimits { ports: Some(2), ..UserLimits::default() };
        let mut engine = engine(Limits { each, ..Limits::default() });
        let _ports = [opened(&mut engine, 1).unwrap(), opened(&mut engine, 1).unwrap()];
        let used = engine.users().budget().used_bytes();
        for _ in 0..100 {
            let refused = opened(&mut engine, 1).err().and_then(|error| error.downcast::<Denied>().ok());
            assert_eq!(refused.map(|denied| denied.reason), Some(Reason::Ports));
        }
        // One that can't be made is none, either.
        let wrong = Sizes { sq_entries: 63, ..SIZES };
        assert!(engine.open_guest(wrong, Guest::new(1, 2, "test".into())).is_err());
        assert_eq!(
            (engine.users().budget().used_bytes(), has(&engine, 1), has(&engine, 2)),
            (used, (2, 0), (0, 0))
        );
        assert_eq!(engine.users().refused().all().map(|(_, count)| count).sum::<u64>(), 100);
    }

    #[test]
    fn no_user_has_more_than_half_of_the_descriptors_open() {
        let mut engine = engine(Limits { descriptors_max: 20, ..Limits::default() });
        let mut ports: Vec<Client> = (0..3).map(|_| opened(&mut engine, 1).unwrap()).collect();
        let refused = opened(&mut engine, 1).err().and_then(|error| error.downcast::<Denied>().ok());
        assert_eq!(refused.map(|denied| denied.reason), Some(Reason::Descriptors));
        assert!(opened(&mut engine, 2).is_ok() && engine.open_client(SIZES, Default::default()).is_ok());
        ports.pop().iter().for_each(|port| engine.lose_guest(port.address().port));
        turn(&mut engine);
        assert!(opened(&mut engine, 1).is_ok());
    }

    #[test]
    fn many_users_that_have_nothing_are_not_remembered_for_ever() {
        let each = UserLimits { ports: Some(0), ..UserLimits::default() };
        let users = BTreeMap::from([(7, UserLimits { ports: Some(1), ..UserLimits::default() })]);
        let mut engine = engine(Limits { each, users, ..Limits::default() });
        let _port = opened(&mut engine, 7).unwrap();
        for uid in 0..5_000 {
            assert!(opened(&mut engine, uid).is_err());
        }
        assert_eq!((engine.users().all().count(), has(&engine, 7)), (USERS_IDLE_MAX, (1, 0)));
    }

    #[test]
    fn what_is_told_of_memory_adds_up_to_what_is_promised() {
        let mut engine = engine(Limits { memory_bytes_max: 1 << 30, ..Limits::default() });
        let pool = polyrail_shm::Pool::within(1 << 30, 1 << 20, engine.users().budget());
        let (quota, port_bytes_max, message_bytes_max) = (Quota::new(1 << 20), 1 << 20, 1 << 20);
        let large =
            crate::engine::LargeMemory { pool: pool.clone(), quota, port_bytes_max, message_bytes_max };
        engine.set_large_memory(large);
        let whose = Whose { uid: 1, pid: 1, program: "test".into() };
        let (_one, _other) = (opened(&mut engine, 1).unwrap(), opened(&mut engine, 2).unwrap());
        let _own = engine.open_client(SIZES, Default::default()).unwrap();
        let _buffer = pool.alloc(100_000).unwrap();
        engine.keep_events(whose.clone()).unwrap();
        let topic = polyrail_proto::service::Topic::services(ServiceRange::new(1_000, 0, 9));
        let asked = engine.subscribe_for(Some(whose), 0, topic, None).unwrap();
        let adds_up = |engine: &Engine| {
            let holdings = engine.holdings();
            assert_eq!(
                holdings.all.iter().map(|holding| holding.promised_bytes).sum::<u64>(),
                holdings.promised_bytes
            );
            holdings.promised_bytes
        };
        let before = adds_up(&engine);
        engine.unsubscribe(asked);
        assert!(adds_up(&engine) < before);
    }
}
