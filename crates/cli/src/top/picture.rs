//! What a node does: the difference of two looks at its counters.

use super::Order;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a node's lists had at a moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// When.
    pub at: Instant,
    /// Rows of `port list`.
    pub ports: Vec<Value>,
    /// Rows of `link list`.
    pub links: Vec<Value>,
}

/// A look with the rates since the one before, in order.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The node's name.
    pub node: String,
    /// Over which rates were computed; `None`: there are none yet.
    pub span: Option<Duration>,
    /// Rows of `port list` with rates.
    pub ports: Vec<Value>,
    /// Rows of `link list` with rates and losses.
    pub links: Vec<Value>,
}

/// Counters of a port and the rates that they become.
const PORT_RATES: [(&str, &str); 4] = [
    ("messages_sent", "sent_messages_per_s"),
    ("bytes_sent", "sent_bytes_per_s"),
    ("messages_received", "received_messages_per_s"),
    ("bytes_received", "received_bytes_per_s"),
];

/// Counters of a link and the rates that they become.
const LINK_RATES: [(&str, &str); 5] = [
    ("packets_sent", "sent_packets_per_s"),
    ("bytes_sent", "sent_bytes_per_s"),
    ("packets_received", "received_packets_per_s"),
    ("bytes_received", "received_bytes_per_s"),
    ("packets_lost", "lost_packets_per_s"),
];

impl Picture {
    /// The first look: rates are null.
    pub fn without_rates(node: &str, look: Look, order: Order) -> Picture {
        let Look { mut ports, mut links, .. } = look;
        let without = |row: &mut Value, rates: &[(&str, &str)]| {
            rates.iter().for_each(|(_, rate)| row[*rate] = Value::Null);
        };
        ports.iter_mut().for_each(|row| without(row, &PORT_RATES));
        links.iter_mut().for_each(|row| without(row, &LINK_RATES));
        sort(&mut ports, &mut links, order);
        Picture { node: node.to_owned(), span: None, ports, links }
    }

    /// What was done between two looks.
    pub fn between(node: &str, before: &Look, now: Look, order: Order) -> Picture {
        let span = now.at.saturating_duration_since(before.at).max(Duration::from_micros(1));
        let Look { mut ports, mut links, .. } = now;
        let (old_ports, old_links) = (by_key(&before.ports, port_key), by_key(&before.links, link_key));
        for row in &mut ports {
            add_rates(row, old_ports.get(&port_key(row)).copied(), &PORT_RATES, span);
        }
        for row in &mut links {
            let old = old_links.get(&link_key(row)).copied();
            add_rates(row, old, &LINK_RATES, span);
            let (lost, sent) = (counted(old, row, "packets_lost"), counted(old, row, "packets_sent"));
            row["lost_percent"] = json!((sent > 0).then(|| tenths(lost as f64 * 100.0 / sent as f64)));
        }
        sort(&mut ports, &mut links, order);
        Picture { node: node.to_owned(), span: Some(span), ports, links }
    }

    /// The same for programs.
    pub fn document(&self) -> Value {
        json!({
            "ok": true, "node": self.node, "span_s": self.span.map(|span| span.as_secs_f64()), "ports": self.ports,
            "links": self.links,
        })
    }
}

fn by_key(rows: &[Value], key: fn(&Value) -> String) -> BTreeMap<String, &Value> {
    rows.iter().map(|row| (key(row), row)).collect()
}

fn port_key(row: &Value) -> String {
    row["port"].to_string()
}

/// Two peers may have one name, but not one address.
fn link_key(row: &Value) -> String {
    format!("{} {} {}", row["name"], row["bearer"], row["to"])
}

fn add_rates(row: &mut Value, before: Option<&Value>, rates: &[(&str, &str)], span: Duration) {
    for (counter, rate) in rates {
        row[*rate] = json!(tenths(counted(before, row, counter) as f64 / span.as_secs_f64()));
    }
}

/// What a counter has counted since the look before. One that fell began anew, as one that was not there before did.
fn counted(before: Option<&Value>, now: &Value, counter: &str) -> u64 {
    let now = now[counter].as_u64().unwrap_or_default();
    let before = before.and_then(|row| row[counter].as_u64()).filter(|before| *before <= now);
    now - before.unwrap_or_default()
}

fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// What waits in the queues of a port.
pub fn waiting(port: &Value) -> u64 {
    let queues = ["messages_unconfirmed", "commands_waiting", "completions_waiting"];
    queues.iter().filter_map(|queue| port[*queue].as_u64()).sum()
}

