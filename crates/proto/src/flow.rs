//! Flows: the ordering domain of messages, from one port to another in one class (protocol.md §5.2).

pub mod receive;
pub mod send;

use crate::id::PortId;

/// Most important first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Class {
    /// For the system's own needs and for what must pass everything.
    Control = 0,
    /// Passes normal traffic.
    Urgent = 1,
    /// The usual.
    #[default]
    Normal = 2,
    /// Gives way to all others.
    Bulk = 3,
}

impl Class {
    /// All, most important first.
    pub const ALL: [Class; 4] = [Class::Control, Class::Urgent, Class::Normal, Class::Bulk];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Control => "control",
            Class::Urgent => "urgent",
            Class::Normal => "normal",
            Class::Bulk => "bulk",
        }
    }

    /// From the wire's two bits.
    pub fn from_bits(bits: u8) -> Class {
        Class::ALL[(bits & 3) as usize]
    }
}

/// Names a flow inside a session, on either side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowKey {
    /// Sending port.
    pub from: PortId,
    /// Receiving port.
    pub to: PortId,
    /// Class.
    pub class: Class,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_the_name_by_which_programs_ask_for_it() {
        assert_eq!(Class::ALL.map(Class::name), ["control", "urgent", "normal", "bulk"]);
    }

    #[test]
    fn the_two_bits_name_each_class_and_the_others_nothing() {
        assert_eq!([0, 1, 2, 3].map(Class::from_bits), Class::ALL);
        assert_eq!(Class::from_bits(0b1111_1101), Class::Urgent);
        assert!(Class::ALL.iter().all(|class| Class::from_bits(*class as u8) == *class));
    }
}
