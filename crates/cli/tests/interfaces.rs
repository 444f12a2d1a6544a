//! Interfaces and addresses that come, change and go under a stream of messages: nodes follow, everything arrives once and in
//! order, and the new links carry bytes. In two network namespaces; needs root, says so and passes where there is none.

#![forbid(unsafe_code)]

#[path = "nodes/findings.rs"]
mod findings;
#[path = "nodes/stream.rs"]
mod stream;
#[path = "nodes/world.rs"]
mod world;

use findings::{doctor, found, mend, shell, until_found, until_gone};
use polyrail_bench::netns::Testbed;
use serde_json::Value;
use stream::Stream;
use world::{Running, Scratch, ask, ask_until, inside, testbed};

/// Nobody is given up while a busy machine makes an interface.
const PATIENT: &str = "tolerance_ms = 30000\n";

/// The links by an interface.
fn by<'a>(links: &'a [Value], interface: &str) -> Vec<&'a Value> {
    let bearer = format!("udp/{interface}");
    links.iter().filter(|link| link["bearer"] == bearer.as_str()).collect()
}

/// Whether there is one link by an interface, in use, and more than handshakes have gone by it.
fn carries(links: &[Value], interface: &str) -> bool {
    let links = by(links, interface);
    let is_used = |link: &Value| link["state"] == "up" || link["state"] == "probation";
    links.len() == 1 && is_used(links[0]) && links[0]["bytes_sent"].as_u64() > Some(4 << 20)
}

/// The row of the bearer on an interface.
fn bearer(socket: &Scratch, interface: &str) -> Value {
    let answer = ask(socket, &["bearer", "list"]);
    let mut rows = answer["rows"].as_array().expect("rows").iter();
    rows.find(|row| row["interface"] == interface).cloned().unwrap_or(Value::Null)
}

/// A node's address on the second link, and the same with another last number.
fn address(testbed: &Testbed, node: usize, last: Option<u8>) -> String {
    let own = testbed.address(node, 1).to_string();
    match last {
        Some(last) => format!("{}.{last}", own.rsplit_once('.').expect("dots").0),
        None => own,
    }
}

/// A cable between the two nodes, with an interface of this name at each end, up and with these addresses.
fn plug(testbed: &Testbed, interface: &str, addresses: [String; 2]) {
    let peer = testbed.spec().namespace(1);
    shell(testbed, 0, &format!("ip link add {interface} type veth peer name {interface} netns {peer}"));
    for (node, address) in addresses.iter().enumerate() {
        shell(
            testbed,
            node,
            &format!("ip link set {interface} up; ip addr add {address}/24 dev {interface}"),
        );
    }
}

fn third() -> [String; 2] {
    ["10.250.2.1".to_owned(), "10.250.2.2".to_owned()]
}

/// Goes on until what is seen of both nodes' links is so.
fn until_both(stream: &Stream, is_so: impl Fn(&[Value]) -> bool) {
    for socket in &stream.sockets {
        ask_until(socket, &["link", "list"], |answer| {
            answer["rows"].as_array().is_some_and(|links| is_so(links))
        });
    }
}

#[test]
fn an_interface_that_is_added_is_taken_up_and_its_link_carries_messages() {
    let Some(testbed) = testbed("added") else { return };
    let stream = Stream::start(&testbed, "");
    plug(&testbed, "l2", third());
    stream.until_links(|links| links.len() == 3 && carries(links, "l2"));
    for (node, socket) in stream.sockets.iter().enumerate() {
        assert_eq!(bearer(socket, "l2")["address"], format!("{}:7430", third()[node]));
        until_gone(&testbed, node, socket, "unused-interface");
        until_gone(&testbed, node, socket, "missing-link");
    }
    stream.finish();
}

#[test]
fn an_interface_that_is_added_is_announced_to_peers_that_send_no_beacons() {
    let Some(testbed) = testbed("announced") else { return };
    let peers = [testbed.address(0, 0), testbed.address(1, 0)];
    let stream = Stream::start(
        &testbed,
        &format!("discovery = false\npeers = [\"{}\", \"{}\"]\n", peers[0], peers[1]),
    );
    plug(&testbed, "l2", third());
    stream.until_links(|links| links.len() == 3 && carries(links, "l2"));
    stream.finish();
}

