//! Services and ports as they are written on the command line.

use polyrail::{NodeId, PortAddress, PortId, ServiceAddress, ServiceRange};

/// Where a message goes: `TYPE:INSTANCE`, or `NODEID:PORT` with the 16 hexadecimal digits of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Whoever is bound there.
    Service(ServiceAddress),
    /// One port.
    Port(PortAddress),
}

/// Reads a target.
pub fn parse_target(text: &str) -> Result<Target, String> {
    let wrong = || {
        "no service or port; allowed: TYPE:INSTANCE as 100:7, or NODEID:PORT with 16 hexadecimal digits"
            .to_string()
    };
    let (left, right) = text.split_once(':').ok_or_else(wrong)?;
    if left.len() == 16 && left.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let node = u64::from_str_radix(left, 16).map_err(|_| wrong())?;
        let port = number(right).ok_or_else(wrong)?;
        return Ok(Target::Port(PortAddress { node: NodeId(node), port: PortId(port) }));
    }
    let (kind, instance) = number(left).zip(number(right)).ok_or_else(wrong)?;
    Ok(Target::Service(ServiceAddress::new(kind, instance)))
}

/// Reads `TYPE:INSTANCE` or `TYPE:LOWER-UPPER`.
pub fn parse_range(text: &str) -> Result<ServiceRange, String> {
    let wrong = || "no service; allowed: TYPE:INSTANCE as 100:7, or TYPE:LOWER-UPPER as 100:0-9".to_string();
    let (kind, instances) = text.split_once(':').ok_or_else(wrong)?;
    let (lower, upper) = instances.split_once('-').unwrap_or((instances, instances));
    let (kind, lower, upper) = match (number(kind), number(lower), number(upper)) {
        (Some(kind), Some(lower), Some(upper)) => (kind, lower, upper),
        _ => return Err(wrong()),
    };
    if lower > upper {
        return Err(format!("{lower} is above {upper}; allowed: TYPE:LOWER-UPPER"));
    }
    Ok(ServiceRange::new(kind, lower, upper))
}

/// Decimal digits only: `parse` alone would take a sign.
fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_service_or_a_port() {
        assert_eq!(parse_target("100:7"), Ok(Target::Service(ServiceAddress::new(100, 7))));
        let port = PortAddress { node: NodeId(0xc0ffee), port: PortId(3) };
        assert_eq!(parse_target("0000000000c0ffee:3"), Ok(Target::Port(port)));
        assert_eq!(parse_target(&port.to_string()), Ok(Target::Port(port)));
        for wrong in ["", "100", "100:", ":7", "a:7", "100:7-9", "+1:2", "4294967296:0", "0000000000c0ffee:x"]
        {
            assert!(parse_target(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_range_is_one_instance_or_an_interval() {
        assert_eq!(parse_range("100:7"), Ok(ServiceRange::new(100, 7, 7)));
        assert_eq!(parse_range("100:0-9"), Ok(ServiceRange::new(100, 0, 9)));
        for wrong in ["", "100", "100:-9", "100:9-", "100:9-0", "100:1-2-3", "x:1"] {
            assert!(parse_range(wrong).is_err(), "{wrong:?}");
        }
    }
}
