//! Which checks each planted fault is meant for: one that is found by another has not shown that its own looks.

use polyrail_proto::planted::Planted;

/// The invariants of which one has to find `fault`.
pub fn meant_for(fault: Planted) -> &'static [&'static str] {
    match fault {
        Planted::DuplicateDelivery => &["I1"],
        Planted::ReorderedDelivery => &["I2", "I13"],
        Planted::ForgottenRetransmission
        | Planted::AckRangeOffByOne
        | Planted::CreditLeak
        | Planted::LostCredit => &["I3", "I13"],
        Planted::EarlyRelease | Planted::ShortRetransmission => &["I3", "I4", "I13"],
        Planted::StaleSession => &["I1", "I3", "I4", "I11", "I13", "I15"],
        Planted::ControlOutOfOrder => &["I3", "I11", "I13", "I15"],
        Planted::CarrierIgnored => &["I8"],
        Planted::ReusedLink => &["I10"],
        Planted::LostWithdrawal | Planted::StalePublication => &["I11"],
        Planted::RepeatedMulticast | Planted::PartialMulticast => &["I12"],
        Planted::HastyEnd
        | Planted::RepeatedConnect
        | Planted::MisdirectedRefusal
        | Planted::StaleConnection
        | Planted::LateDelivery
        | Planted::ForgottenReading
        | Planted::KeptCredit => &["I5", "I13", "I15"],
        Planted::KeptExclusive => &["I16"],
        Planted::MisdirectedReturn | Planted::HastyExpiry | Planted::UnreadForgotten => &["I3", "I17"],
        Planted::EndlessTurn | Planted::GreedySession => &["I18"],
        Planted::UrgentLast | Planted::DeepQueue => &["I19"],
        Planted::LostRemainder => &["I21"],
        Planted::SuspectServes
        | Planted::HastyProbation
        | Planted::UndampedLink
        | Planted::UnforgivingDamping => &["I20"],
    }
}
