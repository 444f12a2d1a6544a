//! Documents for pages: one that has something of everything, one whose figures make no sense, one that means harm.

use serde_json::{Map, Value, json};

/// What would run, or break out of a page, if it were not text.
pub const MARKUP: &str =
    "<script>document.title='x'</script>\"'><img src=http://example.invalid/x onerror=alert(1)>";

/// The machine of all documents.
pub fn host() -> Value {
    json!({
        "kernel": "Linux 6.1", "cpu": "A Processor with a Long Name, 3.00 GHz", "cores": 2, "governor": null, "hypervisor": true,
        "memory_mib": 4096, "congestion_control": "cubic", "load_1min": 0.5, "version": "0.1.0", "optimized": true,
    })
}

/// Seven samples that scatter by some percent, the same ones each time.
fn spread(median: f64) -> Value {
    let scatter = [1.0, 1.02, 0.97, 1.05, 0.99, 1.01, 0.96];
    let values: Vec<f64> = scatter.iter().map(|factor| factor * median).collect();
    json!({ "median": median, "low": 0.96 * median, "high": 1.05 * median, "samples": 7, "values": values })
}

fn pulse() -> Value {
    let pulse = json!({
        "cacheline_ns": 60.0, "memcpy_gb_per_s": 20.0, "clock_ns": 25.0, "sleep_late_us": 60.0, "stall_max_us": 9.0,
        "stall_sum_us": 9.0, "stalls": { "over_5us": 1, "over_50us": 0, "over_500us": 0, "over_5ms": 0 },
    });
    json!({ "before": pulse, "after": pulse })
}

/// A row with what every row has; `more` is added to it, or replaces it.
fn row(workload: &str, protocol: &str, more: Value) -> Value {
    let mut row = json!({
        "workload": workload, "protocol": protocol, "placement": "intra", "links": 1, "rate_mbit": [null],
        "loss_percent": [0.0], "size": 64, "wait": "spin", "lost": 0, "duplicated": 0, "reordered": 0, "damaged": 0,
        "calibration": vec![pulse(); 7],
    });
    merge(&mut row, more);
    row
}

fn merge(row: &mut Value, more: Value) {
    let fields: Map<String, Value> = more.as_object().expect("fields").clone();
    row.as_object_mut().expect("a row").extend(fields);
}

fn document(results: Vec<Value>) -> Value {
    json!({ "schema": "polyrail-bench/1", "host": host(), "results": results, "ratios": [] })
}

fn latency(p50: f64) -> Value {
    json!({
        "latency_us": {
            "p50": spread(p50), "p90": spread(1.2 * p50), "p99": spread(2.0 * p50), "p999": spread(9.0 * p50),
            "max": spread(90.0 * p50)
        },
        // A long tail, as real ones have.
        "histogram_ns": (0..200_u32).map(|step| {
            let ns = p50 * 800.0 * 1.03_f64.powi(i32::try_from(step).expect("small"));
            let count = 1e6 * 0.93_f64.powi(i32::try_from(step).expect("small"));
            json!([ns as u64, count as u64 + 1])
        }).collect::<Vec<_>>(),
    })
}

fn streams() -> Vec<Value> {
    let of = |protocol: &str, mbps: f64, links: Value| {
        let sizes = [(64, 0.05), (1_024, 0.4), (65_536, 1.0), (1_048_576, 1.2)];
        let one = |(size, factor): (u64, f64)| {
            let mut row =
                row("stream", protocol, json!({ "size": size, "throughput_mbps": spread(factor * mbps) }));
            merge(&mut row, links.clone());
            row
        };
        sizes.map(one).to_vec()
    };
    let two = json!({ "placement": "inter", "links": 2, "rate_mbit": [1000, 1000], "loss_percent": [0.0, 0.0], "wait": "block" });
    let near = [
        "polyrail",
        "polyrail-attached",
        "tcp-cubic",
        "unix-stream",
        "memcpy",
        "tipc-seqpacket",
        "sctp",
        "zmq",
        "pipe",
    ];
    let speeds = (0_u8..).map(|number| 4_000.0 * 1.7_f64.powi(i32::from(number)));
    let mut rows: Vec<Value> =
        near.iter().zip(speeds).flat_map(|(name, mbps)| of(name, mbps, json!({}))).collect();
    rows.extend(of("polyrail", 1_500.0, two.clone()));
    let even: Vec<Value> = of("mptcp", 1_500.0, two)
        .into_iter()
        .map(|mut row| {
            // The same in other repetitions: no difference is to be shown.
            let values = row["throughput_mbps"]["values"].as_array_mut().expect("values");
            values.reverse();
            row
        })
        .collect();
    rows.extend(even);
    rows
}

