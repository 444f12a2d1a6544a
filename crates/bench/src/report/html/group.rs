//! Rows sorted into charts: what was measured alike but for one condition makes one chart, over that condition.

use std::collections::BTreeMap;

use serde_json::Value;

use super::escape;
use super::figure::{Metric, metrics};
use super::units::{Unit, count, size};
use crate::args::{BesideKind, Placement, ReadKind, SendKind};
use crate::report::document::Row;
use crate::wait::WaitMode;
use crate::workload::Workload;

/// A row and the document that it is of.
#[derive(Clone, Copy)]
pub(in crate::report) struct Found<'a> {
    pub(in crate::report) source: usize,
    pub(in crate::report) row: &'a Row,
}

/// The condition that a chart goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Axis {
    Size,
    Clients,
    Arrivals,
    Offer,
    Streams,
    Pairs,
    Senders,
    Links,
    SocketBuffer,
}

const AXES: [Axis; 9] = [
    Axis::Size,
    Axis::Clients,
    Axis::Arrivals,
    Axis::Offer,
    Axis::Streams,
    Axis::Pairs,
    Axis::Senders,
    Axis::Links,
    Axis::SocketBuffer,
];

impl Axis {
    /// Its name among the conditions of a row.
    fn condition(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Clients => "clients",
            Self::Arrivals => "arrivals_per_s",
            Self::Offer => "offer",
            Self::Streams => "streams",
            Self::Pairs => "pairs",
            Self::Senders => "senders",
            Self::Links => "links",
            Self::SocketBuffer => "socket_buffer_max",
        }
    }

    /// What it counts, for a person.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Size => "size of messages",
            Self::Clients => "clients",
            Self::Arrivals => "messages due per second",
            Self::Offer => "offered",
            Self::Streams => "streams",
            Self::Pairs => "pairs",
            Self::Senders => "senders",
            Self::Links => "links",
            Self::SocketBuffer => "socket buffer",
        }
    }

    pub(super) fn unit(self) -> Unit {
        match self {
            Self::Size | Self::SocketBuffer => Unit::Bytes,
            Self::Offer => Unit::Mbps,
            Self::Arrivals => Unit::PerSecond,
            _ => Unit::Plain,
        }
    }

    /// A place on it, in words.
    pub(in crate::report) fn text(self, place: u64) -> String {
        let number = usize::try_from(place).unwrap_or(usize::MAX);
        match self {
            Self::Size => size(number),
            Self::SocketBuffer => format!("sockets of {}", size(number)),
            Self::Clients => count(number, "client", "clients"),
            Self::Streams => count(number, "stream", "streams"),
            Self::Pairs => count(number, "pair", "pairs"),
            Self::Senders => count(number, "sender", "senders"),
            Self::Links => count(number, "link", "links"),
            Self::Arrivals => format!("{place} /s"),
            Self::Offer if place == 0 => "as much as is taken".to_owned(),
            Self::Offer => Unit::Mbps.tick(place as f64),
        }
    }

    fn place(self, row: &Row) -> Option<u64> {
        let load = &row.load;
        match self {
            Self::Size => Some(row.size as u64),
            Self::Clients => load.clients.map(u64::from),
            Self::Arrivals => load.arrivals_per_s,
            Self::Offer => load.offer.map(u64::from),
            Self::Streams => load.streams.map(u64::from),
            Self::Pairs => load.pairs.map(u64::from),
            Self::Senders => load.senders.map(u64::from),
            Self::Links => Some(row.links as u64),
            Self::SocketBuffer => row.socket_buffer_max.map(|bytes| bytes as u64),
        }
    }
}

/// What was measured alike but for the protocol and one condition.
pub(in crate::report) struct Chart<'a> {
    pub(in crate::report) workload: Workload,
    pub(in crate::report) axis: Axis,
    /// The conditions in words.
    pub(in crate::report) about: String,
    pub(in crate::report) series: Vec<Series<'a>>,
    pub(in crate::report) metrics: &'static [Metric],
}

/// One protocol of one document.
pub(in crate::report) struct Series<'a> {
    pub(in crate::report) source: usize,
    pub(in crate::report) protocol: &'a str,
    /// The protocol with what sets it apart from others of its name; not yet escaped.
    pub(in crate::report) label: String,
    /// By place on the axis, upwards.
    pub(in crate::report) points: Vec<(u64, &'a Row)>,
}

impl<'a> Series<'a> {
    /// What was measured at a place of the axis.
    pub(in crate::report) fn at(&self, place: u64) -> Option<&'a Row> {
        self.points.iter().find(|(known, _)| *known == place).map(|(_, row)| *row)
    }
}