#[test]
fn an_address_comes_to_an_interface_that_had_none_and_one_that_the_rules_exclude_is_left_alone() {
    let Some(testbed) = testbed("excluded") else { return };
    shell(&testbed, 0, "ip link add x2 type bridge; ip link set x2 up; ip addr add 10.251.0.1/24 dev x2");
    shell(&testbed, 0, "ip link add l8 type bridge; ip link set l8 up");
    let stream = Stream::start(&testbed, "");
    shell(&testbed, 0, "ip addr add 10.251.9.1/24 dev x2; ip addr add 10.251.8.1/24 dev l8");
    ask_until(&stream.sockets[0], &["bearer", "list"], |answer| {
        let rows = answer["rows"].as_array().expect("rows");
        rows.iter().any(|row| row["interface"] == "l8" && row["address"] == "10.251.8.1:7430")
    });
    assert_eq!(bearer(&stream.sockets[0], "x2"), Value::Null);
    stream.finish();
}

#[test]
fn an_interface_that_is_removed_and_made_anew_is_used_again() {
    let Some(testbed) = testbed("remade") else { return };
    let stream = Stream::start(&testbed, "");
    shell(&testbed, 0, "ip link del l1");
    // Its links are forgotten at both ends, and the doctor tells what is missing.
    until_both(&stream, |links| links.len() == 1);
    for (node, socket) in stream.sockets.iter().enumerate() {
        let finding = until_found(&testbed, node, socket, "interface-gone");
        assert_eq!(finding["about"], "interface l1");
        assert_eq!(
            (&bearer(socket, "l1")["state"], &bearer(socket, "l1")["why"]),
            (&"closed".into(), &"interface removed".into())
        );
        let (_, document) = doctor(&testbed, node, &["--control", socket.path()]);
        assert!(found(&document, "no-carrier").is_empty(), "told once: {document}");
    }
    // The first takes the number that is free now.
    plug(&testbed, "l2", third());
    plug(&testbed, "l1", [0, 1].map(|node| address(&testbed, node, None)));
    stream.until_links(|links| links.len() == 3 && carries(links, "l1") && carries(links, "l2"));
    for (node, socket) in stream.sockets.iter().enumerate() {
        until_gone(&testbed, node, socket, "interface-gone");
        assert_eq!(bearer(socket, "l1")["state"], "up");
    }
    stream.finish();
}

#[test]
fn an_interface_whose_address_is_replaced_is_used_by_the_new_one_and_without_any_when_it_has_one_again() {
    let Some(testbed) = testbed("moves") else { return };
    let stream = Stream::start(&testbed, "");
    let (old, new) = (address(&testbed, 0, None), address(&testbed, 0, Some(101)));
    shell(&testbed, 0, &format!("ip addr del {old}/24 dev l1; ip addr add {new}/24 dev l1"));
    ask_until(&stream.sockets[0], &["bearer", "list"], |answer| {
        let rows = answer["rows"].as_array().expect("rows");
        rows.iter().any(|row| row["address"] == format!("{new}:7430").as_str() && row["state"] == "up")
    });
    stream.until_links(|links| links.len() == 2 && carries(links, "l1"));
    ask_until(&stream.sockets[1], &["link", "list"], |answer| {
        let links = answer["rows"].as_array().expect("rows");
        by(links, "l1").len() == 1 && by(links, "l1")[0]["to"] == format!("{new}:7430").as_str()
    });
    shell(&testbed, 0, "ip addr flush dev l1");
    stream.until_links(|links| links.len() == 1);
    let finding = until_found(&testbed, 0, &stream.sockets[0], "address-gone");
    let mut finding = finding.clone();
    assert!(finding["seen"].as_str().is_some_and(|seen| seen.contains(&new)), "{finding}");
    // The interface has no address whose network would tell the prefix.
    finding["mend"][0] = finding["mend"][0].as_str().expect("a command").replace("PREFIX", "24").into();
    mend(&testbed, 0, &finding);
    stream.until_links(|links| links.len() == 2 && carries(links, "l1"));
    until_gone(&testbed, 0, &stream.sockets[0], "address-gone");
    stream.finish();
}

