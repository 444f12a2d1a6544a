//! Limits and rights of users as a file has them: `[users]`, `[user.1000]`, `[rights]`.

use crate::config::{ConfigError, Right, UserLimits};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FileLimits {
    ports: Option<usize>,
    names: Option<usize>,
    memory_bytes: Option<u64>,
}

impl FileLimits {
    pub(super) fn into_limits(self) -> UserLimits {
        UserLimits { ports: self.ports, names: self.names, memory_bytes: self.memory_bytes }
    }
}

/// The tables of particular users, by number.
pub(super) fn of_users(
    tables: BTreeMap<String, FileLimits>,
) -> Result<BTreeMap<u32, UserLimits>, ConfigError> {
    let one = |(name, limits): (String, FileLimits)| {
        let wrong = || {
            let what = format!("{name:?} is no user");
            ConfigError::new(&format!("user.{name}"), what, "a user's number, as `id -u` tells it")
        };
        Ok((number(&name).ok_or_else(wrong)?, limits.into_limits()))
    };
    tables.into_iter().map(one).collect()
}

/// Who may bind what.
pub(super) fn rights(table: BTreeMap<String, BTreeSet<u32>>) -> Result<Vec<Right>, ConfigError> {
    let one = |(types, users): (String, BTreeSet<u32>)| {
        let (first, last) = types.split_once('-').unwrap_or((&types, &types));
        let range = number(first).zip(number(last)).map(|(first, last)| first..=last);
        let types = range.ok_or_else(|| {
            let what = format!("{types:?} are no types");
            ConfigError::new(&format!("rights.{types}"), what, "TYPE, or FIRST-LAST as 1000-1999")
        })?;
        Ok(Right { types, users })
    };
    table.into_iter().map(one).collect()
}

/// Reading a number would take a sign.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}
