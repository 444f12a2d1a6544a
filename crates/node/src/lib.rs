//! Polyrail: a cluster's communication layer in user space.
//!
//! Processes reach *services by name* wherever they run; between nodes messages use every link the machines have at
//! once, and a lost link loses nothing.
//!
//! ```no_run
//! use polyrail::{Config, Node, Scope, ServiceAddress, ServiceRange};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::embed(Config::new().insecure())?;
//! let port = node.port()?;
//! port.bind(ServiceRange::new(1000, 7, 7), Scope::Cluster)?;
//! port.send(ServiceAddress::new(1000, 7), b"hello")?;
//! let message = port.recv()?;
//! assert_eq!(message.bytes(), b"hello");
//! port.send(message.from(), b"hello yourself")?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod attach;
mod attendant;
mod clock;
pub mod config;
pub(crate) mod connection;
pub mod control;
pub mod engine;
mod error;
mod host;
pub mod machine;
mod message;
mod moment;
mod node;
mod port;
mod readiness;
mod returned;
mod subscription;
pub mod trace;
mod wait;

pub use config::{
    ClassDscps, Config, Dscp, Integrity, Memory, Policy, Profile, Progress, Right, Security, UserLimits, Wait,
};
pub use connection::{Connect, Connection};
pub use engine::{BearerStatus, BindingStatus, LinkReport, PeerStatus, Status};
pub use error::{
    BindError, ConnectionError, Disconnect, Error, ErrorCode, LimitsError, LinkSetError, RecvError,
    SendEachError, SendError, StartError, SubscribeError, UpdateError,
};
pub use message::Message;
pub use node::Node;
pub use node::events::NodeEvent;
pub use polyrail_proto::address::{Scope, ServiceAddress, ServiceRange};
pub use polyrail_proto::flow::Class;
pub use polyrail_proto::id::{BearerId, ConnectionId, Incarnation, LinkId, NodeId, PortAddress, PortId};
pub use polyrail_proto::link::state::LinkState;
pub use polyrail_proto::node::Destination;
pub use polyrail_proto::service::{Lookup, Publication, Topic, Update};
pub use polyrail_proto::wire::LinkStatus;
pub use polyrail_shm::Buffer;
pub use port::Port;
pub use returned::{Returned, SendOptions};
pub use subscription::Subscription;