fn cuts() -> Vec<Value> {
    let of = |protocol: &str, late_ms: f64| {
        let cut = |number: u32| {
            json!({
                "repetition": 1, "kind": "carrier", "link": number % 2, "node": "sender", "carried_share": 0.5,
                "gap_ms": late_ms * f64::from(number + 1), "gap_net_ms": late_ms, "worst_due_ms": 1.0,
                "worst_begun_late_ms": 0.0, "silence_ms": 1.0, "before_ms": 0.1, "messages": 100, "unfinished": false,
                "from_s": 1.0 + 2.0 * f64::from(number), "until_s": 1.4 + 2.0 * f64::from(number),
            })
        };
        let quantiles = json!({ "p50": late_ms * 2.0, "p99": late_ms * 4.0, "max": late_ms * 4.0 });
        row(
            "failover",
            protocol,
            json!({
                "placement": "inter", "links": 2, "rate_mbit": [1000, 1000], "loss_percent": [0.0, 0.0], "size": 4096, "wait": "block",
                "cuts": (0..4).map(cut).collect::<Vec<_>>(),
                "gaps": [{
                    "kind": "carrier", "cuts": 4, "gap_ms": quantiles, "gap_net_ms": quantiles,
                    "goodput_mbps": { "low": 900.0, "p50": 930.0 },
                    "goodput_share": { "low": 0.95, "p50": 0.98, "aim": 0.95, "below_aim": 0 },
                    "reuse_ms": { "p50": 1000.0, "p90": 1100.0, "max": 1200.0 }, "not_reused": 0,
                }],
                "timelines": [{
                    "repetition": 1, "step_ms": 100.0,
                    "goodput_mbps": (0..100).map(|step| if step % 20 < 4 { 930.0 } else { 1_880.0 }).collect::<Vec<f64>>(),
                    "late_ms": (0..100).map(|step| if step == 50 { 0.0 } else if step % 20 == 1 { late_ms } else { 0.4 }).collect::<Vec<f64>>(),
                    "links_mbps": (0..2).map(|link| {
                        let away = |step: i32| step % 20 < 4 && step / 20 % 2 == link;
                        (0..100).map(|step| if away(step) { 0.0 } else { 975.0 }).collect::<Vec<f64>>()
                    }).collect::<Vec<_>>(),
                }],
            }),
        )
    };
    vec![of("polyrail", 4.6), of("mptcp", 310.0)]
}

fn crowd() -> Vec<Value> {
    let of = |protocol: &str, clients: u64, per_s: f64| {
        let shares: Vec<u64> = (0..clients).map(|number| 1_000 + 37 * (number % 11)).collect();
        let mut row = row(
            "pingpong",
            protocol,
            json!({
                "clients": clients, "wait": "block", "rate_per_s": spread(per_s),
                "by_client": {
                    "fairness": spread(0.98), "least_per_s": spread(per_s / 20.0), "most_per_s": spread(per_s / 14.0),
                    "messages": vec![shares; 3],
                },
            }),
        );
        merge(&mut row, latency(90.0));
        row
    };
    [4, 16, 64]
        .into_iter()
        .flat_map(|clients| {
            [of("polyrail-attached", clients, 140_000.0), of("unix-stream", clients, 90_000.0)]
        })
        .collect()
}

/// Something of everything that a page shows.
pub fn usual() -> Value {
    let with = |workload: &str, protocol: &str, p50: f64| row(workload, protocol, latency(p50));
    let mut rows = streams();
    rows.extend(
        [("polyrail", 4.0), ("tcp-nodelay", 8.0), ("udp", 12.0), ("cacheline", 0.4)]
            .map(|(name, p50)| with("pingpong", name, p50)),
    );
    rows.extend([("polyrail", 6.0), ("tcp-nodelay", 50.0)].map(|(name, p50)| with("transact", name, p50)));
    rows.extend(crowd());
    rows.extend(cuts());
    let mut document = document(rows);
    let more = json!({
        "command": ["polyrail", "bench", "stream", "--json"],
        "plan": { "workload": "stream" },
        "stall_histogram": {
            "pulses": 9, "over_5us": 3, "over_50us": 1, "over_500us": 0, "over_5ms": 0, "longest_us": 90.0, "away_percent": 0.1
        },
        "unavailable": [{ "protocol": "tipc-rdm", "reason": "this kernel has no TIPC: try `modprobe tipc`" }],
        "notes": ["a note about all of it"],
    });
    merge(&mut document, more);
    merge(&mut document, testbed());
    document["results"][0]["clock"] = json!({ "method": "exchanges", "samples": [{ "offset_ns": -7_000_000, "error_ns": 42_000, "drift_ns": -1_500 }] });
    document
}