impl Chart<'_> {
    /// Every place that some series has, upwards.
    pub(in crate::report) fn places(&self) -> Vec<u64> {
        let mut all: Vec<u64> =
            self.series.iter().flat_map(|series| &series.points).map(|(place, _)| *place).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether more than one document is in it.
    pub(super) fn is_mixed(&self) -> bool {
        self.series.iter().any(|series| series.source != self.series[0].source)
    }

    /// The same in words as a heading has it, with the place where there is one only.
    pub(super) fn heading(&self) -> String {
        match self.places().as_slice() {
            [only] => format!("{}, {}", self.axis.text(*only), self.about),
            _ => self.about.clone(),
        }
    }
}

/// The charts of rows of one workload.
pub(in crate::report) fn charts<'a>(
    workload: Workload,
    rows: &[Found<'a>],
    names: &[String],
) -> Vec<Chart<'a>> {
    let mut kinds: Vec<(Vec<bool>, Vec<Found>)> = Vec::new();
    for found in rows {
        // Rows that differ in what applies to them at all lie on no common axis: with clients and without.
        let kind: Vec<bool> = AXES.into_iter().map(|axis| axis.place(found.row).is_some()).collect();
        add(&mut kinds, kind, *found);
    }
    kinds.iter().flat_map(|(_, rows)| charts_of_kind(workload, rows, names)).collect()
}

fn charts_of_kind<'a>(workload: Workload, rows: &[Found<'a>], names: &[String]) -> Vec<Chart<'a>> {
    let usable = AXES.into_iter().filter(|axis| rows.iter().all(|found| axis.place(found.row).is_some()));
    let split = |axis: Axis| {
        let mut groups: Vec<(Vec<Value>, Vec<Found>)> = Vec::new();
        rows.iter().for_each(|found| add(&mut groups, key(found.row, axis), *found));
        (axis, groups)
    };
    let fewest = usable.map(split).min_by_key(|(_, groups)| groups.len());
    let Some((axis, groups)) = fewest else { return Vec::new() };
    let chart = |(_, group): (_, Vec<Found<'a>>)| {
        let has_clients = group.iter().any(|found| found.row.load.clients.is_some());
        Chart {
            workload,
            axis,
            about: about(group[0].row, axis),
            series: series(&group, axis, names),
            metrics: metrics(workload, has_clients),
        }
    };
    groups.into_iter().map(chart).collect()
}

/// Adds a row to the group with this key; the groups stay in the order in which they came.
fn add<'a, K: PartialEq>(groups: &mut Vec<(K, Vec<Found<'a>>)>, key: K, found: Found<'a>) {
    match groups.iter_mut().find(|(known, _)| *known == key) {
        Some((_, group)) => group.push(found),
        None => groups.push((key, vec![found])),
    }
}

/// What rows of one chart share.
fn key(row: &Row, axis: Axis) -> Vec<Value> {
    // What the protocol has of its own is no other condition: only some have classes, or memory to compose in.
    let of_protocol = ["protocol", "class", "send", "read"];
    let of_links = ["rate_mbit", "loss_percent", "delay_ms"];
    let conditions = row.conditions().into_iter();
    let shared = conditions.filter(|(name, _)| *name != axis.condition() && !of_protocol.contains(name));
    let alike = shared.map(|(name, value)| match value {
        // One link more of the same kind is the same kind of links.
        Value::Array(mut each) if axis == Axis::Links && of_links.contains(&name) => {
            each.dedup();
            Value::Array(each)
        }
        // One pair has no direction.
        Value::String(_) | Value::Null if axis == Axis::Pairs && name == "direction" => Value::Null,
        value => value,
    });
    alike.collect()
}

fn series<'a>(group: &[Found<'a>], axis: Axis, names: &[String]) -> Vec<Series<'a>> {
    let is_mixed = group.iter().any(|found| found.source != group[0].source);
    let mut taken: BTreeMap<(usize, String, u64), u32> = BTreeMap::new();
    let mut all: Vec<Series> = Vec::new();
    for found in group {
        let Some(place) = axis.place(found.row) else { continue };
        let mut label = label(found.row, axis);
        if is_mixed {
            label = format!("{label} [{}]", names.get(found.source).map_or("?", String::as_str));
        }
        // The same under the same conditions once more is another series: which of them is right nobody here can say.
        let again = taken.entry((found.source, label.clone(), place)).or_default();
        *again += 1;
        if *again > 1 {
            label = format!("{label} ({again})");
        }
        match all.iter_mut().find(|series| series.source == found.source && series.label == label) {
            Some(series) => series.points.push((place, found.row)),
            None => all.push(Series {
                source: found.source,
                protocol: &found.row.protocol,
                label,
                points: vec![(place, found.row)],
            }),
        }
    }
    all.iter_mut().for_each(|series| series.points.sort_by_key(|(place, _)| *place));
    all
}

