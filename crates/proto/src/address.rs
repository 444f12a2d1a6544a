//! Service addresses and media addresses.

use core::fmt;
use serde::{Deserialize, Serialize};

/// A service: a type and one instance of it. Types 0..64 are reserved for the system (protocol.md §7.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ServiceAddress {
    /// What kind of service.
    pub kind: u32,
    /// Which one of that kind.
    pub instance: u32,
}

/// All instances `lower..=upper` of a service type; what a port binds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct ServiceRange {
    /// What kind of service.
    pub kind: u32,
    /// First instance.
    pub lower: u32,
    /// Last instance, included.
    pub upper: u32,
}

/// How far a binding is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
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
    /// Whether the two share an instance.
    pub const fn overlaps(&self, other: &ServiceRange) -> bool {
        self.kind == other.kind && self.lower <= other.upper && other.lower <= self.upper
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
pub struct MediaAddress {
    /// Zeros behind the address: copying and comparing all of it is quicker than as much as is needed.
    bytes: [u8; 24],
    len: u8,
}

impl MediaAddress {
    /// From bytes; `None` if there are more than 24.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut all = [0; 24];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(MediaAddress { bytes: all, len: bytes.len() as u8 })
    }
    /// The first `len` of `bytes`, whose others are zeros.
    ///
    /// # Panics
    /// If `len` is more than 24.
    #[inline]
    pub fn padded(bytes: [u8; 24], len: usize) -> Self {
        debug_assert!(
            bytes[len..].iter().all(|byte| *byte == 0),
            "what is behind the address is compared with it"
        );
        assert!(len <= bytes.len(), "an address has at most 24 bytes");
        MediaAddress { bytes, len: len as u8 }
    }
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

impl fmt::Debug for MediaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for b in self.as_bytes() {
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ordered_and_compared_as_their_bytes_are() {
        let all: [&[u8]; 7] = [&[], &[0], &[0, 0], &[0, 1], &[1], &[1, 0, 5], &[1; 24]];
        let addresses = all.map(|bytes| MediaAddress::from_bytes(bytes).unwrap());
        assert!(addresses.is_sorted_by(|a, b| a < b));
        assert_eq!(addresses.each_ref().map(MediaAddress::as_bytes), all);
        assert_eq!(MediaAddress::from_bytes(&[1; 25]), None);
        let mut bytes = [0; 24];
        bytes[0] = 1;
        assert_eq!(MediaAddress::padded(bytes, 1), addresses[4]);
    }
}
