//! What `polyrail doctor` finds on machines that something is wrong with, in two network namespaces with two links between
//! them, and that its commands mend it. Needs root; says so and passes where there is none.

#![forbid(unsafe_code)]

#[path = "nodes/findings.rs"]
mod findings;
#[path = "nodes/world.rs"]
mod world;

use findings::{doctor, found, mend, shell, until_found};
use polyrail_bench::netns::Testbed;
use serde_json::Value;
use std::process::Stdio;
use world::{PROGRAM, Running, Scratch, ask_until, inside, testbed};

/// The same of the machine alone.
fn machine(testbed: &Testbed) -> (Option<i32>, Value) {
    doctor(testbed, 0, &["--machine", "--interface", "l*"])
}

fn start(testbed: &Testbed, names: [&str; 2]) -> ([Running; 2], [Scratch; 2]) {
    let sockets = names.map(|name| Scratch::new(&format!("doctor-{}-{name}.sock", testbed.spec().name)));
    let nodes = [0, 1].map(|index| {
        let arguments = ["node", "--name", names[index], "--control", sockets[index].path()];
        let mut node = Running::start(inside(testbed, index, &arguments));
        node.first_line();
        node
    });
    for socket in &sockets {
        ask_until(socket, &["node", "list"], |answer| {
            let rows = answer["rows"].as_array();
            rows.is_some_and(|rows| rows.iter().any(|row| row["state"] == "up" && row["links_up"] == 2))
        });
    }
    (nodes, sockets)
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let Some(testbed) = testbed("sound") else { return };
    let (code, alone) = machine(&testbed);
    assert_eq!((code, alone["findings"].as_array().map(Vec::len)), (Some(0), Some(0)), "{alone}");
    let (_nodes, sockets) = start(&testbed, ["alpha", "beta"]);
    for (node, socket) in sockets.iter().enumerate() {
        let (code, document) = doctor(&testbed, node, &["--control", socket.path()]);
        // A machine that is kept from running makes nodes suspect each other, and drop what comes twice: notes.
        let told = document["findings"].as_array().expect("findings").iter();
        let told: Vec<&Value> = told.filter(|f| f["check"] != "suspect" && f["check"] != "drops").collect();
        assert_eq!((code, told.len()), (Some(0), 0), "{document}");
        assert_eq!(
            (&document["healthy"], &document["interfaces"][1]),
            (&true.into(), &"l1".into()),
            "{document}"
        );
    }
    let (code, document) = doctor(&testbed, 0, &["gamma", "--control", sockets[0].path()]);
    assert_eq!(
        (code, &document["error"]["message"]),
        (Some(4), &"no peer \"gamma\"; there are: beta".into())
    );
    assert_eq!(doctor(&testbed, 0, &["beta", "--control", sockets[0].path()]).0, Some(0));
}

#[test]
fn what_is_wrong_with_a_machine_is_found_and_gone_after_its_command() {
    let Some(testbed) = testbed("mends") else { return };
    let own = testbed.address(0, 0).to_string();
    let beside = format!("{}.77", own.rsplit_once('.').expect("dots").0);
    let cases = [
        ("shallow-queue", "tc qdisc replace dev l1 root tbf rate 100mbit burst 16kb latency 50ms".to_owned()),
        ("shallow-queue", "tc qdisc replace dev l1 root pfifo limit 10".to_owned()),
        ("offload", "ethtool -K l1 tx-udp-segmentation off".to_owned()),
        (
            "one-network",
            format!(
                "sysctl -qw net.ipv4.conf.l1.rp_filter=1; ip addr flush dev l1; ip addr add {beside}/24 dev l1"
            ),
        ),
    ];
    let bridge = "ip link add l9 type bridge; ip link set l0 master l9; ip addr add 10.250.9.1/24 dev l9; ip link set l9 up";
    shell(&testbed, 0, bridge);
    let (_, document) = machine(&testbed);
    assert_eq!(found(&document, "one-cable")[0]["about"], "interfaces l0 and l9", "{document}");
    shell(&testbed, 0, "ip link set l0 nomaster; ip link del l9");
    for (check, broken) in cases {
        shell(&testbed, 0, &broken);
        let (code, document) = machine(&testbed);
        assert_eq!((code, found(&document, check).len()), (Some(1), 1), "{broken}: {document}");
        mend(&testbed, 0, found(&document, check)[0]);
        let (code, document) = machine(&testbed);
        assert_eq!((code, found(&document, check).len()), (Some(0), 0), "{broken}: {document}");
    }
}

#[test]
fn a_link_that_works_one_way_is_found_at_both_ends() {
    let Some(testbed) = testbed("one-way") else { return };
    let (_nodes, sockets) = start(&testbed, ["alpha", "beta"]);
    // What arrives at beta, but for what finds neighbours: else neither would be heard after a while.
    let drop = "nft 'add table netdev t; add chain netdev t in { type filter hook ingress device l1 priority 0; }; \
                add rule netdev t in ether type { ip, 0x88b5 } drop'";
    shell(&testbed, 1, drop);
    let here = until_found(&testbed, 0, &sockets[0], "one-way");
    assert!(here["about"].as_str().is_some_and(|about| about.starts_with("link beta/")), "{here}");
    let there = until_found(&testbed, 1, &sockets[1], "nothing-back");
    assert!(there["mend"][1].as_str().is_some_and(|mend| mend.contains("iifname \"l1\"")), "{there}");
    shell(&testbed, 1, "nft delete table netdev t");
    let used =
        |answer: &Value| answer["rows"].as_array().is_some_and(|r| r.iter().all(|r| r["state"] == "up"));
    ask_until(&sockets[0], &["link", "list"], used);
    let (_, document) = doctor(&testbed, 0, &["--control", sockets[0].path()]);
    assert!(
        found(&document, "one-way").is_empty() && found(&document, "nothing-back").is_empty(),
        "{document}"
    );
}

