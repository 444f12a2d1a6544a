//! Memory and users on the page of metrics.

use super::count;
use super::page::{Kind, Labels, Metric, Page};
use crate::control::mem::{self, Sum};
use crate::engine::holdings::{Holdings, UserHoldings};

/// Users that have samples.
const USERS_MAX: usize = 256;

const KINDS: [Metric<Sum>; 2] = [
    Metric::gauge(
        "polyrail_memory_promised_bytes",
        "Memory that the node has promised, whether or not it was touched, by what it is for.",
        |sum| count(sum.promised_bytes),
    ),
    Metric::gauge("polyrail_memory_resident_bytes", "What of that is there, as far as it is known.", |sum| {
        count(sum.resident_bytes)
    }),
];

const USERS: [Metric<UserHoldings>; 6] = [
    Metric::gauge("polyrail_user_ports", "Ports of the programs of a user.", |user| {
        count(user.ports.0 as u64)
    }),
    Metric::gauge("polyrail_user_ports_limit", "Ports that a user may have.", |user| {
        count(user.ports.1 as u64)
    }),
    Metric::gauge("polyrail_user_names", "Names that ports of a user have bound.", |user| {
        count(user.names.0 as u64)
    }),
    Metric::gauge("polyrail_user_names_limit", "Names that a user may bind.", |user| {
        count(user.names.1 as u64)
    }),
    Metric::gauge("polyrail_user_memory_promised_bytes", "Memory that is promised to a user.", |user| {
        count(user.memory_bytes.0)
    }),
    Metric::gauge("polyrail_user_memory_limit_bytes", "Memory that may be promised to a user.", |user| {
        count(user.memory_bytes.1)
    }),
];

/// Adds them: what is there is measured now.
pub(in crate::control) fn text(mut holdings: Holdings) -> String {
    let mut page = Page::default();
    let help = "What the node may promise at most.";
    let limit = (Labels::new(&[]), holdings.limit_bytes as f64);
    page.family("polyrail_memory_limit_bytes", Kind::Gauge, help, std::iter::once(limit));
    let measured = mem::measure(&holdings.all);
    let kinds: Vec<(Labels, Sum)> =
        measured.kinds.into_iter().map(|(kind, sum)| (Labels::new(&[("kind", kind.name())]), sum)).collect();
    page.add(&KINDS, &kinds);
    holdings.users.truncate(USERS_MAX);
    let users = holdings.users.into_iter();
    let users: Vec<(Labels, UserHoldings)> =
        users.map(|user| (Labels::new(&[("uid", &user.uid.to_string())]), user)).collect();
    page.add(&USERS, &users);
    let refused = users.iter().flat_map(|(labels, user)| {
        user.refused.all().map(|(reason, count)| (labels.and(&[("reason", reason.name())]), count as f64))
    });
    let help = "What was refused to the programs of a user, by the limit that it would have gone beyond.";
    page.family("polyrail_user_refusals_total", Kind::Counter, help, refused);
    page.into_text()
}
