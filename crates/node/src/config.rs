//! Settings of a node: by builder, by TOML file, or both.
//!
//! A `Config` is a plain value; nothing is checked while it is put together. [`Config::validate`] (called by
//! [`Config::from_toml`], [`Config::load`] and when the node starts) names the first setting that is not allowed, in
//! one line: where it stands, what it is, what would be allowed. `docs/polyrail.toml` lists every key.

mod dscp;
mod error;
mod file;
mod interfaces;
mod peer;
#[cfg(test)]
mod tests;
mod users;

pub use dscp::{ClassDscps, Dscp, UnknownDscp};
pub use error::ConfigError;
pub use interfaces::{INTERFACES_EXCLUDED, InterfaceRules};
pub use peer::PeerName;
pub use users::{Right, UserLimits};

pub use polyrail_proto::config::Policy;
use polyrail_proto::flow::Class;
use polyrail_proto::id::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// UDP port of the data, unless configured.
pub const PORT: u16 = 7430;
/// UDP port of the beacons, unless configured.
pub const BEACON_PORT: u16 = 7431;
/// Largest message of the protocol, in bytes.
pub const MESSAGE_BYTES_LIMIT: usize = 1 << 30;
/// Longest name of a node or cluster, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// Whether peers are authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Security {
    /// Not said; a node refuses to start.
    #[default]
    Unset,
    /// Nothing authenticates a peer and nothing is encrypted: whoever reaches the port is believed.
    None,
}

/// How a thread waits for something to arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Polls all the time: the least delay for a whole core.
    Spin,
    /// Polls for [`Config::adaptive_spin`], then sleeps. A port of a program that is attached to a node sleeps at once after some waits
    /// that took longer than that, until waits are short again; if it has to wake whom it waits for, it polls for up to 20 times as long
    /// now and then (one wait of 16 at most), for both may sleep only because the other does. A node that programs
    /// are attached to polls for them as long behind the last that it did.
    #[default]
    Adaptive,
    /// Sleeps at once.
    Block,
}

/// Which side a compromise between delay and throughput takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Short queues before the links: quick failover, small messages overtake bulk early.
    #[default]
    Latency,
    /// Queues of up to 6 ms: links stay busy on machines that stall.
    Throughput,
}

/// What our own checksums cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Integrity {
    /// Headers; the payload is left to the medium's checksum.
    #[default]
    Headers,
    /// Headers and payload.
    Full,
}

/// Who drives the engine of an embedded node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// The calling threads and a parked helper thread.
    #[default]
    Auto,
    /// The calling threads alone; peers are told to be patient.
    Manual,
}

/// Sizes of a node's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Bytes in which sent messages stay until they are acked, for each port: of less than 2 MiB in the first 8 MiB, longer ones
    /// anywhere. Longer than a quarter of it get buffers of their own; these, and those handed over by
    /// [`Port::send_buffer`](crate::Port::send_buffer), may hold 8 MiB beside it (but always two of them).
    pub tx_arena_bytes: usize,
    /// Bytes in which received messages wait, for each port: the credit that it grants.
    pub rx_arena_bytes: usize,
    /// Commands that a port can have under way; a power of two.
    pub submission_entries: usize,
    /// Completions that a port can have waiting; a power of two.
    pub completion_entries: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            tx_arena_bytes: 32 << 20,
            rx_arena_bytes: 4 << 20,
            submission_entries: 1024,
            completion_entries: 32_768,
        }
    }
}

