//! What an interface can do by itself, and what of that is switched on: what `ethtool -k` shows.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::carrier::{SIOCETHTOOL, named};
use super::netlink::u32_at;
use crate::call::check;

/// Commands and the set of names, from `linux/ethtool.h`.
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETH_SS_FEATURES: u32 = 4;
/// Bytes of one name.
const NAME_BYTES: usize = 32;

/// One feature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    /// Its name, such as `tx-udp-segmentation`.
    pub name: String,
    /// Whether it is on.
    pub on: bool,
    /// Whether somebody could change that.
    pub changeable: bool,
}

/// The features of interface `device`. `socket` is any socket of the name space.
pub fn features(socket: &impl AsFd, device: &str) -> io::Result<Vec<Feature>> {
    // Command, reserved, mask of sets, and a number for each set asked for.
    let mut info = [0; 20];
    put(&mut info, &[ETHTOOL_GSSET_INFO, 0]);
    info[8..16].copy_from_slice(&(1u64 << ETH_SS_FEATURES).to_ne_bytes());
    ask(socket, device, &mut info)?;
    // The kernel writes as many names as it told here, whatever it is asked for: room for all of them is a must.
    let count = u32_at(&info, 16).unwrap_or(0) as usize;
    let blocks = count.div_ceil(32);
    // Command, set, count, names.
    let mut names = vec![0; 12 + count * NAME_BYTES];
    put(&mut names, &[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
    ask(socket, device, &mut names)?;
    // Command, count of blocks, blocks of available, requested, active and never changed.
    let mut bits = vec![0; 8 + blocks * 16];
    put(&mut bits, &[ETHTOOL_GFEATURES, blocks as u32]);
    ask(socket, device, &mut bits)?;
    Ok(joined(&names[12..], &bits[8..]))
}

fn put(bytes: &mut [u8], words: &[u32]) {
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
}

/// Lets the kernel read and write a buffer that is as long as its command says.
fn ask(socket: &impl AsFd, device: &str, buffer: &mut [u8]) -> io::Result<()> {
    let mut request = named(device)?;
    request.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `request` is valid for the call. The place it points to holds a command that reads and writes no more
    // than the counts in it tell, for which the callers above have made room.
    check(unsafe { libc::ioctl(fd, SIOCETHTOOL, &raw mut request) }).map(drop)
}

fn joined(names: &[u8], bits: &[u8]) -> Vec<Feature> {
    let feature = |(index, name): (usize, &[u8])| {
        let block = bits.get(index / 32 * 16..)?;
        let is_set = |word: usize| Some(u32_at(block, word * 4)? >> (index % 32) & 1 == 1);
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        let name = String::from_utf8_lossy(&name[..end]).into_owned();
        Some(Feature { name, on: is_set(2)?, changeable: is_set(0)? && !is_set(3)? })
    };
    names.chunks_exact(NAME_BYTES).enumerate().filter_map(feature).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_features() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let found = features(&socket, "lo").unwrap();
        let one = |name: &str| found.iter().find(|feature| feature.name == name).unwrap();
        assert!(one("rx-gro").changeable && found.len() > 32, "{found:?}");
        assert!(features(&socket, "no-such-device").is_err());
        assert!(features(&socket, "a-name-that-is-too-long").is_err());
    }

    #[test]
    fn names_meet_their_bits() {
        let mut names = vec![0; 33 * NAME_BYTES];
        names[..2].copy_from_slice(b"a0");
        names[NAME_BYTES..NAME_BYTES + 2].copy_from_slice(b"a1");
        names[32 * NAME_BYTES..32 * NAME_BYTES + 3].copy_from_slice(b"a32");
        let mut bits = vec![0; 32];
        // Available: 0 and 1; active: 1; never changed: 1; of the second block available and active: 32.
        put(&mut bits, &[0b11, 0, 0b10, 0b10, 1, 0, 1, 0]);
        let found = joined(&names, &bits);
        let told = |index: usize| (found[index].name.as_str(), found[index].on, found[index].changeable);
        assert_eq!(
            [told(0), told(1), told(32)],
            [("a0", false, true), ("a1", true, false), ("a32", true, true)]
        );
        assert_eq!(joined(&names, &bits[..20]).len(), 32, "bits that are missing");
    }
}
