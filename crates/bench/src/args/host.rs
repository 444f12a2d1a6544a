//! Measuring to another machine, and serving one that does.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::remote::{HostName, Key};

/// Where the two measured processes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Two processes of one node, over loopback.
    Intra,
    /// Two nodes: network namespaces joined by links.
    Inter,
    /// The receiver on another machine, where `bench serve` runs: as the user named it.
    Host(String),
}

impl Placement {
    /// The name used on the command line and in reports.
    pub fn name(&self) -> &str {
        match self {
            Self::Intra => "intra",
            Self::Inter => "inter",
            Self::Host(name) => name,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Placement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Placement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "intra" => Ok(Self::Intra),
            "inter" => Ok(Self::Inter),
            name => match name.parse::<HostName>() {
                Ok(_) => Ok(Self::Host(name.to_owned())),
                Err(error) => Err(format!("neither intra nor inter, and {error}")),
            },
        }
    }
}

/// How another machine is measured to.
#[derive(Args, Clone, Debug, Default)]
pub struct HostArgs {
    /// The key that `bench serve` on the other machine has, too: only for --placement HOST.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Own addresses to measure from, separated by commas; those of the routes to the server if not given. Only for
    /// --placement HOST.
    #[arg(long, value_delimiter = ',', value_name = "ADDR")]
    pub local: Vec<IpAddr>,
}

/// Another machine to measure to, checked.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HostPlan {
    #[serde(serialize_with = "as_written")]
    pub(crate) name: HostName,
    /// Never written anywhere.
    #[serde(skip)]
    pub(crate) key: Key,
    pub(crate) local: Vec<IpAddr>,
}

fn as_written<S: Serializer>(name: &HostName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(name)
}

impl HostArgs {
    /// Checks the arguments; the error is one line for the user.
    pub(crate) fn plan(&self, placements: &[Placement]) -> Result<Option<HostPlan>, String> {
        let hosts: Vec<&String> = placements
            .iter()
            .filter_map(|placement| match placement {
                Placement::Host(name) => Some(name),
                Placement::Intra | Placement::Inter => None,
            })
            .collect();
        if let [first, second, ..] = hosts.as_slice() {
            return Err(format!("--placement {first},{second}: one other machine at a time"));
        }
        let Some(name) = hosts.first() else {
            return match (&self.key_file, self.local.as_slice()) {
                (None, []) => Ok(None),
                (Some(_), _) => {
                    Err("--key-file changes nothing without --placement HOST: leave it out".to_owned())
                }
                _ => Err("--local changes nothing without --placement HOST: leave it out".to_owned()),
            };
        };
        let path = self.key_file.as_deref().ok_or_else(|| {
            format!("--placement {name} needs --key-file FILE: the key that `polyrail bench serve` has there")
        })?;
        Ok(Some(HostPlan { name: name.parse()?, key: Key::load(path)?, local: self.local.clone() }))
    }
}

/// Plays the receiver for measurements from another machine.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Address to listen at for the control connection, port 7432 if none is given; 0.0.0.0 or :: for all.
    #[arg(long, value_name = "ADDR[:PORT]", required_unless_present = "make_key")]
    pub listen: Option<String>,
    /// The shared key, at least 16 bytes, in a file that nobody else may read.
    #[arg(long, value_name = "FILE", required_unless_present = "make_key")]
    pub key_file: Option<PathBuf>,
    /// Own addresses to be measured to, one per link, separated by commas; the one that the control connection came in
    /// on if not given.
    #[arg(long, value_delimiter = ',', value_name = "ADDR")]
    pub address: Vec<IpAddr>,
    /// End after one client.
    #[arg(long)]
    pub once: bool,
    /// Write a new key to FILE and end.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "key_file", "address", "once"])]
    pub make_key: Option<PathBuf>,
}