/// Settings of a node. Fields may be read and written; the methods of the same names chain.
///
/// ```
/// use polyrail::Config;
///
/// let config = Config::new().insecure().name("a").interfaces(["l0", "l1"]);
/// assert!(config.validate().is_ok());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Whether peers are authenticated; must be said.
    pub security: Security,
    /// Nodes of another cluster on the same wire are ignored.
    pub cluster: String,
    /// Name of the node; `None`: host name and process id.
    pub name: Option<String>,
    /// Identity of the node; `None`: random at each start.
    pub id: Option<NodeId>,
    /// Which interfaces become bearers.
    pub interfaces: InterfaceRules,
    /// UDP port of the data.
    pub port: u16,
    /// UDP port of the beacons.
    pub beacon_port: u16,
    /// Nodes to greet beside those that beacons find: `host` or `host:port`.
    pub peers: Vec<String>,
    /// Whether beacons are sent and heard.
    pub discovery: bool,
    /// Whether single packets go as Ethernet frames of their own where they can (docs/protocol.md §2.5).
    pub express_frames: bool,
    /// Whether nodes of this machine are reached by memory that both share.
    pub shared_memory: bool,
    /// What routers and switches are told of each class.
    pub dscp: ClassDscps,
    /// Most bytes to ask of the kernel for a socket's buffer; `None`: as many as it gives.
    pub socket_buffer_max: Option<usize>,
    /// How threads wait.
    pub wait: Wait,
    /// How long [`Wait::Adaptive`] polls before it sleeps.
    pub adaptive_spin: Duration,
    /// Delay or throughput.
    pub profile: Profile,
    /// How messages are shared among the links to a peer.
    pub policy: Policy,
    /// The same for the messages of one class, by [`Class`] as a number, where that differs.
    pub class_policies: [Option<Policy>; 4],
    /// Sizes of the memory.
    pub memory: Memory,
    /// Most bytes that the node may promise to its ports and to the programs that attach, whether or not they were touched; `None`:
    /// sixteen times the memory of the machine, or of the node's control group if that has less.
    pub memory_bytes_max: Option<u64>,
    /// What each user's programs that attach may have of it.
    pub users: UserLimits,
    /// The same of particular users, where that differs.
    pub user: BTreeMap<u32, UserLimits>,
    /// Which types of services only some users may bind; all others anybody may.
    pub rights: Vec<Right>,
    /// Largest message that `recv` accepts, in bytes.
    pub message_bytes_max: usize,
    /// Silence on all links after which a peer is given up.
    pub tolerance: Duration,
    /// Spacing of keepalives on a link whose session is in use.
    pub keepalive: Duration,
    /// The same where the session is idle.
    pub keepalive_idle: Duration,
    /// What our checksums cover.
    pub integrity: Integrity,
    /// Path of the control socket; `None`: no control socket.
    pub control: Option<PathBuf>,
    /// Path of the socket by which programs attach to the node; `None`: none may.
    pub attach: Option<PathBuf>,
    /// Who drives the engine.
    pub progress: Progress,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            security: Security::default(),
            cluster: "default".into(),
            name: None,
            id: None,
            interfaces: InterfaceRules::default(),
            port: PORT,
            beacon_port: BEACON_PORT,
            peers: Vec::new(),
            discovery: true,
            express_frames: true,
            shared_memory: true,
            dscp: ClassDscps::default(),
            socket_buffer_max: None,
            wait: Wait::default(),
            adaptive_spin: Duration::from_micros(50),
            profile: Profile::default(),
            policy: Policy::default(),
            class_policies: [None; 4],
            memory: Memory::default(),
            memory_bytes_max: None,
            users: UserLimits::default(),
            user: BTreeMap::new(),
            rights: Vec::new(),
            message_bytes_max: 16 << 20,
            tolerance: Duration::from_millis(500),
            keepalive: Duration::from_millis(10),
            keepalive_idle: Duration::from_secs(1),
            integrity: Integrity::default(),
            control: None,
            attach: None,
            progress: Progress::default(),
        }
    }
}

