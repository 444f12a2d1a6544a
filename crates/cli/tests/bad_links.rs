//! Links that something is wrong with, under a stream of messages: nothing is lost or comes twice, and the doctor names the
//! link. In two network namespaces with two links between them; needs root, says so and passes where there is none.

#![forbid(unsafe_code)]

#[path = "nodes/findings.rs"]
mod findings;
#[path = "nodes/stream.rs"]
mod stream;
#[path = "nodes/world.rs"]
mod world;

use findings::{doctor, found, mend, shell, until_found};
use polyrail_bench::netns::LinkSpec;
use serde_json::Value;
use stream::Stream;
use world::{ask, ask_until, testbed, testbed_of};

/// The link by the second interface.
fn second(links: &[Value]) -> &Value {
    links.iter().find(|link| link["bearer"] == "udp/l1").unwrap_or(&Value::Null)
}

fn is_used(link: &Value) -> bool {
    link["state"] == "up" || link["state"] == "probation"
}

#[test]
fn a_stream_goes_on_by_the_other_link_while_a_firewall_lets_one_work_one_way_only() {
    let Some(testbed) = testbed("firewall") else { return };
    let stream = Stream::start(&testbed, "");
    let drop = "nft 'add table inet t; add chain inet t in { type filter hook input priority 0; }; \
                add rule inet t in iifname l1 meta l4proto udp drop'";
    shell(&testbed, 1, drop);
    let finding = until_found(&testbed, 0, &stream.sockets[0], "one-way");
    assert!(finding["about"].as_str().is_some_and(|about| about.starts_with("link beta/")), "{finding}");
    until_found(&testbed, 1, &stream.sockets[1], "nothing-back");
    shell(&testbed, 1, "nft delete table inet t");
    stream.until_links(|links| is_used(second(links)));
    stream.finish();
}

#[test]
fn large_messages_arrive_while_the_mtu_of_a_link_shrinks_and_grows_again_and_nothing_is_wrong_with_it() {
    let Some(mut testbed) = testbed("shrinks") else { return };
    let stream = Stream::start(&testbed, "");
    for (mtu, packets) in [(1280, 1248..=1252), (9000, 8952..=8972), (1500, 1456..=1472)] {
        testbed.set_mtu(1, mtu).expect("the MTU can be set");
        stream.until_links(|links| {
            let size = second(links)["mtu_bytes"].as_u64();
            size.is_some_and(|bytes| packets.contains(&bytes)) && is_used(second(links))
        });
        for node in 0..2 {
            let (_, document) = doctor(&testbed, node, &["--control", stream.sockets[node].path()]);
            assert!(found(&document, "mtu-path").is_empty(), "{document}");
            assert!(found(&document, "mtu-differs").is_empty(), "{document}");
        }
    }
    stream.finish();
}

#[test]
fn large_messages_arrive_while_larger_packets_vanish_on_a_link_and_the_doctor_names_it() {
    // One packet is one on the wire, so that the rule sees what a narrow path would.
    let Some(testbed) = testbed_of("vanish", &LinkSpec { gso: false, ..LinkSpec::default() }) else { return };
    let stream = Stream::start(&testbed, "");
    let narrow = "nft 'add table netdev t; add chain netdev t in { type filter hook ingress device l1 priority 0; }; \
                  add rule netdev t in meta length > 1300 drop'";
    (0..2).for_each(|node| shell(&testbed, node, narrow));
    stream.until_links(|links| second(links)["mtu_bytes"].as_u64() <= Some(1272));
    let finding = until_found(&testbed, 0, &stream.sockets[0], "mtu-path");
    assert!(finding["seen"].as_str().is_some_and(|seen| seen.contains("vanish on the way")), "{finding}");
    stream.finish();
}

#[test]
fn two_links_in_one_network_work_after_the_command_of_the_doctor() {
    let Some(testbed) = testbed("subnet") else { return };
    for node in 0..2 {
        // The numbers of the first link's network, so that both interfaces have an address in it.
        let beside = testbed.address(node, 0).to_string();
        let beside = beside.rsplit_once('.').expect("dots").0.to_owned();
        let line = format!(
            "ip addr flush dev l1; ip addr add {beside}.{}/24 dev l1; \
             sysctl -qw net.ipv4.conf.l0.rp_filter=1 net.ipv4.conf.l1.rp_filter=1",
            node + 11
        );
        shell(&testbed, node, &line);
    }
    for node in 0..2 {
        let (code, document) = doctor(&testbed, node, &["--machine", "--interface", "l*"]);
        let findings = found(&document, "one-network");
        assert!(code == Some(1) && findings.len() == 1, "{document}");
        assert_eq!(
            (&findings[0]["severity"], &findings[0]["about"]),
            (&"error".into(), &"interfaces l0 and l1".into())
        );
        mend(&testbed, node, findings[0]);
    }
    // Both links are joined, and carry messages.
    let stream = Stream::start(&testbed, "");
    let (_, document) = doctor(&testbed, 0, &["--control", stream.sockets[0].path()]);
    assert!(found(&document, "one-network").is_empty(), "{document}");
    stream.finish();
}

#[test]
fn two_links_by_one_cable_are_told_from_two_cables() {
    let narrow = LinkSpec { rate_mbit: Some(200), ..LinkSpec::default() };
    let Some(testbed) = testbed_of("narrow", &narrow) else { return };
    // The second link leads over the first one's interface, and through its token bucket. The networks stay apart, as
    // they would by two cables.
    // The start of the addresses of a link.
    let start = |link| {
        let own = testbed.address(0, link).to_string();
        own.rsplit_once('.').expect("dots").0.to_owned()
    };
    let apart = format!(
        "nft 'add table inet t; add chain inet t in {{ type filter hook input priority 0; }}; \
         add rule inet t in iifname l0 ip saddr != {}.0/24 drop; add rule inet t in iifname lm ip saddr != {}.0/24 drop'",
        start(0),
        start(1)
    );
    for node in 0..2 {
        let own = format!("{}.{}/24", start(1), 77 + node);
        shell(&testbed, node, "ip link set dev l1 down; ip addr flush dev l1");
        shell(&testbed, node, "sysctl -qw net.ipv4.conf.all.arp_ignore=1");
        shell(&testbed, node, "ip link add link l0 name lm type macvlan mode bridge");
        shell(&testbed, node, &format!("ip addr add {own} dev lm; ip link set dev lm up; {apart}"));
    }
    let stream = Stream::start(&testbed, "");
    let finding = until_found(&testbed, 0, &stream.sockets[0], "one-bottleneck");
    let about = finding["about"].as_str().expect("text");
    assert!(about.contains("beta/0") && about.contains("beta/1"), "{finding}");
    stream.finish();

    let Some(testbed) = testbed_of("wide", &narrow) else { return };
    let stream = Stream::start(&testbed, "");
    let shown = |link: &str| ask(&stream.sockets[0], &["link", "show", link])["show"]["path"].clone();
    ask_until(&stream.sockets[0], &["link", "show", "beta/1"], |shown| {
        shown["show"]["path"]["bottleneck_trials"].as_u64() >= Some(3)
    });
    let told = ["beta/0", "beta/1"].map(|link| shown(link)["shares_bottleneck_with"].clone());
    assert_eq!(told, [Value::Null, Value::Null]);
    stream.finish();
}
