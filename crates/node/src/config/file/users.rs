//! Limits and rights of users as a file has them: `[users]`, `[user.NAME]`, `[rights]`.

use crate::config::{ConfigError, Right, UserLimits};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;

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
    let mut users = BTreeMap::new();
    for (user, limits) in tables {
        let key = format!("user.{user}");
        let uid = number(&user).map_or_else(|| uid_of(&key, &user), Ok)?;
        if users.insert(uid, limits.into_limits()).is_some() {
            let what = format!("{user:?} is user {uid}, who has a table already");
            return Err(ConfigError::new(&key, what, "each user once, by name or by number"));
        }
    }
    Ok(users)
}

/// Who may bind what.
pub(super) fn rights(table: BTreeMap<String, Vec<toml::Value>>) -> Result<Vec<Right>, ConfigError> {
    let one = |(types, users): (String, Vec<toml::Value>)| {
        let key = format!("rights.{types}");
        let (first, last) = types.split_once('-').unwrap_or((&types, &types));
        let range = number(first).zip(number(last)).map(|(first, last)| first..=last);
        let types = range.ok_or_else(|| {
            let what = format!("{types:?} are no types");
            ConfigError::new(&key, what, "TYPE, or FIRST-LAST as 1000-1999")
        })?;
        let users = users.iter().map(|user| uid(&key, user)).collect::<Result<_, _>>()?;
        Ok(Right { types, users })
    };
    table.into_iter().map(one).collect()
}

const USER: &str = "a user's name in /etc/passwd, or the number as `id -u NAME` tells it";

/// The number of a user, who is told by it or by name.
fn uid(key: &str, user: &toml::Value) -> Result<u32, ConfigError> {
    let wrong = || ConfigError::new(key, format!("{user} is no user"), USER);
    match user {
        toml::Value::String(name) => uid_of(key, name),
        toml::Value::Integer(uid) => u32::try_from(*uid).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// The number of the user of that name. It is looked up where every system has the users that services run as, and what a static
/// program can read: names that only a directory service knows are not there.
fn uid_of(key: &str, name: &str) -> Result<u32, ConfigError> {
    let wrong = |what| ConfigError::new(key, what, USER);
    let users = fs::read_to_string("/etc/passwd")
        .map_err(|error| wrong(format!("user {name:?} is not known: /etc/passwd: {error}")))?;
    uid_in(&users, name).ok_or_else(|| wrong(format!("there is no user {name:?} in /etc/passwd")))
}

/// The same in lines as `name:password:uid:...` (passwd(5)).
fn uid_in(users: &str, name: &str) -> Option<u32> {
    let mut lines = users.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| (fields.next()? == name).then(|| number(fields.nth(1)?))?)
}

/// Reading a number would take a sign.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\nbroken\nmail:x:8\nposts:x:+9:9::/:\nposts:x:109:9::/:\n";
        assert_eq!(uid_in(users, "root"), Some(0));
        assert_eq!(uid_in(users, "mail"), Some(8));
        assert_eq!(uid_in(users, "posts"), Some(109), "a line that makes no sense is passed over");
        assert_eq!(["roo", "broken", "x", ""].map(|name| uid_in(users, name)), [None; 4]);
    }
}
