//! What the programs that attach may have and do, by user.

use super::ConfigError;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Smallest memory of a node or a user that makes sense: a port of the smallest arenas needs about 4 MiB with the usual queues.
pub(super) const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// What one user's programs may have of a node that they are attached to, all of them together; `None`: as much as each user
/// may, and of each user: half of what the node has, so that no single user keeps the others out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UserLimits {
    /// Ports.
    pub ports: Option<usize>,
    /// Names that are bound: each binding counts.
    pub names: Option<usize>,
    /// Memory that the node makes or keeps for them, in bytes, whether or not it was touched.
    pub memory_bytes: Option<u64>,
}

impl UserLimits {
    /// These, and what they leave open as `others` have it.
    pub(crate) fn or(self, others: UserLimits) -> UserLimits {
        UserLimits {
            ports: self.ports.or(others.ports),
            names: self.names.or(others.names),
            memory_bytes: self.memory_bytes.or(others.memory_bytes),
        }
    }

    /// Names the first that is not allowed, below `key`.
    pub(super) fn validate(&self, key: &str) -> Result<(), ConfigError> {
        if let Some(bytes) = self.memory_bytes.filter(|bytes| *bytes < MEMORY_BYTES_MIN && *bytes > 0) {
            let allowed = format!("0, or {MEMORY_BYTES_MIN} and more");
            return Err(ConfigError::new(
                &format!("{key}.memory_bytes"),
                format!("{bytes} is too little"),
                allowed,
            ));
        }
        Ok(())
    }
}

/// Who may bind services of some types.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Right {
    /// The types.
    pub types: RangeInclusive<u32>,
    /// Their users, by number. Beside them the program that embeds the node may.
    pub users: BTreeSet<u32>,
}

impl Right {
    /// As a key of the file.
    pub(super) fn key(&self) -> String {
        match (self.types.start(), self.types.end()) {
            (first, last) if first == last => format!("rights.{first}"),
            (first, last) => format!("rights.{first}-{last}"),
        }
    }
}

/// Checks limits of users, and that each type has one rule at most: of two, one would have to be forgotten.
pub(super) fn validate(
    each: &UserLimits,
    users: &BTreeMap<u32, UserLimits>,
    rights: &[Right],
) -> Result<(), ConfigError> {
    each.validate("users")?;
    users.iter().try_for_each(|(uid, limits)| limits.validate(&format!("user.{uid}")))?;
    for (index, right) in rights.iter().enumerate() {
        if right.types.is_empty() {
            return Err(ConfigError::new(&right.key(), "no types", "TYPE, or FIRST-LAST as 1000-1999"));
        }
        let overlaps = |other: &&Right| {
            other.types.start() <= right.types.end() && right.types.start() <= other.types.end()
        };
        if let Some(other) = rights[..index].iter().find(overlaps) {
            let what = format!("some of these types are in {} too", other.key());
            return Err(ConfigError::new(&right.key(), what, "each type once"));
        }
    }
    Ok(())
}
