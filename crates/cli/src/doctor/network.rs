//! Addresses and networks.

use std::net::IpAddr;

/// Whether two addresses share their first `bits` bits.
pub fn share(a: IpAddr, b: IpAddr, bits: u8) -> bool {
    let same = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    same >= u32::from(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_share_a_network_up_to_its_bits() {
        let share = |a: &str, b: &str, bits| share(a.parse().unwrap(), b.parse().unwrap(), bits);
        assert!(share("10.0.0.1", "10.0.0.254", 24) && !share("10.0.0.1", "10.0.1.1", 24));
        assert!(share("10.0.0.1", "10.0.0.1", 32) && share("1.2.3.4", "200.2.3.4", 0));
        assert!(share("fd00::1", "fd00::2", 64) && !share("fd00::1", "10.0.0.1", 0));
    }
}
