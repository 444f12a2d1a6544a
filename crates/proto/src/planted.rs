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
    /// The end of a connection is told when the other side says so, and not behind its last message.
    HastyEnd,
    /// A CONNECT that comes again opens the connection again.
    RepeatedConnect,
    /// Who refuses a connection names the one before it.
    MisdirectedRefusal,
    /// An end whose halves are both over is not forgotten.
    StaleConnection,
    /// Messages for an end whose last message was delivered are delivered all the same.
    LateDelivery,
    /// What was read of a connection gives its sender nothing back.
    ForgottenReading,
    /// The credit of a connection outlasts it.
    KeptCredit,
    /// Of the withdrawals that a peer tells of, one in four is not carried out, and digests do not see it.
    LostWithdrawal,
    /// When a session ends, the first binding of its peer stays, and digests do not see it.
    StalePublication,
    /// A binding that wants to be the only one gives way to no other.
    KeptExclusive,
    /// A message to several is delivered twice to one of its ports.
    RepeatedMulticast,
    /// A message to several is not delivered to one of its ports.
    PartialMulticast,
    /// What failed is told to another port than the one that sent it.
    MisdirectedReturn,
    /// A message whose time is up is told to have failed, and sent all the same.
    HastyExpiry,
    /// A port that closes says of all that arrived that it was read.
    UnreadForgotten,
    /// A link gets the number of the one before if that has not joined yet.
    ReusedLink,
    /// The turn of a flow never ends while it has something to send.
    EndlessTurn,
    /// The first session that has something to send has every turn.
    GreedySession,
    /// Classes have their turns the other way round.
    UrgentLast,
    /// As much waits in a link's queue while bulk shares it with other classes as without them.
    DeepQueue,
    /// A link goes on though its carrier is gone.
    CarrierIgnored,
    /// Links that are suspect go on taking messages.
    SuspectServes,
    /// A link that is back is in full use with its first packet.
    HastyProbation,
    /// A link that keeps failing is not damped.
    UndampedLink,
    /// What a link has done is forgotten a hundred times as late.
    UnforgivingDamping,
    /// The last packet of what links divide is taken by none of them.
    LostRemainder,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 36] = [
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
        Planted::HastyEnd,
        Planted::RepeatedConnect,
        Planted::MisdirectedRefusal,
        Planted::StaleConnection,
        Planted::LateDelivery,
        Planted::ForgottenReading,
        Planted::KeptCredit,
        Planted::LostWithdrawal,
        Planted::StalePublication,
        Planted::KeptExclusive,
        Planted::RepeatedMulticast,
        Planted::PartialMulticast,
        Planted::MisdirectedReturn,
        Planted::HastyExpiry,
        Planted::UnreadForgotten,
        Planted::ReusedLink,
        Planted::EndlessTurn,
        Planted::GreedySession,
        Planted::UrgentLast,
        Planted::DeepQueue,
        Planted::CarrierIgnored,
        Planted::SuspectServes,
        Planted::HastyProbation,
        Planted::UndampedLink,
        Planted::UnforgivingDamping,
        Planted::LostRemainder,
    ];
}
