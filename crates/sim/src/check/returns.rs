//! I17: a message that failed and was to come back does, whole, to the port that sent it; others do not, and nothing
//! expires before its time.

use super::PortKey;
use crate::content;
use crate::subject::{FailReason, To, Wish};
use std::collections::BTreeMap;

/// What was wished of a message, and what it must be if it comes back.
#[derive(Clone, Copy, Debug)]
struct Asked {
    from: PortKey,
    to: To,
    bytes: usize,
    wish: Wish,
}

/// A message that came back.
#[derive(Clone, Copy, Debug)]
pub struct Back<'a> {
    /// The port to which it came.
    pub port: PortKey,
    /// Where it was to go.
    pub to: Option<To>,
    /// Its class.
    pub class: u8,
    /// Its tag.
    pub tag: Option<u64>,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Messages that were to come back, or that might expire.
#[derive(Debug, Default)]
pub struct Returns(BTreeMap<u64, Asked>);

impl Returns {
    /// Message `id` was accepted, with a wish beyond class and tag.
    pub fn on_asked(&mut self, id: u64, from: PortKey, to: To, wish: Wish, bytes: usize) {
        if wish.returns || wish.expires_at_ns.is_some() {
            self.0.insert(id, Asked { from, to, bytes, wish });
        }
    }

    /// Whether a message is to come back if it is not delivered.
    pub fn wants(&self, id: u64) -> bool {
        self.0.get(&id).is_some_and(|asked| asked.wish.returns)
    }

    /// What is wrong with a failure that came without the message, told at `local_ns` by the sender's clock.
    pub fn objection_to_failure(&self, id: u64, reason: FailReason, local_ns: u64) -> Option<String> {
        if self.wants(id) {
            return Some(format!("message {id} failed ({reason:?}) and did not come back"));
        }
        self.objection_to_reason(id, reason, local_ns)
    }

    /// What is wrong with a message that came back.
    pub fn objection_to(&self, id: u64, back: Back<'_>, reason: FailReason, local_ns: u64) -> Option<String> {
        let Some(Asked { from, to, bytes, wish }) = self.0.get(&id).filter(|asked| asked.wish.returns) else {
            return Some(format!("{} got message {id} back, which nobody wanted back", back.port));
        };
        if *from != back.port {
            return Some(format!("message {id} of {from} came back to {}", back.port));
        }
        if (Some(*to), wish.class, wish.tag) != (back.to, back.class, back.tag) {
            return Some(format!("message {id} came back as another: {:?}", (back.to, back.class, back.tag)));
        }
        let differs = content::first_difference(id, back.bytes).is_some();
        if differs || *bytes != back.bytes.len() {
            return Some(format!("message {id} of {bytes} bytes came back with others"));
        }
        self.objection_to_reason(id, reason, local_ns)
    }

    fn objection_to_reason(&self, id: u64, reason: FailReason, local_ns: u64) -> Option<String> {
        if reason != FailReason::Expired {
            return None;
        }
        let expires_at_ns = self.0.get(&id).and_then(|asked| asked.wish.expires_at_ns);
        let early = expires_at_ns.is_none_or(|at_ns| local_ns < at_ns);
        early.then(|| format!("message {id} expired before its time, {expires_at_ns:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_proto::address::ServiceAddress;

    const PORT: PortKey = PortKey { node: 0, life: 0, port: 5 };
    const TO: To = To::Service(ServiceAddress::new(1_000, 1));

    fn body(id: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        content::fill(id, 100, &mut bytes);
        bytes
    }

    #[test]
    fn only_the_message_itself_may_come_back_and_only_to_its_sender() {
        let mut returns = Returns::default();
        let wish = Wish { class: 2, tag: Some(9), returns: true, expires_at_ns: Some(70) };
        returns.on_asked(4, PORT, TO, wish, 100);
        returns.on_asked(5, PORT, TO, Wish { returns: false, ..wish }, 100);
        let (right, other) = (body(4), body(5));
        let back = Back { port: PORT, to: Some(TO), class: 2, tag: Some(9), bytes: &right };
        let fine = |id, back, reason, at_ns| returns.objection_to(id, back, reason, at_ns).is_none();
        assert!(fine(4, back, FailReason::NoPort, 0) && fine(4, back, FailReason::Expired, 70));
        assert!(!fine(4, back, FailReason::Expired, 69));
        assert!(!fine(5, Back { bytes: &other, ..back }, FailReason::NoPort, 0), "nobody asked");
        assert!(!fine(6, back, FailReason::NoPort, 0), "nobody sent it");
        for wrong in [
            Back { port: PortKey { port: 6, ..PORT }, ..back },
            Back { to: None, ..back },
            Back { class: 1, ..back },
            Back { tag: None, ..back },
            Back { bytes: &other, ..back },
            Back { bytes: &right[..99], ..back },
        ] {
            assert!(!fine(4, wrong, FailReason::NoPort, 0), "{wrong:?}");
        }
        assert!(returns.objection_to_failure(4, FailReason::NoPort, 0).is_some(), "it was to come back");
        assert!(returns.objection_to_failure(5, FailReason::Expired, 69).is_some());
        assert!(returns.objection_to_failure(5, FailReason::Expired, 70).is_none());
        assert!(returns.objection_to_failure(6, FailReason::NoPort, 0).is_none());
    }
}
