//! The TOML form of a configuration.
//!
//! Every key is optional here; what is missing keeps its default. Values are checked where the builder's are, in
//! `Config::validate`; this file only finds the line to blame.

mod users;

use super::dscp::ALLOWED;
use super::{
    ClassDscps, Config, ConfigError, Dscp, Integrity, Policy, Profile, Progress, Security, UnknownDscp, Wait,
};
use polyrail_proto::id::NodeId;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use toml::de::{DeTable, DeValue};
use users::FileLimits;

pub(super) fn parse(text: &str, origin: Option<&str>) -> Result<Config, ConfigError> {
    let syntax = |e: toml::de::Error| {
        let line = e.span().map(|span| line_of(text, span.start));
        let what = e.message().split_whitespace().collect::<Vec<_>>().join(" ");
        ConfigError::new("", what, "").at(origin, line)
    };
    let tree = DeTable::parse(text).map_err(syntax)?;
    let file: File = toml::from_str(text).map_err(syntax)?;
    let blame = |e: ConfigError| {
        let line = find(tree.get_ref(), &e.key).map(|offset| line_of(text, offset));
        e.at(origin, line)
    };
    let config = file.into_config().map_err(blame)?;
    config.validate_settings().map_err(blame)?;
    Ok(config)
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    security: Option<FileSecurity>,
    cluster: Option<String>,
    name: Option<String>,
    id: Option<String>,
    port: Option<u16>,
    beacon_port: Option<u16>,
    peers: Option<Vec<String>>,
    discovery: Option<bool>,
    express_frames: Option<bool>,
    shared_memory: Option<bool>,
    socket_buffer_max: Option<usize>,
    wait: Option<Wait>,
    adaptive_spin_us: Option<u64>,
    profile: Option<Profile>,
    policy: Option<String>,
    class_policy: FilePolicies,
    message_bytes_max: Option<usize>,
    memory_bytes_max: Option<u64>,
    tolerance_ms: Option<u64>,
    keepalive_ms: Option<u64>,
    keepalive_idle_ms: Option<u64>,
    integrity: Option<Integrity>,
    control: Option<PathBuf>,
    attach: Option<PathBuf>,
    progress: Option<Progress>,
    interfaces: FileInterfaces,
    dscp: FileDscps,
    memory: FileMemory,
    users: FileLimits,
    user: BTreeMap<String, FileLimits>,
    rights: BTreeMap<String, Vec<toml::Value>>,
}

/// What a file may say: not "unset", which is said by silence.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum FileSecurity {
    None,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FileInterfaces {
    include: Option<Vec<String>>,
    exclude: Option<Vec<String>>,
    standby: Option<Vec<String>>,
}