/// Two devices that are alike, seen twice, and a link with a delay.
fn testbed() -> Value {
    let device = |name: &str, rate_mbit: u32| {
        json!({
            "placement": "inter", "rate_mbit": [rate_mbit], "loss_percent": [0.0], "name": name, "driver": "veth", "mtu": 1_500,
            "offloads": { "gso": true, "tso": false }, "qdisc": ["qdisc tbf 8001: root refcnt 17 rate 1Gbit burst 128Kb lat 5ms"],
            "interrupts": [{ "number": 24, "name": "eth0", "cores": "0-1" }],
        })
    };
    json!({
        "devices": [device("l0", 1_000), device("l1", 1_000), device("l0", 500)],
        "relays": [{ "link": "l1", "delay_ms": 2.0, "round_trip_ms": 4.25, "carries_mbps": 700.0, "rate_mbit": 1_000 }],
    })
}

/// What a plan leaves: verdicts of each kind, with figures and without.
pub fn planned() -> Value {
    let ratio =
        |median: f64| json!({ "median": median, "low": 0.9 * median, "high": 1.2 * median, "pairs": 6 });
    let finding = |name: &str, at: Value, verdict: &str, more: Value| {
        let mut row = json!({ "name": name, "says": format!("what {name} says"), "source": "a paper", "verdict": verdict });
        row["at"] = at;
        merge(&mut row, more);
        row
    };
    let mut document = usual();
    document["title"] = "Two questions".into();
    document["host"]["emulated"] = true.into();
    document["findings"] = json!([
        finding(
            "first",
            json!({ "size": 128 }),
            "holds",
            json!({ "published": 2.34, "measured": ratio(3.1), "claim": "above 1" })
        ),
        finding(
            "first",
            json!({ "size": 256 }),
            "does not hold",
            json!({ "published": 2.63, "measured": ratio(0.7), "claim": "above 1" })
        ),
        finding(
            "first",
            json!({ "size": 512 }),
            "not seen here",
            json!({ "measured": ratio(1.0), "why": "the interval reaches over 1" })
        ),
        finding(
            "second",
            json!({}),
            "not seen here",
            json!({ "published": 1.25, "why": "this kernel has no TIPC" })
        ),
    ]);
    document
}

/// Numbers as no instrument gives them, names as long as a book.
pub fn nonsense() -> Value {
    let long = "protocol-".repeat(500);
    let wild = json!({ "median": 1e300, "low": -1e300, "high": 1e308, "samples": u64::MAX, "values": [1e300, -5.0, null, 0.0, 1e-300, 7.0, 1.0, 2.0] });
    let mut rows: Vec<Value> = [
        ("polyrail", 64),
        (long.as_str(), 64),
        ("polyrail", 4_000_000_000_u64),
        (long.as_str(), 4_000_000_000),
    ]
    .map(|(name, size)| {
        row(
            "stream",
            name,
            json!({ "size": size, "throughput_mbps": wild, "failed": [1, 1, 4_000_000_000_u64] }),
        )
    })
    .to_vec();
    let times = json!({
        "latency_us": { "p50": wild, "p90": wild, "p99": wild, "p999": wild, "max": wild },
        "histogram_ns": [[0, u64::MAX], [u64::MAX, u64::MAX], [5, 0], [5, 3]],
        "lost": u64::MAX, "notes": [long.clone()],
    });
    rows.push(row("pingpong", "polyrail", times.clone()));
    rows.push(row("pingpong", &long, times));
    document(rows)
}

/// Markup wherever a document has text.
pub fn hostile() -> Value {
    let mut rows: Vec<Value> = ["polyrail", MARKUP]
        .map(|name| {
            let mut row = row("pingpong", name, json!({
                "notes": [MARKUP], "errors": [MARKUP], "failed": [7], "limited_by": MARKUP, "placement": "intra",
            }));
            merge(&mut row, latency(4.0));
            row
        })
        .to_vec();
    rows.push(row("stream", MARKUP, json!({ "throughput_mbps": spread(5.0) })));
    let mut document = document(rows);
    let more = json!({
        "command": ["polyrail", MARKUP], "plan": { MARKUP: MARKUP }, "notes": [MARKUP], "error": MARKUP,
        "unavailable": [{ "protocol": MARKUP, "reason": MARKUP }],
        "title": MARKUP,
        "findings": [
            { "name": MARKUP, "says": MARKUP, "source": MARKUP, "at": { MARKUP: MARKUP }, "claim": MARKUP, "why": MARKUP, "verdict": "holds",
              "published": -1e308, "measured": { "median": 1e308, "low": -1.0, "high": 0.0, "pairs": 0 } },
        ],
        "devices": [{ "placement": "inter", "rate_mbit": [null], "loss_percent": [0.0], "name": MARKUP, "qdisc": [MARKUP] }],
        "relays": [{ "link": MARKUP, "delay_ms": 1e308, "round_trip_ms": -1.0, "carries_mbps": 0.0 }],
    });
    merge(&mut document, more);
    for name in ["kernel", "cpu", "governor", "congestion_control", "version"] {
        document["host"][name] = MARKUP.into();
    }
    document
}
