//! The flags that configure a node, shared by every command that runs one.

use crate::failure::Failure;
use crate::{control, size};
use clap::{Args, ValueEnum};
use polyrail::config::{Config, Policy, Profile, Wait};
use polyrail::{Class, Node};
use std::path::PathBuf;

/// Settings of the node; a flag overrides the file.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Node")]
pub struct NodeArgs {
    /// Reads settings from a TOML file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Accepts that nothing authenticates a peer and nothing is encrypted
    #[arg(long)]
    pub insecure: bool,
    /// Name of the cluster
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Name of the node
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Interface to use: a name, a pattern ('eth*') or a network (10.0.0.0/8), with ! before it one not to use; may be
    /// repeated
    #[arg(long = "interface", value_name = "RULE")]
    pub interfaces: Vec<String>,
    /// Interface whose links carry messages only while no other link to that peer can: a rule as for --interface, without !;
    /// may be repeated
    #[arg(long = "standby", value_name = "RULE")]
    pub standby: Vec<String>,
    /// Node to greet: HOST or HOST:PORT; may be repeated
    #[arg(long = "peer", value_name = "HOST")]
    pub peers: Vec<String>,
    /// UDP port of the data
    #[arg(long)]
    pub port: Option<u16>,
    /// UDP port of the beacons
    #[arg(long)]
    pub beacon_port: Option<u16>,
    /// Neither sends nor hears beacons
    #[arg(long)]
    pub no_discovery: bool,
    /// How threads wait
    #[arg(long, value_name = "MODE")]
    pub waiting: Option<Waiting>,
    /// Which side compromises take
    #[arg(long)]
    pub profile: Option<ProfileArg>,
    /// How messages are shared among the links to a peer: adaptive; redundant (each by every link); or, to be compared with
    /// it, static, one-way, round-robin, mnc or mnc-rtt. `urgent=redundant` says it for one class. Repeatable
    #[arg(long = "policy", value_name = "[CLASS=]POLICY", value_parser = parse_policy)]
    pub policies: Vec<(Option<Class>, Policy)>,
    /// Most bytes to ask of the kernel for a socket's buffer
    #[arg(long, value_name = "BYTES", value_parser = size::parse_bytes)]
    pub socket_buffer_max: Option<u64>,
}

/// Which node a command uses: one of its own, or one that runs already.
#[derive(Args, Clone, Debug, Default)]
pub struct NodeChoice {
    /// Attaches to a node that runs, by the socket that `polyrail node` tells, instead of starting one; without a path, to the only
    /// node of this machine. Of the settings below, --waiting counts then
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    attach: Option<Option<PathBuf>>,
    #[command(flatten)]
    node: NodeArgs,
}

impl NodeChoice {
    /// Attaches to that node, or starts one.
    pub fn node(&self) -> Result<Node, Failure> {
        match &self.attach {
            None => crate::node::embed(self.node.config()?),
            Some(Some(path)) => Ok(Node::attach_with(path, self.node.settings()?)?),
            Some(None) => {
                let path = control::only()?.with_extension("attach");
                Ok(Node::attach_with(path, self.node.settings()?)?)
            }
        }
    }
}

/// How threads wait.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Waiting {
    /// Poll all the time
    Spin,
    /// Poll a little, then sleep
    Adaptive,
    /// Sleep at once
    Block,
}

/// Delay or throughput.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ProfileArg {
    /// Short queues
    Latency,
    /// Longer queues
    Throughput,
}

impl NodeArgs {
    /// The file, then the flags, validated.
    pub fn config(&self) -> Result<Config, Failure> {
        let config = self.settings()?;
        config.validate()?;
        Ok(config)
    }

    fn settings(&self) -> Result<Config, Failure> {
        let mut config = match &self.config {
            Some(path) => Config::load(path)?,
            None => Config::new(),
        };
        if self.insecure {
            config = config.insecure();
        }
        if let Some(cluster) = &self.cluster {
            config = config.cluster(cluster);
        }
        if let Some(name) = &self.name {
            config = config.name(name);
        }
        if !self.interfaces.is_empty() {
            config = config.interfaces(&self.interfaces);
        }
        if !self.standby.is_empty() {
            config = config.interfaces_standby(&self.standby);
        }
        if !self.peers.is_empty() {
            config = config.peers(&self.peers);
        }
        if let Some(port) = self.port {
            config = config.port(port);
        }
        if let Some(port) = self.beacon_port {
            config = config.beacon_port(port);
        }
        if self.no_discovery {
            config = config.discovery(false);
        }
        if let Some(waiting) = self.waiting {
            config = config.wait(waiting.into());
        }
        if let Some(profile) = self.profile {
            config = config.profile(profile.into());
        }
        for &(class, policy) in &self.policies {
            config = match class {
                None => config.policy(policy),
                Some(class) => config.class_policy(class, policy),
            };
        }
        if let Some(bytes) = self.socket_buffer_max {
            config = config.socket_buffer_max(bytes as usize);
        }
        Ok(config)
    }
}

fn parse_policy(text: &str) -> Result<(Option<Class>, Policy), String> {
    let (class, name) = match text.split_once('=') {
        None => (None, text),
        Some((class, name)) => {
            let known = Class::ALL.into_iter().find(|known| known.name() == class);
            let allowed = || format!("allowed before =: {}", Class::ALL.map(Class::name).join(", "));
            (Some(known.ok_or_else(allowed)?), name)
        }
    };
    let known = Policy::ALL.into_iter().find(|policy| policy.name() == name);
    let policy = known.ok_or_else(|| format!("allowed: {}", Policy::ALL.map(Policy::name).join(", ")))?;
    Ok((class, policy))
}

impl From<Waiting> for Wait {
    fn from(waiting: Waiting) -> Self {
        match waiting {
            Waiting::Spin => Wait::Spin,
            Waiting::Adaptive => Wait::Adaptive,
            Waiting::Block => Wait::Block,
        }
    }
}

impl From<ProfileArg> for Profile {
    fn from(profile: ProfileArg) -> Self {
        match profile {
            ProfileArg::Latency => Profile::Latency,
            ProfileArg::Throughput => Profile::Throughput,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_node_without_insecure_is_a_usage_error_that_names_the_flag() {
        let failure = NodeArgs::default().config().unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.contains("--insecure"), "{}", failure.message);
    }

    #[test]
    fn flags_override_the_file() {
        let path = std::env::temp_dir().join(format!("polyrail-flags-{}.toml", std::process::id()));
        std::fs::write(&path, "cluster = \"file\"\nport = 9000\nwait = \"block\"\n").unwrap();
        let flags = NodeArgs {
            config: Some(path.clone()),
            insecure: true,
            cluster: Some("flag".into()),
            waiting: Some(Waiting::Spin),
            ..NodeArgs::default()
        };
        let config = flags.config().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((config.cluster.as_str(), config.port, config.wait), ("flag", 9000, Wait::Spin));
    }
}
