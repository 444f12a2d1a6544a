//! What routers and switches are told of a class: its DSCP, the upper six bits of a byte in the IP header (RFC 2474).

use polyrail_proto::flow::Class;
use std::fmt;
use std::str::FromStr;

/// Largest DSCP.
const DSCP_MAX: u8 = 63;

/// How what leaves is to be treated on its way, for networks that are set up to tell it apart.
///
/// ```
/// use polyrail::Dscp;
///
/// let expedited: Dscp = "ef".parse().unwrap();
/// assert_eq!(Dscp::new(46), Some(expedited));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dscp(u8);

/// Text or a number that is no DSCP; as text, in one line with what is allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} is no DSCP; allowed: {ALLOWED}")]
pub struct UnknownDscp(pub(super) String);

/// What may be written.
pub(super) const ALLOWED: &str =
    "0 to 63, cs0 to cs7, af11 af12 af13 af21 af22 af23 af31 af32 af33 af41 af42 af43, ef, le";

impl Dscp {
    /// The DSCP with this number; `None` above 63.
    pub const fn new(number: u8) -> Option<Dscp> {
        if number > DSCP_MAX { None } else { Some(Dscp(number)) }
    }

    /// Its number, 0 to 63.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Class selector, assured forwarding, expedited forwarding or lower effort, if it has such a name.
    fn by_name(name: &str) -> Option<Dscp> {
        let digit = |c: u8, from: u8, to: u8| (b'0' + from..=b'0' + to).contains(&c).then(|| c - b'0');
        let number = match name.to_ascii_lowercase().as_bytes() {
            b"ef" => 46,
            b"le" => 1,
            [b'c', b's', class] => digit(*class, 0, 7)? * 8,
            [b'a', b'f', class, drop] => digit(*class, 1, 4)? * 8 + digit(*drop, 1, 3)? * 2,
            _ => return None,
        };
        Some(Dscp(number))
    }
}

impl FromStr for Dscp {
    type Err = UnknownDscp;

    /// Reads a name, in small or capital letters, or a number.
    fn from_str(text: &str) -> Result<Dscp, UnknownDscp> {
        // Reading a number would take a sign.
        let number = || text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        let found = Dscp::by_name(text).or_else(|| number().and_then(Dscp::new));
        found.ok_or_else(|| UnknownDscp(format!("{text:?}")))
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 8, self.0 % 8) {
            (5, 6) => f.write_str("ef"),
            (0, 1) => f.write_str("le"),
            (class, 0) => write!(f, "cs{class}"),
            (class @ 1..=4, drop @ (2 | 4 | 6)) => write!(f, "af{class}{}", drop / 2),
            _ => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dscp({self})")
    }
}

/// The DSCP of each class; by default 0 for all, which costs nothing and asks for nothing.
///
/// Each train of packets has that of the most urgent class of which there is a message in it, and what leaves without messages
/// (acknowledgements, credit, questions about links, beacons) that of control.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassDscps {
    /// Of [`Class::Control`], and of all that is no message.
    pub control: Dscp,
    /// Of [`Class::Urgent`].
    pub urgent: Dscp,
    /// Of [`Class::Normal`].
    pub normal: Dscp,
    /// Of [`Class::Bulk`].
    pub bulk: Dscp,
}

impl ClassDscps {
    /// That of `class`.
    #[inline]
    pub fn of(&self, class: Class) -> Dscp {
        match class {
            Class::Control => self.control,
            Class::Urgent => self.urgent,
            Class::Normal => self.normal,
            Class::Bulk => self.bulk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_the_numbers_of_the_registry() {
        let registry = "cs0 0, cs1 8, cs2 16, cs3 24, cs4 32, cs5 40, cs6 48, cs7 56, ef 46, le 1, \
            af11 10, af12 12, af13 14, af21 18, af22 20, af23 22, af31 26, af32 28, af33 30, af41 34, af42 36, af43 38";
        for (name, number) in registry.split(", ").map(|pair| pair.split_once(' ').unwrap()) {
            let dscp = Dscp::new(number.parse().unwrap()).unwrap();
            assert_eq!((name.parse(), name.to_uppercase().parse()), (Ok(dscp), Ok(dscp)), "{name}");
            assert_eq!((number.parse(), dscp.to_string()), (Ok(dscp), name.to_string()));
        }
    }

    #[test]
    fn every_dscp_is_written_so_that_it_is_read_again_and_no_other_number_is_one() {
        for number in 0..=DSCP_MAX {
            let dscp = Dscp::new(number).unwrap();
            assert_eq!((dscp.number(), dscp.to_string().parse()), (number, Ok(dscp)));
        }
        assert_eq!(Dscp::new(DSCP_MAX + 1), None);
    }

    #[test]
    fn what_is_no_dscp_is_answered_with_those_that_there_are() {
        let wrong = [
            "", "64", "256", "-1", "+1", "1.5", "0x2e", "cs", "cs8", "cs10", "af", "af10", "af14", "af51",
            "af01", "af111", "e", "eff", "best",
        ];
        for wrong in wrong {
            let error = wrong.parse::<Dscp>().unwrap_err().to_string();
            assert_eq!(error, format!("{wrong:?} is no DSCP; allowed: {ALLOWED}"));
        }
    }
}