fn sort(ports: &mut [Value], links: &mut [Value], order: Order) {
    let word = |row: &Value, member: &str| row[member].as_str().unwrap_or_default().to_owned();
    let number = |row: &Value, member: &str| row[member].as_u64().unwrap_or_default();
    ports.sort_by_cached_key(|row| (word(row, "program"), number(row, "pid"), number(row, "port")));
    links.sort_by_cached_key(|row| (word(row, "peer"), number(row, "link"), word(row, "to")));
    match order {
        Order::Name => {}
        Order::Sent => {
            most_first(ports, |row| rate(row, "sent_bytes_per_s"));
            most_first(links, |row| rate(row, "sent_bytes_per_s"));
        }
        Order::Received => {
            most_first(ports, |row| rate(row, "received_bytes_per_s"));
            most_first(links, |row| rate(row, "received_bytes_per_s"));
        }
        Order::Waiting => {
            most_first(ports, |row| waiting(row) as f64);
            most_first(links, |row| rate(row, "inflight_bytes"));
        }
    }
}

fn rate(row: &Value, member: &str) -> f64 {
    row[member].as_f64().unwrap_or_default()
}

/// Those that are equal stay in their order, so that rows do not jump.
fn most_first(rows: &mut [Value], key: impl Fn(&Value) -> f64) {
    rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(port: u32, program: &str, messages: u64, bytes: u64) -> Value {
        json!({
            "port": port, "program": program, "pid": 7, "messages_sent": messages, "bytes_sent": bytes,
            "messages_received": 0, "bytes_received": 0, "messages_unconfirmed": port, "commands_waiting": 0,
            "completions_waiting": 1,
        })
    }

    fn link(sent: u64, lost: u64) -> Value {
        json!({
            "name": "beta/0", "peer": "beta", "link": 0, "bearer": "udp/l0", "to": "10.0.0.2:7430", "packets_sent": sent,
            "packets_lost": lost, "bytes_sent": sent * 1_000,
        })
    }

    /// A picture of what two looks with these rows, two seconds apart, differ by.
    fn picture(before: [Vec<Value>; 2], now: [Vec<Value>; 2], order: Order) -> Picture {
        let at = Instant::now();
        let look = |[ports, links]: [Vec<Value>; 2], at| Look { at, ports, links };
        Picture::between("alpha", &look(before, at), look(now, at + Duration::from_secs(2)), order)
    }

    #[test]
    fn a_rate_is_what_was_counted_between_two_looks_by_the_time_between_them() {
        let (before, now) = (vec![port(1, "a", 10, 1_000)], vec![port(1, "a", 15, 4_000)]);
        let picture = picture([before, vec![]], [now, vec![]], Order::Name);
        let row = &picture.ports[0];
        assert_eq!((&row["sent_messages_per_s"], &row["sent_bytes_per_s"]), (&json!(2.5), &json!(1500.0)));
        assert_eq!(row["received_bytes_per_s"], json!(0.0));
        assert_eq!(picture.document()["span_s"], json!(2.0));
    }

    #[test]
    fn what_is_new_or_began_anew_has_counted_all_it_has_since_the_look_before() {
        let (before, now) = (vec![port(1, "a", 10, 1_000)], vec![port(1, "a", 4, 400), port(2, "b", 6, 60)]);
        let picture = picture([before, vec![]], [now, vec![]], Order::Name);
        let rates = |row: &Value| (row["sent_messages_per_s"].clone(), row["sent_bytes_per_s"].clone());
        assert_eq!(rates(&picture.ports[0]), (json!(2.0), json!(200.0)));
        assert_eq!(rates(&picture.ports[1]), (json!(3.0), json!(30.0)));
    }

    #[test]
    fn losses_are_a_share_of_what_was_sent_meanwhile() {
        let lost = |before: Value, now: Value| {
            let row = picture([vec![], vec![before]], [vec![], vec![now]], Order::Name).links[0].clone();
            (row["lost_percent"].clone(), row["lost_packets_per_s"].clone())
        };
        assert_eq!(lost(link(1_000, 500), link(1_200, 510)), (json!(5.0), json!(5.0)));
        assert_eq!(lost(link(1_000, 5), link(1_000, 5)), (Value::Null, json!(0.0)));
    }

    #[test]
    fn the_first_look_has_no_rates_and_does_not_make_them_up() {
        let look = Look { at: Instant::now(), ports: vec![port(1, "a", 10, 1_000)], links: vec![link(5, 0)] };
        let picture = Picture::without_rates("alpha", look, Order::Sent);
        assert_eq!(picture.ports[0]["sent_bytes_per_s"], Value::Null);
        assert_eq!(picture.document()["span_s"], Value::Null);
    }

    #[test]
    fn each_order_puts_first_what_it_is_named_after() {
        let before = vec![port(1, "b", 0, 0), port(2, "a", 0, 0), port(3, "c", 0, 0)];
        let now = vec![port(1, "b", 1, 10), port(2, "a", 1, 30), port(3, "c", 1, 30)];
        for (order, expected) in [
            (Order::Name, [2, 1, 3]),
            (Order::Sent, [2, 3, 1]),
            (Order::Received, [2, 1, 3]),
            (Order::Waiting, [3, 2, 1]),
        ] {
            let picture = picture([before.clone(), vec![]], [now.clone(), vec![]], order);
            let ports: Vec<u64> = picture.ports.iter().filter_map(|row| row["port"].as_u64()).collect();
            assert_eq!(ports, expected, "{order:?}");
        }
    }
}