#[test]
fn a_stream_goes_on_when_the_only_interface_is_made_anew_within_the_tolerance() {
    let Some(testbed) = testbed("only") else { return };
    let stream = Stream::start(&testbed, PATIENT);
    shell(&testbed, 0, "ip link del l0");
    until_both(&stream, |links| links.len() == 1);
    for round in 0..2 {
        shell(&testbed, 0, "ip link del l1");
        ask_until(&stream.sockets[0], &["link", "list"], |answer| {
            answer["rows"].as_array().is_some_and(Vec::is_empty)
        });
        // First by the addresses of before, then by others.
        let addresses = [0, 1].map(|node| address(&testbed, node, (round == 1).then_some(50 + node as u8)));
        plug(&testbed, "l1", addresses);
        until_both(&stream, |links| by(links, "l1").len() == 1);
        stream.until_links(|links| links.len() == 1 && carries(links, "l1"));
    }
    let nodes = ask(&stream.sockets[0], &["node", "show", "beta"])["show"]["changes"].clone();
    assert_eq!(nodes.as_array().map(Vec::len), Some(1), "the session is the first: {nodes}");
    stream.finish();
}

/// Two nodes lose each other with all their interfaces, and meet again by `interface` with these addresses.
fn lose_and_meet(testbed: &Testbed, lines: &str, interface: &str, addresses: [String; 2]) {
    let scratch = |what: &str| Scratch::new(&format!("meet-{}-{what}", testbed.spec().name));
    let sockets = ["alpha.sock", "beta.sock"].map(scratch);
    let settings = scratch("toml");
    std::fs::write(&settings.0, lines).expect("a temporary file can be written");
    let _nodes = [(0, "alpha"), (1, "beta")].map(|(node, name)| {
        let arguments =
            ["node", "--name", name, "--control", sockets[node].path(), "--config", settings.path()];
        Running::start(inside(testbed, node, &arguments))
    });
    let until = |is_so: &dyn Fn(&Value) -> bool| {
        for socket in &sockets {
            ask_until(socket, &["node", "list"], |answer| {
                let mut rows = answer["rows"].as_array().into_iter().flatten();
                rows.any(|row| row["state"] != "self" && is_so(row))
            });
        }
    };
    until(&|row| row["state"] == "up" && row["links_up"] == 2);
    shell(testbed, 0, "ip link del l0; ip link del l1");
    until(&|row| row["state"] == "lost" && row["why"] != "unknown");
    for (node, socket) in sockets.iter().enumerate() {
        until_found(testbed, node, socket, "lost-node");
    }
    plug(testbed, interface, addresses);
    until(&|row| row["state"] == "up" && row["links_up"] == 1);
    for (node, socket) in sockets.iter().enumerate() {
        until_gone(testbed, node, socket, "lost-node");
    }
}

#[test]
fn nodes_that_lost_each_other_with_all_interfaces_meet_by_another_one() {
    let Some(testbed) = testbed("meet") else { return };
    lose_and_meet(&testbed, "", "l5", third());
}

#[test]
fn nodes_that_are_named_meet_again_without_beacons_once_their_addresses_are_back() {
    let Some(testbed) = testbed("meet-named") else { return };
    let peers = [testbed.address(0, 0), testbed.address(1, 0)].map(|address| address.to_string());
    let lines = format!("discovery = false\npeers = [\"{}\", \"{}\"]\n", peers[0], peers[1]);
    lose_and_meet(&testbed, &lines, "l0", peers);
}

