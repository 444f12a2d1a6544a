//! What is told of a message that is not sent yet.

use super::*;

fn why(world: &mut World, name: &str, bytes: u64) -> Value {
    let answer = world.request(0, &json!({ "command": "why", "name": name, "bytes": bytes }));
    assert_eq!(answer["ok"], true, "{answer}");
    answer["why"].clone()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Sends messages of that many bytes from alpha to beta, which reads them.
fn send(world: &mut World, count: usize, bytes: usize) {
    let (mut server, mut client) = (world.client(1), world.client(0));
    for _ in 0..count {
        client.send(Destination::Port(server.address()), Class::Normal, None, &vec![7; bytes]).unwrap();
        world.run(2);
        while let Some(crate::engine::client::Arrival::Message(envelope, offset)) = server.poll() {
            server.release(offset, envelope.len);
        }
    }
}

#[test]
fn a_small_message_takes_the_link_that_is_told() {
    let mut world = World::met();
    send(&mut world, 40, 60_000);
    for _ in 0..2 {
        let told = why(&mut world, "beta", 64);
        assert_eq!((&told["message"]["way"], &told["message"]["bytes"]), (&json!("small"), &json!(64)));
        let choice = text(&told["message"]["choice"]).to_owned();
        let links = told["links"].as_array().unwrap().clone();
        let takes: Vec<bool> = links.iter().map(|link| link["takes"] == true).collect();
        let taken = links.iter().position(|link| link["name"] == choice.as_str()).unwrap();
        assert!(takes[taken] && takes.iter().filter(|takes| **takes).count() == 1, "{told}");
        assert_eq!(
            (&links[taken]["share_percent"], &links[1 - taken]["share_percent"]),
            (&json!(100.0), &json!(0.0))
        );
        assert!(text(&links[1 - taken]["why"]).starts_with("expected delay "), "{told}");
        // It goes there.
        let packets = |world: &mut World| {
            let rows = world.ask(0, "link stats", None)["rows"].clone();
            [0, 1].map(|link: usize| rows[link]["bytes_sent"].as_u64().unwrap())
        };
        let before = packets(&mut world);
        send(&mut world, 1, 12_000);
        let after = packets(&mut world);
        assert!(after[taken] - before[taken] > 12_000 && after[1 - taken] - before[1 - taken] < 12_000);
        // And another where that is put aside.
        world.request(0, &json!({ "command": "link set", "name": choice, "status": "standby" }));
        let told = why(&mut world, "beta", 64);
        assert_ne!(told["message"]["choice"], choice.as_str());
        assert_eq!(told["links"][taken]["why"], "standby: an active link is usable");
        assert!(text(&told["links"][1 - taken]["why"]).starts_with("the only link that may"), "{told}");
        world.request(0, &json!({ "command": "link set", "name": choice, "status": "active" }));
    }
}

#[test]
fn a_large_message_is_predicted_as_far_as_rates_are_known() {
    let mut world = World::met();
    // The search for the MTU is all that these links have carried, and that is forgotten.
    assert_eq!(why(&mut world, "beta", 1 << 20)["message"]["arrival_is"], "unknown");
    send(&mut world, 2, 200_000);
    let told = why(&mut world, "beta", 1 << 20);
    let (message, first) = (&told["message"], &told["links"][0]);
    assert_eq!((&message["way"], &message["arrival_is"]), (&json!("announced"), &json!("roughly")), "{told}");
    assert_eq!(first["rate_known"], "seen", "{told}");
    assert_eq!(first["share_percent"], Value::Null, "{told}");
    let sent_percent = first["sent_percent"].as_f64().unwrap();
    let so_far = format!("is only the largest that was seen of late; {sent_percent:.1} % of what was sent");
    assert!(text(&first["why"]).contains(&so_far) && (40.0..60.0).contains(&sent_percent), "{told}");
    send(&mut world, 40, 200_000);
    let told = why(&mut world, "beta", 1 << 20);
    let message = &told["message"];
    let arrival_us = message["arrival_us"].as_f64().unwrap();
    assert!(arrival_us > message["announcement_us"].as_f64().unwrap(), "{told}");
    let rtt_us = told["links"][0]["rtt_min_us"].as_f64().unwrap();
    assert!((message["announcement_us"].as_f64().unwrap() - rtt_us).abs() < 1.0, "{told}");
}

#[test]
fn a_link_that_is_down_says_since_when_and_what_waits_is_counted() {
    let mut world = World::met();
    let now_ns = world.now_ns;
    world.engines[0].carrier(now_ns, 1, false);
    world.run(1_000);
    let told = why(&mut world, "0000000000000002", 8);
    assert_eq!(told["links"][1]["part"], "barred");
    let bearer = text(&told["links"][1]["bearer"]).to_owned();
    assert_eq!(told["links"][1]["why"], format!("{bearer} has no carrier, by \"carrier lost\" 1 s ago"));
    // More than the port has room for, and nobody reads.
    let (server, mut client) = (world.client(1), world.client(0));
    for _ in 0..40 {
        client.send(Destination::Port(server.address()), Class::Bulk, None, &[7; 60_000]).unwrap();
        world.run(2);
    }
    let told = why(&mut world, "beta", 8);
    assert_eq!(told["message"]["flows_starved"], 1, "{told}");
    assert!(told["message"]["messages_before"].as_u64().unwrap() > 0, "{told}");
}

#[test]
fn who_is_no_peer_is_told_what_to_do() {
    let mut world = World::met();
    let refused = |world: &mut World, line: Value| {
        let error = world.request(0, &line)["error"].clone();
        (text(&error["code"]).to_owned(), text(&error["message"]).to_owned())
    };
    let of = |name: &str| json!({ "command": "why", "name": name });
    let (code, message) = refused(&mut world, of("gamma"));
    assert_eq!(code, "not_found");
    assert!(message.contains("no peer \"gamma\"") && message.contains("there are: beta. See"), "{message}");
    let (code, message) = refused(&mut world, of("alpha"));
    assert!(code == "usage" && message.contains("this node itself"), "{code} {message}");
    assert_eq!(refused(&mut world, json!({ "command": "why" })).1, "which peer? no \"name\"");
    for wrong in [json!(-1), json!("8"), json!(1.5), json!(1u64 << 49)] {
        let (code, message) =
            refused(&mut world, json!({ "command": "why", "name": "beta", "bytes": wrong }));
        assert!(code == "usage" && message.contains("allowed: a number"), "{message}");
    }
    assert_eq!(why(&mut world, "beta", 0)["message"]["bytes"], 0);
    world.engines.truncate(1);
    world.run(2_000);
    let (code, message) = refused(&mut world, of("beta"));
    assert!(code == "not_found" && message.starts_with("peer \"beta\" is gone: lost, "), "{message}");
}

#[test]
fn another_policy_is_named_for_what_is_told_is_not_its_way() {
    let mut world = World::with(Policy::RoundRobin);
    world.run(400);
    let message = why(&mut world, "beta", 64)["message"].clone();
    assert_eq!(message["policy"], "round-robin");
    assert!(text(&message["why"]).starts_with("the policy is round-robin: "), "{message}");
    assert_eq!(world.ask(0, "node show", Some("alpha"))["show"]["node"]["policy"], "round-robin");
    let usual = why(&mut World::met(), "beta", 64)["message"].clone();
    assert_eq!(usual["policy"], "adaptive");
    assert!(text(&usual["why"]).starts_with("messages of up to"), "{usual}");
}
