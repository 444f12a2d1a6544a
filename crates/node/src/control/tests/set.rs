//! Links that are put aside by one of two nodes, and taken back.

use super::*;

fn set(world: &mut World, name: &str, status: &str) -> Value {
    world.request(0, &json!({ "command": "link set", "name": name, "status": status }))
}

/// Bytes that alpha sent by each link, in all.
fn sent_bytes(world: &mut World) -> [u64; 2] {
    let rows = world.ask(0, "link list", None)["rows"].clone();
    [0, 1].map(|link| rows[link]["bytes_sent"].as_u64().unwrap())
}

/// What alpha sends by each link when it has 40 messages to send.
fn carried_bytes(world: &mut World) -> [u64; 2] {
    let (mut server, mut client) = (world.client(1), world.client(0));
    let before = sent_bytes(world);
    for _ in 0..40 {
        client.send(Destination::Port(server.address()), Class::Normal, None, &[7; 60_000]).unwrap();
        world.run(2);
        while let Some(crate::engine::client::Arrival::Message(envelope, offset)) = server.poll() {
            server.release(offset, envelope.len);
        }
    }
    let after = sent_bytes(world);
    [0, 1].map(|link| after[link] - before[link])
}

#[test]
fn a_link_that_is_put_aside_carries_no_messages_until_it_is_active_again() {
    let mut world = World::met();
    assert!(carried_bytes(&mut world).iter().all(|&bytes| bytes > 100_000), "both carry");
    for status in ["standby", "drain"] {
        let answer = set(&mut world, "beta/1", status);
        assert_eq!((&answer["ok"], &answer["link"]["name"]), (&json!(true), &json!("beta/1")), "{answer}");
        let link = &answer["link"];
        assert_eq!((&link["status"], &link["takes_messages"]), (&json!(status), &json!(false)), "{answer}");
        world.run(20);
        assert_eq!(world.ask(0, "link show", Some("beta/1"))["show"]["link"]["status"], status);
        assert_eq!(world.ask(1, "link show", Some("alpha/1"))["show"]["link"]["status_of_peer"], status);
        assert_eq!(world.ask(1, "link list", None)["rows"][1]["status_of_peer"], status);
        let [first, second] = carried_bytes(&mut world);
        assert!(first > 2_000_000 && second < 50_000, "{status}: {first} {second}");
    }
    let answer = set(&mut world, "0000000000000002/1", "active");
    assert_eq!(answer["link"]["takes_messages"], true, "{answer}");
    world.run(20);
    assert_eq!(world.ask(1, "link list", None)["rows"][1]["status_of_peer"], "active");
    assert!(carried_bytes(&mut world).iter().all(|&bytes| bytes > 100_000), "both carry again");
}

#[test]
fn the_last_link_is_drained_by_nobody_and_a_standby_link_still_serves() {
    let mut world = World::met();
    set(&mut world, "beta/0", "drain");
    let answer = set(&mut world, "beta/1", "drain");
    assert_eq!(answer["error"]["code"], "last_link", "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("the last one that takes messages to \"beta\""), "{message}");
    let answer = set(&mut world, "beta/1", "standby");
    let link = &answer["link"];
    assert_eq!((&link["status"], &link["takes_messages"]), (&json!("standby"), &json!(true)), "{answer}");
    let [first, second] = carried_bytes(&mut world);
    assert!(first < 50_000 && second > 2_000_000, "{first} {second}");
}

#[test]
fn what_can_not_be_set_is_refused_and_changes_nothing() {
    let mut world = World::met();
    let refusal = |answer: Value| {
        let error = &answer["error"];
        (error["code"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
    };
    let (code, message) = refusal(set(&mut world, "beta/7", "standby"));
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("not_found", "no link \"beta/7\"; there are: beta/0, beta/1")
    );
    for status in ["down", "", "Standby"] {
        let (code, message) = refusal(set(&mut world, "beta/0", status));
        assert_eq!(code, "request");
        assert!(message.ends_with("allowed: active, standby, drain"), "{message}");
    }
    let (code, message) = refusal(world.request(0, &json!({ "command": "link set", "status": "drain" })));
    assert_eq!((code.as_str(), message.as_str()), ("request", "which link? no \"name\""));
    assert_eq!(world.ask(0, "link set", Some("beta/0"))["error"]["code"], "request");
    let statuses = world.ask(0, "link list", None)["rows"].as_array().unwrap().clone();
    assert!(statuses.iter().all(|row| row["status"] == "active"), "{statuses:?}");
    // Links of a peer that is gone are remembered, but nothing can be wanted of them.
    world.engines.truncate(1);
    world.run(2_000);
    let (code, message) = refusal(set(&mut world, "beta/0", "standby"));
    assert!(code == "not_found" && message.contains("is gone"), "{code} {message}");
}
