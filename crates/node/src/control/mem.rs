//! `mem`: what memory the node has promised, by kind, user and program, what of it is there, and what may be.

use super::show::ROWS_MAX;
use crate::engine::holdings::{Holding, Holdings, Kind};
use crate::engine::{Refusals, Whose};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What some pieces of memory come to.
#[derive(Clone, Default)]
pub(super) struct Sum {
    pub count: u64,
    pub promised_bytes: u64,
    /// As far as it can be told.
    pub resident_bytes: u64,
}

impl Sum {
    fn add(&mut self, promised_bytes: u64, resident_bytes: Option<u64>) {
        self.count += 1;
        self.promised_bytes += promised_bytes;
        self.resident_bytes += resident_bytes.unwrap_or_default();
    }
}

/// Holdings, measured.
pub(super) struct Measured {
    pub kinds: BTreeMap<Kind, Sum>,
    users: BTreeMap<u32, Sum>,
    programs: BTreeMap<Option<Whose>, BTreeMap<Kind, Sum>>,
}

/// Looks what of the memory is there: not while the engine is held.
pub(super) fn measure(all: &[Holding]) -> Measured {
    let kinds = Kind::ALL.into_iter().map(|kind| (kind, Sum::default())).collect();
    let mut measured = Measured { kinds, users: BTreeMap::new(), programs: BTreeMap::new() };
    for holding in all {
        let (promised, resident) = (holding.promised_bytes, holding.resident_bytes());
        measured.kinds.entry(holding.kind).or_default().add(promised, resident);
        if let Some(whose) = &holding.whose {
            measured.users.entry(whose.uid).or_default().add(promised, resident);
        }
        let of = measured.programs.entry(holding.whose.clone()).or_default();
        of.entry(holding.kind).or_default().add(promised, resident);
    }
    measured
}

/// The groups of the answer.
pub(super) fn tell(holdings: &Holdings) -> Value {
    let measured = measure(&holdings.all);
    let resident: u64 = measured.kinds.values().map(|sum| sum.resident_bytes).sum();
    let (users, users_total) = user_rows(holdings, &measured);
    let (programs, programs_total) = program_rows(&measured);
    json!({
        "memory": {
            "limit_bytes": holdings.limit_bytes, "promised_bytes": holdings.promised_bytes,
            "left_bytes": holdings.limit_bytes.saturating_sub(holdings.promised_bytes), "resident_bytes": resident,
            "users_total": users_total, "programs_total": programs_total,
        },
        "kinds": kind_rows(&measured),
        "users": users,
        "programs": programs,
        "refused": refusals(holdings.refused),
    })
}

/// What was refused, by reason.
pub(super) fn refusals(refused: Refusals) -> Value {
    let named = refused.all().map(|(reason, count)| (reason.name().to_owned(), json!(count)));
    Value::Object(named.collect::<Map<String, Value>>())
}

fn kind_rows(measured: &Measured) -> Vec<Value> {
    let row = |(kind, sum): (&Kind, &Sum)| {
        json!({
            "kind": kind.name(), "count": (*kind != Kind::Pool).then_some(sum.count), "promised_bytes": sum.promised_bytes,
            // What is kept lies in the heap of the node.
            "resident_bytes": (*kind != Kind::Kept).then_some(sum.resident_bytes),
        })
    };
    measured.kinds.iter().map(row).collect()
}

fn user_rows(holdings: &Holdings, measured: &Measured) -> (Vec<Value>, usize) {
    let mut users: Vec<_> = holdings.users.iter().collect();
    users.sort_by_key(|user| std::cmp::Reverse(user.memory_bytes.0));
    let row = |user: &&crate::engine::holdings::UserHoldings| {
        let ((ports, ports_max), (names, names_max)) = (user.ports, user.names);
        let (promised, limit) = user.memory_bytes;
        let sum = measured.users.get(&user.uid).cloned().unwrap_or_default();
        let mut row = json!({
            "uid": user.uid, "ports": ports, "ports_max": ports_max, "names": names, "names_max": names_max,
            "descriptors": user.descriptors.0, "descriptors_max": user.descriptors.1,
            "promised_bytes": promised, "limit_bytes": limit, "resident_bytes": sum.resident_bytes,
        });
        for (reason, count) in user.refused.all() {
            row[format!("refused_{}", reason.name())] = json!(count);
        }
        row
    };
    (users.iter().take(ROWS_MAX).map(row).collect(), users.len())
}

fn program_rows(measured: &Measured) -> (Vec<Value>, usize) {
    let bytes = |of: &BTreeMap<Kind, Sum>| of.values().map(|sum| sum.promised_bytes).sum::<u64>();
    let mut programs: Vec<_> = measured.programs.iter().collect();
    programs.sort_by_key(|(_, of)| std::cmp::Reverse(bytes(of)));
    let row = |(whose, of): &(&Option<Whose>, &BTreeMap<Kind, Sum>)| {
        let own = || ("(node)", std::process::id(), None);
        let (program, pid, uid) =
            whose.as_ref().map_or_else(own, |whose| (&*whose.program, whose.pid, Some(whose.uid)));
        let mut row = json!({
            "program": program, "pid": pid, "uid": uid, "promised_bytes": bytes(of),
            "resident_bytes": of.values().map(|sum| sum.resident_bytes).sum::<u64>(),
        });
        for kind in Kind::ALL {
            row[format!("{}_bytes", kind.name())] = json!(of.get(&kind).map_or(0, |sum| sum.promised_bytes));
        }
        row
    };
    (programs.iter().take(ROWS_MAX).map(row).collect(), programs.len())
}