/// The protocol's name, and what was asked of it that others do not have.
fn label(row: &Row, axis: Axis) -> String {
    let mut label = escape::name(&row.protocol);
    if row.send == Some(SendKind::Buffer) {
        label += ", buffers handed over";
    }
    if row.send == Some(SendKind::Batch) {
        label += ", several by one call";
    }
    if row.read == Some(ReadKind::Copy) {
        label += ", copied";
    }
    if let (Axis::Pairs, Some(direction)) = (axis, row.load.direction) {
        label = format!("{label}, {}", direction.name());
    }
    label
}

/// What a workload is about, as a heading.
pub(super) fn title(workload: Workload) -> &'static str {
    match workload {
        Workload::Stream => "Messages one way",
        Workload::PingPong => "There and back",
        Workload::Lone => "One message alone",
        Workload::Rate => "Small messages one way",
        Workload::Transact => "Connect, ask, answer, close",
        Workload::Datagram => "What arrives of what is offered",
        Workload::Buffer => "Messages against socket buffers",
        Workload::Share => "Pairs that share a link",
        Workload::Links => "One link, two and more",
        Workload::Incast => "Many senders answer one receiver",
        Workload::Multicast => "One message to several nodes",
        Workload::OpenLoop => "Messages that are due at a fixed rate",
        Workload::Failover => "While links are cut",
        Workload::Idle => "Nothing to do",
        Workload::Stalled => "A receiver that does not read",
    }
}

/// The conditions of a row in words, but for what an axis shows and the protocol.
pub(in crate::report) fn about(row: &Row, axis: Axis) -> String {
    let mut parts = vec![place(row, axis)];
    if axis != Axis::Size && row.workload != Workload::Idle {
        parts.push(format!("messages of {}", size(row.size)));
    }
    let load = &row.load;
    let several = [
        (Axis::Clients, load.clients.map(u64::from)),
        (Axis::Arrivals, load.arrivals_per_s),
        (Axis::Offer, load.offer.map(u64::from)),
        (Axis::Streams, load.streams.map(u64::from)),
        (Axis::Pairs, load.pairs.map(u64::from)),
        (Axis::Senders, load.senders.map(u64::from)),
        (Axis::SocketBuffer, row.socket_buffer_max.map(|bytes| bytes as u64)),
    ];
    let told = several.into_iter().filter(|(known, _)| *known != axis);
    parts.extend(told.filter_map(|(known, place)| Some(known.text(place?))));
    if let (Some(direction), true) = (load.direction, axis != Axis::Pairs) {
        parts.push(format!("{} direction", direction.name()));
    }
    if let Some(members) = load.members {
        parts.push(format!("{members} nodes of {} ports", load.member_ports.unwrap_or(1)));
    }
    if load.beside == Some(BesideKind::Bulk) {
        parts.push("beside bulk".to_owned());
    }
    parts.push(waiting(row.wait).to_owned());
    parts.join(", ")
}

/// How threads wait, in words.
fn waiting(wait: WaitMode) -> &'static str {
    match wait {
        WaitMode::Spin => "threads spin",
        WaitMode::Block => "threads sleep",
        WaitMode::Adaptive => "threads spin, then sleep",
    }
}

/// Where it was measured, in words.
fn place(row: &Row, axis: Axis) -> String {
    match &row.placement {
        Placement::Intra => "on one machine".to_owned(),
        Placement::Host(name) => format!("to {}", escape::name(name)),
        Placement::Inter => links(row, axis),
    }
}

/// The links between two nodes, in words: how many, how fast, how bad.
fn links(row: &Row, axis: Axis) -> String {
    let rate =
        |rate: &Option<u32>| rate.map_or("no limit".to_owned(), |mbit| Unit::Mbps.tick(f64::from(mbit)));
    let mut rates: Vec<String> = row.rate_mbit.iter().take(16).map(rate).collect();
    let alike = rates.windows(2).all(|pair| pair[0] == pair[1]);
    if alike {
        rates.truncate(1);
    }
    let rates = rates.join(" and ");
    let mut text = match (axis, row.links, rates.as_str()) {
        (Axis::Links, _, "no limit") => "links without a limit".to_owned(),
        (Axis::Links, _, rates) => format!("links of {rates}"),
        (_, 1, "no limit") => "a link without a limit".to_owned(),
        (_, 1, rates) => format!("a link of {rates}"),
        (_, number, "no limit") => format!("{number} links without a limit"),
        (_, number, rates) => format!("{number} links of {rates}"),
    };
    let list = |values: &[f64]| values.iter().take(16).map(f64::to_string).collect::<Vec<_>>().join(" and ");
    if row.loss_percent.iter().any(|&percent| percent > 0.0) {
        text += &format!(" that lose {} %", list(&row.loss_percent));
    }
    if !row.delay_ms.is_empty() {
        text += &format!(", {} ms each way", list(&row.delay_ms));
    }
    text
}
