//! Service addresses and media addresses.

use arrayvec::ArrayVec;
use core::fmt;

/// A service: a type and one instance of it. Types 0..64 are reserved for the system (protocol.md §7.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ServiceAddress {
    /// What kind of service.
    pub kind: u32,
    /// Which one of that kind.
    pub instance: u32,
}

/// All instances `lower..=upper` of a service type; what a port binds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ServiceRange {
    /// What kind of service.
    pub kind: u32,
    /// First instance.
    pub lower: u32,
    /// Last instance, included.
    pub upper: u32,
}

/// How far a binding is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Scope {
    /// Every node of the cluster.
    #[default]
    Cluster = 2,
    /// This node only.
    Node = 3,
}

/// First service type that programs may bind.
pub const USER_KIND_MIN: u32 = 64;

impl ServiceAddress {
    /// The service `kind`, `instance`.
    pub const fn new(kind: u32, instance: u32) -> Self {
        ServiceAddress { kind, instance }
    }
}

impl ServiceRange {
    /// The range `lower..=upper` of `kind`.
    pub const fn new(kind: u32, lower: u32, upper: u32) -> Self {
        ServiceRange { kind, lower, upper }
    }
    /// Whether `address` lies inside.
    pub const fn contains(&self, address: ServiceAddress) -> bool {
        self.kind == address.kind && self.lower <= address.instance && address.instance <= self.upper
    }
}

impl From<ServiceAddress> for ServiceRange {
    fn from(a: ServiceAddress) -> Self {
        ServiceRange { kind: a.kind, lower: a.instance, upper: a.instance }
    }
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.instance)
    }
}
impl fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lower == self.upper {
            write!(f, "{}:{}", self.kind, self.lower)
        } else {
            write!(f, "{}:{}-{}", self.kind, self.lower, self.upper)
        }
    }
}
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Cluster => "cluster",
            Scope::Node => "node",
        })
    }
}

/// An address on some medium, opaque to the core: only the driver and the bearer understand it.
/// At most 24 bytes (IPv6, port, interface).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MediaAddress(pub ArrayVec<u8, 24>);

impl MediaAddress {
    /// From bytes; `None` if there are more than 24.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        ArrayVec::try_from(bytes).ok().map(MediaAddress)
    }
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for MediaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for b in &self.0 {
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}