#[test]
fn interfaces_that_are_named_in_full_or_by_a_network_are_used_again_when_they_are_back() {
    let Some(testbed) = testbed("named") else { return };
    let sockets =
        ["alpha", "beta"].map(|name| Scratch::new(&format!("named-{}-{name}.sock", std::process::id())));
    let network = format!("{}/24", address(&testbed, 1, None));
    let rules = [["--interface", "l1"], ["--interface", network.as_str()]];
    let _nodes = [(0, "alpha"), (1, "beta")].map(|(node, name)| {
        let arguments = ["node", "--name", name, "--control", sockets[node].path()];
        Running::start(inside(&testbed, node, &[&arguments[..], &rules[node]].concat()))
    });
    let met = || {
        for socket in &sockets {
            ask_until(socket, &["link", "list"], |answer| {
                let links = answer["rows"].as_array().into_iter().flatten();
                links.filter(|link| link["state"] == "up" || link["state"] == "probation").count() == 2
            });
        }
    };
    met();
    shell(&testbed, 0, "ip link del l1");
    let severity =
        |node: usize| until_found(&testbed, node, &sockets[node], "interface-gone")["severity"].clone();
    assert_eq!([severity(0), severity(1)], ["error", "warning"], "one is named in full");
    plug(&testbed, "l1", [0, 1].map(|node| address(&testbed, node, None)));
    met();
    for (node, socket) in sockets.iter().enumerate() {
        until_gone(&testbed, node, socket, "interface-gone");
        assert_eq!(bearer(socket, "l1")["state"], "up");
    }
}

#[test]
fn more_interfaces_than_there_may_be_bearers_are_refused_counted_and_taken_up_when_there_is_room() {
    let Some(testbed) = testbed("many") else { return };
    let socket = Scratch::new(&format!("many-{}.sock", std::process::id()));
    let mut node = Running::start(inside(&testbed, 0, &["node", "--control", socket.path()]));
    node.first_line();
    let until = |open: usize, closed: usize| {
        ask_until(&socket, &["bearer", "list"], |answer| {
            let rows = || answer["rows"].as_array().into_iter().flatten();
            let refused = rows().filter(|row| row["why"] == "too many bearers").count();
            (rows().filter(|row| row["state"] != "closed").count(), refused) == (open, closed)
        });
    };
    let line = "for n in $(seq 2 15); do ip link add l$n type bridge; ip addr add 10.249.$n.1/24 dev l$n; ip link set l$n up; done";
    shell(&testbed, 0, line);
    // One of them is by shared memory.
    until(15, 2);
    assert!(ask(&socket, &["stats"])["show"]["drops"]["bearers_refused"].as_u64() > Some(0));
    let finding = until_found(&testbed, 0, &socket, "bearer-refused");
    assert!(finding["mend"][0].as_str().is_some_and(|mend| mend.contains("14 at most")), "{finding}");
    shell(&testbed, 0, "ip link del l0; ip link del l1");
    until(15, 0);
    until_gone(&testbed, 0, &socket, "bearer-refused");
}

/// What a process holds: descriptors and threads.
fn held(process: &Running) -> (usize, usize) {
    let count = |what: &str| {
        let folder = std::fs::read_dir(format!("/proc/{}/{what}", process.pid()));
        folder.expect("the process runs").count()
    };
    (count("fd"), count("task"))
}

#[test]
fn an_interface_that_flaps_costs_neither_descriptors_nor_threads_nor_links() {
    let Some(testbed) = testbed("flaps") else { return };
    let stream = Stream::start(&testbed, "");
    let before = [&stream.sender, &stream.receiver].map(held);
    let peer = testbed.spec().namespace(1);
    // As fast as the machine makes them, up to ten times a second, for some seconds.
    let line = format!(
        "for round in $(seq 60); do ip link add l2 type veth peer name l2 netns {peer} && ip addr add 10.250.2.1/24 dev l2 \
         && ip link set l2 up && ip -n {peer} addr add 10.250.2.2/24 dev l2 && ip -n {peer} link set l2 up; sleep 0.08; \
         ip link del l2; sleep 0.02; done"
    );
    shell(&testbed, 0, &line);
    until_both(&stream, |links| links.len() == 2);
    // Sockets of single peers come and go with the traffic: four for each bearer.
    for (process, before) in [&stream.sender, &stream.receiver].into_iter().zip(before) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let (descriptors, threads) = held(process);
            if descriptors <= before.0 + 8 && threads <= before.1 {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{descriptors} and {threads}, before {before:?}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    for socket in &stream.sockets {
        let rows = ask(socket, &["bearer", "list"])["rows"].clone();
        assert!(rows.as_array().is_some_and(|rows| rows.len() <= 4), "{rows}");
    }
    // One that stays is taken up, after a while.
    plug(&testbed, "l2", third());
    stream.until_links(|links| links.len() == 3 && carries(links, "l2"));
    stream.finish();
}