/// Names or numbers.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FileDscps {
    control: Option<toml::Value>,
    urgent: Option<toml::Value>,
    normal: Option<toml::Value>,
    bulk: Option<toml::Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FilePolicies {
    control: Option<String>,
    urgent: Option<String>,
    normal: Option<String>,
    bulk: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FileMemory {
    tx_arena_bytes: Option<usize>,
    rx_arena_bytes: Option<usize>,
    submission_entries: Option<usize>,
    completion_entries: Option<usize>,
}

impl File {
    fn into_config(self) -> Result<Config, ConfigError> {
        let mut c = Config::new();
        if let Some(FileSecurity::None) = self.security {
            c.security = Security::None;
        }
        c.id = self.id.as_deref().map(parse_id).transpose()?;
        c.name = self.name;
        c.socket_buffer_max = self.socket_buffer_max;
        c.control = self.control;
        c.attach = self.attach;
        c.memory_bytes_max = self.memory_bytes_max;
        c.users = self.users.into_limits();
        c.user = users::of_users(self.user)?;
        c.rights = users::rights(self.rights)?;
        c.interfaces.exclude = self.interfaces.exclude;
        set(&mut c.interfaces.include, self.interfaces.include);
        set(&mut c.interfaces.standby, self.interfaces.standby);
        c.dscp = self.dscp.into_dscps()?;
        set(&mut c.cluster, self.cluster);
        set(&mut c.port, self.port);
        set(&mut c.beacon_port, self.beacon_port);
        set(&mut c.peers, self.peers);
        set(&mut c.discovery, self.discovery);
        set(&mut c.express_frames, self.express_frames);
        set(&mut c.shared_memory, self.shared_memory);
        set(&mut c.wait, self.wait);
        set(&mut c.adaptive_spin, self.adaptive_spin_us.map(Duration::from_micros));
        set(&mut c.profile, self.profile);
        set(&mut c.policy, self.policy.as_deref().map(|name| parse_policy("policy", name)).transpose()?);
        c.class_policies = self.class_policy.into_policies()?;
        set(&mut c.message_bytes_max, self.message_bytes_max);
        set(&mut c.tolerance, self.tolerance_ms.map(Duration::from_millis));
        set(&mut c.keepalive, self.keepalive_ms.map(Duration::from_millis));
        set(&mut c.keepalive_idle, self.keepalive_idle_ms.map(Duration::from_millis));
        set(&mut c.integrity, self.integrity);
        set(&mut c.progress, self.progress);
        set(&mut c.memory.tx_arena_bytes, self.memory.tx_arena_bytes);
        set(&mut c.memory.rx_arena_bytes, self.memory.rx_arena_bytes);
        set(&mut c.memory.submission_entries, self.memory.submission_entries);
        set(&mut c.memory.completion_entries, self.memory.completion_entries);
        Ok(c)
    }
}

impl FileDscps {
    fn into_dscps(self) -> Result<ClassDscps, ConfigError> {
        Ok(ClassDscps {
            control: parse_dscp("dscp.control", self.control)?,
            urgent: parse_dscp("dscp.urgent", self.urgent)?,
            normal: parse_dscp("dscp.normal", self.normal)?,
            bulk: parse_dscp("dscp.bulk", self.bulk)?,
        })
    }
}

fn parse_dscp(key: &str, value: Option<toml::Value>) -> Result<Dscp, ConfigError> {
    let Some(value) = value else { return Ok(Dscp::default()) };
    let parsed = match &value {
        toml::Value::String(name) => name.parse(),
        other => other.to_string().parse(),
    };
    parsed.map_err(|UnknownDscp(_)| ConfigError::new(key, format!("{value} is no DSCP"), ALLOWED))
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

impl FilePolicies {
    fn into_policies(self) -> Result<[Option<Policy>; 4], ConfigError> {
        let parse = |key, name: Option<String>| name.map(|name| parse_policy(key, &name)).transpose();
        Ok([
            parse("class_policy.control", self.control)?,
            parse("class_policy.urgent", self.urgent)?,
            parse("class_policy.normal", self.normal)?,
            parse("class_policy.bulk", self.bulk)?,
        ])
    }
}

fn parse_policy(key: &str, text: &str) -> Result<Policy, ConfigError> {
    let known = Policy::ALL.iter().find(|policy| policy.name() == text).copied();
    known.ok_or_else(|| {
        let names: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
        ConfigError::new(key, format!("{text:?} is no policy"), names.join(", "))
    })
}

fn parse_id(text: &str) -> Result<NodeId, ConfigError> {
    // `from_str_radix` would take a sign.
    let digits = (1..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    let id = if digits { u64::from_str_radix(text, 16).ok() } else { None };
    id.map(NodeId).ok_or_else(|| {
        ConfigError::new("id", format!("{text:?} is no identity"), "1 to ffffffffffffffff, hexadecimal")
    })
}

/// Where the key `a.b` stands in the text, as a byte offset; its table, if it is missing there.
fn find(table: &DeTable<'_>, key: &str) -> Option<usize> {
    let (head, rest) = key.split_once('.').unwrap_or((key, ""));
    let (found, value) = table.iter().find(|(name, _)| name.get_ref() == head)?;
    match value.get_ref() {
        DeValue::Table(inner) if !rest.is_empty() => find(inner, rest).or(Some(found.span().start)),
        _ => Some(found.span().start),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}
