//! Why a program does not get what it asks for: what it is told, and what is counted.

use std::fmt;

/// Which limit it was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Reason {
    /// Processes of its user that are attached.
    Processes,
    /// Ports of its user.
    Ports,
    /// Subscriptions of its user.
    Subscriptions,
    /// Names that its user has bound.
    Names,
    /// Its user may not bind services of that type.
    Rights,
    /// Rings and trunks of its user.
    Rings,
    /// Descriptors that the node has open for its user.
    Descriptors,
    /// Memory of its user.
    UserMemory,
    /// Memory of the node as a whole.
    NodeMemory,
}

impl Reason {
    pub(crate) const ALL: [Reason; 9] = [
        Reason::Processes,
        Reason::Ports,
        Reason::Subscriptions,
        Reason::Names,
        Reason::Rights,
        Reason::Rings,
        Reason::Descriptors,
        Reason::UserMemory,
        Reason::NodeMemory,
    ];

    /// As counters have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Processes => "processes",
            Reason::Ports => "ports",
            Reason::Subscriptions => "subscriptions",
            Reason::Names => "names",
            Reason::Rights => "rights",
            Reason::Rings => "rings",
            Reason::Descriptors => "descriptors",
            Reason::UserMemory => "user_memory",
            Reason::NodeMemory => "node_memory",
        }
    }
}

/// What was refused, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Refusals([u64; Reason::ALL.len()]);

impl Refusals {
    pub(super) fn note(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }

    /// Each reason with its count.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().zip(self.0)
    }
}

/// A refusal in words: what is too much, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Denied {
    pub reason: Reason,
    pub message: String,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Denied {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_place_and_a_name_of_its_own() {
        let mut refusals = Refusals::default();
        for (count, reason) in Reason::ALL.into_iter().enumerate() {
            (0..=count).for_each(|_| refusals.note(reason));
        }
        for (count, (reason, refused)) in refusals.all().enumerate() {
            assert_eq!((reason as usize, refused), (count, count as u64 + 1));
            assert_eq!(Reason::ALL.iter().filter(|other| other.name() == reason.name()).count(), 1);
        }
    }
}