impl Config {
    /// The defaults. Security is not said yet: see [`Config::insecure`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a TOML file and validates it, but for security, which the builder may still say.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let origin = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| ConfigError::unreadable(&origin, &e))?;
        file::parse(&text, Some(&origin))
    }

    /// Reads TOML text and validates it, but for security, which the builder may still say.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        file::parse(text, None)
    }

    /// Accepts that nothing authenticates a peer and nothing is encrypted (`security = "none"`).
    pub fn insecure(mut self) -> Self {
        self.security = Security::None;
        self
    }

    /// Name of the cluster; nodes of another one are ignored.
    pub fn cluster(mut self, cluster: impl Into<String>) -> Self {
        self.cluster = cluster.into();
        self
    }

    /// Name of the node.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Identity of the node; must not be 0, and no two nodes of a cluster may share one.
    pub fn id(mut self, id: NodeId) -> Self {
        self.id = Some(id);
        self
    }

    /// Interfaces to use: names, patterns as `eth*`, or networks as `10.0.0.0/8`; with `!` before it, not to use. None:
    /// the default choice. A node does not start if one that is to be used meets no interface.
    pub fn interfaces<S: Into<String>>(mut self, include: impl IntoIterator<Item = S>) -> Self {
        self.interfaces.include = include.into_iter().map(Into::into).collect();
        self
    }

    /// Interfaces not to use, in place of the default `docker*`, `virbr*`, `veth*`.
    pub fn interfaces_excluded<S: Into<String>>(mut self, exclude: impl IntoIterator<Item = S>) -> Self {
        self.interfaces.exclude = Some(exclude.into_iter().map(Into::into).collect());
        self
    }

    /// Interfaces whose links are on standby, by the same rules: they carry messages only while no other link to that peer can, until
    /// [`crate::Node::set_link`] says otherwise. Such as what is paid for by the byte.
    pub fn interfaces_standby<S: Into<String>>(mut self, standby: impl IntoIterator<Item = S>) -> Self {
        self.interfaces.standby = standby.into_iter().map(Into::into).collect();
        self
    }

    /// UDP port of the data.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// UDP port of the beacons.
    pub fn beacon_port(mut self, port: u16) -> Self {
        self.beacon_port = port;
        self
    }

    /// Nodes to greet: `host` or `host:port`; DNS names are resolved again while nobody answers.
    pub fn peers<S: Into<String>>(mut self, peers: impl IntoIterator<Item = S>) -> Self {
        self.peers = peers.into_iter().map(Into::into).collect();
        self
    }

    /// Whether beacons are sent and heard.
    pub fn discovery(mut self, on: bool) -> Self {
        self.discovery = on;
        self
    }

    /// Whether single packets go as Ethernet frames of their own where they can (docs/protocol.md §2.5).
    pub fn express_frames(mut self, on: bool) -> Self {
        self.express_frames = on;
        self
    }

    /// Whether nodes of this machine, embedded in other programs or not, are reached by memory that both share, instead of by its
    /// network: see ARCHITECTURE.md, "Nodes of one machine".
    pub fn shared_memory(mut self, on: bool) -> Self {
        self.shared_memory = on;
        self
    }

    /// What routers and switches are told of each class. A class with a DSCP other than 0 sends no express frames.
    pub fn dscp(mut self, dscp: ClassDscps) -> Self {
        self.dscp = dscp;
        self
    }

    /// Most bytes to ask of the kernel for a socket's buffer.
    pub fn socket_buffer_max(mut self, bytes: usize) -> Self {
        self.socket_buffer_max = Some(bytes);
        self
    }

    /// How threads wait.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// How long [`Wait::Adaptive`] polls before it sleeps.
    pub fn adaptive_spin(mut self, spin: Duration) -> Self {
        self.adaptive_spin = spin;
        self
    }

    /// How messages are shared among the links to a peer.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How messages of one class are shared among the links to a peer, where that is to differ from [`Config::policy`].
    ///
    /// ```
    /// use polyrail::{Class, Config, Policy};
    ///
    /// // What must not wait for a lost link to be found out goes by every link.
    /// let config = Config::new().class_policy(Class::Urgent, Policy::Redundant);
    /// # assert_eq!(config.policy, Policy::Adaptive);
    /// ```
    pub fn class_policy(mut self, class: Class, policy: Policy) -> Self {
        self.class_policies[class as usize] = Some(policy);
        self
    }

    /// Delay or throughput.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Sizes of the memory.
    pub fn memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// Most bytes that the node may promise to its ports and to the programs that attach: docs/operating.md, "Memory".
    pub fn memory_bytes_max(mut self, bytes: u64) -> Self {
        self.memory_bytes_max = Some(bytes);
        self
    }

    /// What each user's programs that attach may have of the node.
    pub fn users(mut self, limits: UserLimits) -> Self {
        self.users = limits;
        self
    }

    /// The same of the user with this number.
    ///
    /// ```
    /// use polyrail::{Config, UserLimits};
    ///
    /// let few = UserLimits { ports: Some(16), memory_bytes: Some(256 << 20), ..UserLimits::default() };
    /// let config = Config::new().user(1000, few);
    /// # assert!(config.insecure().validate().is_ok());
    /// ```
    pub fn user(mut self, uid: u32, limits: UserLimits) -> Self {
        self.user.insert(uid, limits);
        self
    }

    /// Keeps the binding of services of these types to some users, and to this program if it embeds the node.
    pub fn right(
        mut self,
        types: std::ops::RangeInclusive<u32>,
        users: impl IntoIterator<Item = u32>,
    ) -> Self {
        self.rights.push(Right { types, users: users.into_iter().collect() });
        self
    }

    /// Largest message that `recv` accepts, in bytes; at most [`MESSAGE_BYTES_LIMIT`].
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// Silence on all links after which a peer is given up.
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Spacing of keepalives on a link whose session is in use.
    pub fn keepalive(mut self, keepalive: Duration) -> Self {
        self.keepalive = keepalive;
        self
    }

    /// Spacing of keepalives on a link whose session is idle.
    pub fn keepalive_idle(mut self, keepalive: Duration) -> Self {
        self.keepalive_idle = keepalive;
        self
    }

    /// What our checksums cover.
    pub fn integrity(mut self, integrity: Integrity) -> Self {
        self.integrity = integrity;
        self
    }

    /// Opens a control socket at `path`.
    pub fn control(mut self, path: impl Into<PathBuf>) -> Self {
        self.control = Some(path.into());
        self
    }

    /// Lets programs attach by a socket at `path`: whoever may write to it may.
    pub fn attach(mut self, path: impl Into<PathBuf>) -> Self {
        self.attach = Some(path.into());
        self
    }

    /// Who drives the engine.
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// The configured name, or host name and process id.
    pub fn name_or_default(&self) -> String {
        self.name.clone().unwrap_or_else(|| {
            let mut name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            name.retain(is_name_char);
            // Room for the process id.
            name.truncate(NAME_BYTES_MAX - 12);
            if name.is_empty() {
                name.push_str("node");
            }
            format!("{name}-{}", std::process::id())
        })
    }

    /// The static peers, parsed; ports not given are this node's.
    pub fn peer_names(&self) -> Result<Vec<PeerName>, ConfigError> {
        self.peers.iter().map(|text| PeerName::parse(text, self.port)).collect()
    }

    /// Names the first setting that is not allowed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_settings()?;
        if self.security == Security::Unset {
            let allowed = "\"none\", which means that nothing authenticates a peer and nothing is encrypted";
            return Err(ConfigError::new("security", "not set", allowed));
        }
        Ok(())
    }

    /// The same without security: where the node is of another process, that one has answered for it.
    pub(crate) fn validate_settings(&self) -> Result<(), ConfigError> {
        self.validate_names()?;
        self.validate_numbers()?;
        self.interfaces.validate()?;
        users::validate(&self.users, &self.user, &self.rights)?;
        self.peer_names().map(|_| ())
    }

    fn validate_names(&self) -> Result<(), ConfigError> {
        for (key, name) in [("cluster", Some(&self.cluster)), ("name", self.name.as_ref())] {
            let Some(name) = name else { continue };
            if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_name_char) {
                let allowed = format!("1 to {NAME_BYTES_MAX} of a-z A-Z 0-9 . _ -");
                return Err(ConfigError::new(key, format!("{name:?} is no name"), allowed));
            }
        }
        if self.id == Some(NodeId(0)) {
            return Err(ConfigError::new("id", "0 is nobody", "1 to ffffffffffffffff, hexadecimal"));
        }
        for (key, path) in [("control", &self.control), ("attach", &self.attach)] {
            if path.as_ref().is_some_and(|path| !(1..=107).contains(&path.as_os_str().len())) {
                return Err(ConfigError::new(key, "the path has no right length", "1 to 107 bytes"));
            }
        }
        if self.attach.is_some() && self.progress == Progress::Manual {
            let what = "set, and only this program's own calls would serve who attaches";
            return Err(ConfigError::new("attach", what, "progress = \"auto\" with it"));
        }
        Ok(())
    }

    fn validate_numbers(&self) -> Result<(), ConfigError> {
        let memory = &self.memory;
        let budget = self.memory_bytes_max.unwrap_or(users::MEMORY_BYTES_MIN) as usize;
        let ms = |d: Duration| d.as_millis() as usize;
        let in_range = [
            ("port", self.port as usize, 1, 65_535),
            ("beacon_port", self.beacon_port as usize, 1, 65_535),
            ("socket_buffer_max", self.socket_buffer_max.unwrap_or(65_536), 65_536, 1 << 30),
            ("adaptive_spin_us", self.adaptive_spin.as_micros() as usize, 0, 100_000),
            ("message_bytes_max", self.message_bytes_max, 1, MESSAGE_BYTES_LIMIT),
            ("memory_bytes_max", budget, users::MEMORY_BYTES_MIN as usize, 1 << 50),
            ("tolerance_ms", ms(self.tolerance), 50, 60_000),
            ("keepalive_ms", ms(self.keepalive), 1, 10_000),
            ("keepalive_idle_ms", ms(self.keepalive_idle), 1, 60_000),
            ("memory.tx_arena_bytes", memory.tx_arena_bytes, 1 << 20, 1 << 30),
            ("memory.rx_arena_bytes", memory.rx_arena_bytes, 1 << 20, 1 << 30),
            ("memory.submission_entries", memory.submission_entries, 64, 65_536),
            ("memory.completion_entries", memory.completion_entries, 64, 65_536),
        ];
        for (key, value, min, max) in in_range {
            if !(min..=max).contains(&value) {
                return Err(ConfigError::new(
                    key,
                    format!("{value} is out of range"),
                    format!("{min} to {max}"),
                ));
            }
        }
        for (key, value) in [
            ("memory.submission_entries", memory.submission_entries),
            ("memory.completion_entries", memory.completion_entries),
        ] {
            if !value.is_power_of_two() {
                return Err(ConfigError::new(key, format!("{value}"), "powers of two"));
            }
        }
        if self.port == self.beacon_port {
            let what = format!("{} is the port of the data too", self.beacon_port);
            return Err(ConfigError::new("beacon_port", what, "another number than port"));
        }
        if self.keepalive * 2 > self.tolerance {
            let what = format!("{} is more than half of tolerance_ms", ms(self.keepalive));
            return Err(ConfigError::new("keepalive_ms", what, format!("1 to {}", ms(self.tolerance) / 2)));
        }
        Ok(())
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}
