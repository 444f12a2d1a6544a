//! Faults that can be planted to prove that the simulator's checks look (docs/testing.md).
//!
//! Compiled only with the feature `planted`, which no product build enables.

/// One planted fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Planted {
    /// A message whose duplicate arrives is delivered twice.
    DuplicateDelivery,
    /// What a dead link had in flight is not sent again.
    ForgottenRetransmission,
    /// Credit of refused messages is charged twice at the sender.
    CreditLeak,
    /// Every acknowledged range is taken to begin one packet too low.
    AckRangeOffByOne,
    /// Messages are delivered as they complete.
    ReorderedDelivery,
    /// A message's bytes are given back when it was sent, not when it was acknowledged.
    EarlyRelease,
    /// A fragment that is sent again is one byte short, and booked whole.
    ShortRetransmission,
    /// A lost credit frame is not sent again.
    LostCredit,
    /// Packets of an earlier session are taken for packets of the present one.
    StaleSession,
    /// Control frames are processed in the order in which they arrive.
    ControlOutOfOrder,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 10] = [
        Planted::DuplicateDelivery,
        Planted::ForgottenRetransmission,
        Planted::CreditLeak,
        Planted::AckRangeOffByOne,
        Planted::ReorderedDelivery,
        Planted::EarlyRelease,
        Planted::ShortRetransmission,
        Planted::LostCredit,
        Planted::StaleSession,
        Planted::ControlOutOfOrder,
    ];
}