#[test]
fn a_way_back_by_another_interface_is_found_and_the_link_works_after_the_command() {
    let Some(testbed) = testbed("way-back") else { return };
    let (_nodes, sockets) = start(&testbed, ["alpha", "beta"]);
    let there = testbed.address(1, 1);
    shell(&testbed, 0, &format!("ip route add {there}/32 dev l0; sysctl -qw net.ipv4.conf.l1.rp_filter=1"));
    let finding = until_found(&testbed, 0, &sockets[0], "way-back");
    assert!(finding["seen"].as_str().is_some_and(|seen| seen.ends_with("leads through l0")), "{finding}");
    // It is what it says: the link is not heard for it.
    until_found(&testbed, 0, &sockets[0], "nothing-back");
    mend(&testbed, 0, &finding);
    let used =
        |answer: &Value| answer["rows"].as_array().is_some_and(|r| r.iter().all(|r| r["state"] == "up"));
    ask_until(&sockets[0], &["link", "list"], used);
    let (_, document) = doctor(&testbed, 0, &["--control", sockets[0].path()]);
    assert!(found(&document, "way-back").is_empty(), "{document}");
}

#[test]
fn a_carrier_that_is_missing_is_found_once() {
    let Some(testbed) = testbed("carrier") else { return };
    let (_nodes, sockets) = start(&testbed, ["alpha", "beta"]);
    testbed.carrier(1, 0, false).expect("the carrier can be taken");
    let finding = until_found(&testbed, 0, &sockets[0], "no-carrier");
    assert_eq!(finding["about"], "interface l1");
    let (_, document) = doctor(&testbed, 0, &["--control", sockets[0].path()]);
    assert!(
        found(&document, "nothing-back").is_empty() && found(&document, "link-down").is_empty(),
        "{document}"
    );
}

#[test]
fn a_narrow_peer_and_a_narrow_path_are_found() {
    let Some(testbed) = testbed("narrow") else { return };
    shell(&testbed, 1, "ip link set dev l0 mtu 1400");
    // Larger packets vanish without a word.
    let narrow = "nft 'add table netdev t; add chain netdev t in { type filter hook ingress device l1 priority 0; }; \
                  add rule netdev t in meta length > 1300 drop'";
    (0..2).for_each(|node| shell(&testbed, node, narrow));
    let (_nodes, sockets) = start(&testbed, ["alpha", "beta"]);
    let finding = until_found(&testbed, 0, &sockets[0], "mtu-differs");
    assert_eq!(finding["seen"], "the MTU of l0 is 1500, that of beta's interface 1400");
    let finding = until_found(&testbed, 0, &sockets[0], "mtu-path");
    assert!(
        finding["seen"].as_str().is_some_and(|seen| seen.contains("both interfaces take 1472")),
        "{finding}"
    );
    // What a node finds wrong with its own narrow end is its peer's to tell.
    let (_, document) = doctor(&testbed, 1, &["--control", sockets[1].path()]);
    assert!(found(&document, "mtu-differs").is_empty(), "{document}");
}

#[test]
fn a_node_of_another_cluster_is_found_by_one_that_is_alone() {
    let Some(testbed) = testbed("cluster") else { return };
    let socket = Scratch::new("doctor-cluster.sock");
    let mut here = Running::start(inside(&testbed, 0, &["node", "--control", socket.path()]));
    here.first_line();
    let other = Scratch::new("doctor-cluster-other.sock");
    let mut command = testbed.command(1, PROGRAM);
    command.args(["--json", "node", "--insecure", "--cluster", "misspelt", "--interface", "l*", "--control"]);
    command.arg(other.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut there = Running::start(command);
    there.first_line();
    let finding = until_found(&testbed, 0, &socket, "other-cluster");
    assert_eq!(finding["severity"], "error", "{finding}");
}

#[test]
fn another_cluster_on_the_same_links_is_ignored_and_only_noted() {
    let Some(testbed) = testbed("beside") else { return };
    let (_nodes, sockets) = start(&testbed, ["alpha", "beta"]);
    let other = |node: usize, arguments: &[&str]| {
        let mut command = testbed.command(node, PROGRAM);
        command.args(arguments).args(["--insecure", "--cluster", "misspelt", "--interface", "l*"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running::start(command)
    };
    // The same service in both clusters: each message stays in its own.
    let _theirs = other(1, &["recv", "100:0"]);
    let ours = Running::start(inside(&testbed, 1, &["recv", "100:0", "--count", "1", "--timeout", "60"]));
    let sent =
        Running::start(inside(&testbed, 0, &["send", "100:0", "--text", "ours", "--wait=60"])).finish();
    assert!(sent.status.success() && ours.finish().status.success(), "{sent:?}");
    let finding = until_found(&testbed, 0, &sockets[0], "other-cluster");
    assert_eq!(finding["severity"], "note", "{finding}");
    let known = ask_until(&sockets[0], &["service", "list"], |answer| {
        answer["rows"].as_array().is_some_and(Vec::is_empty)
    });
    assert_eq!(known["ok"], true, "nothing of theirs: {known}");
}
