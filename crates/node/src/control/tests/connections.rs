//! What is said of connections: how far each has come, what waits at it, and what became of those that are over.

use super::*;
use crate::engine::client::connections::Wish;
use polyrail_proto::id::ConnectionId;

const WISH: Wish = Wish { class: Class::Urgent, stream: false, last: false };

/// A world with a port that listens on beta, and one on alpha that asks.
fn listening(backlog: u32) -> (World, Client, Client) {
    let mut world = World::met();
    let (mut server, client) = (world.client(1), world.client(0));
    server.listen(backlog).unwrap();
    world.run(5);
    (world, server, client)
}

/// Asks for a connection; its name at the end that asks.
fn connect(world: &mut World, client: &mut Client, server: &Client, stream: bool) -> ConnectionId {
    let wish = Wish { stream, ..WISH };
    let cookie = client.connect(Destination::Port(server.address()), wish, None).unwrap();
    world.run(5);
    client.sort_fresh();
    client.take_answer(cookie).unwrap().unwrap().0
}

/// Accepts the next that waits.
fn accept(world: &mut World, server: &mut Client) -> ConnectionId {
    server.sort_fresh();
    let request = server.take_request().unwrap();
    server.accept_connection(request.id).unwrap();
    world.run(5);
    request.id
}

fn shown(world: &mut World, node: usize, name: &str) -> Value {
    world.ask(node, "connection show", Some(name))["show"].clone()
}

/// State and name of each connection of a node's list.
fn states(world: &mut World, node: usize) -> Vec<(String, String)> {
    let answer = world.ask(node, "connection list", None);
    let rows = answer["rows"].as_array().unwrap();
    let word = |row: &Value, member: &str| row[member].as_str().unwrap().to_owned();
    rows.iter().map(|row| (word(row, "name"), word(row, "state"))).collect()
}

fn state(name: &str, state: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), state.to_owned())]
}

#[test]
fn a_connection_is_seen_from_both_ends_at_every_step() {
    let (mut world, mut server, mut client) = listening(4);
    let asking = connect(&mut world, &mut client, &server, true);
    assert_eq!(states(&mut world, 0), state("beta/out-1", "asked"));
    assert_eq!(states(&mut world, 1), state("alpha/in-1", "waiting"));
    let answering = accept(&mut world, &mut server);
    assert_eq!(states(&mut world, 0), state("beta/out-1", "open"));
    assert_eq!(states(&mut world, 1), state("alpha/in-1", "open"));
    let own = shown(&mut world, 0, "beta/out-1")["connection"].clone();
    assert_eq!(
        (&own["port"], &own["peer_port"]),
        (&json!(client.address().port.0), &json!(server.address().port.0))
    );
    assert_eq!((&own["peer"], &own["node"]), (&json!("beta"), &json!("0000000000000002")), "{own}");
    assert_eq!(
        (&own["class"], &own["carries"], &own["asked_by"]),
        (&json!("urgent"), &json!("stream"), &json!("us"))
    );
    assert_eq!(own["age_s"], 0.01, "{own}");
    let other = shown(&mut world, 1, "0000000000000001/in-1")["connection"].clone();
    assert_eq!((&other["asked_by"], &other["carries"]), (&json!("peer"), &json!("stream")), "{other}");

    client.shut_down(asking, true, false).unwrap();
    world.run(5);
    assert_eq!(states(&mut world, 0), state("beta/out-1", "sent-all"));
    assert_eq!(states(&mut world, 1), state("alpha/in-1", "heard-all"));
    server.shut_down(answering, true, false).unwrap();
    world.run(5);
    assert_eq!((states(&mut world, 0), states(&mut world, 1)), (vec![], vec![]));
}

#[test]
fn credit_and_what_waits_are_told_both_ways() {
    let (mut world, mut server, mut client) = listening(4);
    let asking = connect(&mut world, &mut client, &server, false);
    accept(&mut world, &mut server);
    let handed_in = 10;
    for _ in 0..handed_in {
        client.send(Destination::Connection(asking), Class::Urgent, None, &[7; 60_000]).unwrap();
        world.run(5);
        client.sort_fresh();
    }
    let own = shown(&mut world, 0, "beta/out-1")["sending"].clone();
    assert_eq!(
        (&own["messages_sent"], &own["messages_used"]),
        (&json!(handed_in), &json!(handed_in)),
        "{own}"
    );
    assert_eq!(own["bytes_used"], json!(handed_in * 60_032), "rounded up");
    let (given, used, left) = (&own["bytes_given"], &own["bytes_used"], &own["bytes_left"]);
    assert_eq!(given.as_u64().unwrap(), used.as_u64().unwrap() + left.as_u64().unwrap());
    let other = shown(&mut world, 1, "alpha/in-1")["receiving"].clone();
    for member in ["bytes_given", "bytes_used", "bytes_left", "messages_used"] {
        assert_eq!(own[member], other[member], "{member}: both ends say the same");
    }
    let row = world.ask(1, "connection list", None)["rows"][0].clone();
    assert_eq!((&row["messages_received"], &row["messages_sent"]), (&json!(handed_in), &json!(0)), "{row}");
    assert_eq!(row["receiving_bytes_left"], *left);

    // What nobody confirms is seen to wait: the only way to beta is gone.
    world.engines.truncate(1);
    client.send(Destination::Connection(asking), Class::Urgent, None, b"small").unwrap();
    world.run(2);
    let own = shown(&mut world, 0, "beta/out-1")["sending"].clone();
    assert_eq!((&own["messages_unconfirmed"], &own["messages_sent"]), (&json!(1), &json!(11)), "{own}");
}

#[test]
fn ports_and_nodes_name_their_connections() {
    let (mut world, mut server, mut client) = listening(4);
    let [first, _second] = [(); 2].map(|()| connect(&mut world, &mut client, &server, false));
    accept(&mut world, &mut server);
    let sent = client.send(Destination::Connection(first), Class::Urgent, None, b"first");
    assert!(sent.is_ok());
    world.run(2);
    let port = server.address().port.to_string();
    let shown = world.ask(1, "port show", Some(&port))["show"].clone();
    let names = |rows: &Value| -> Vec<String> {
        rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&shown["connections"]), ["alpha/in-1", "alpha/in-2"]);
    let own = &shown["port"];
    assert_eq!((&own["connections_total"], &own["backlog"]), (&json!(2), &json!(4)), "{own}");
    assert_eq!(own["connections_waiting"], 1, "{own}");
    assert_eq!(world.ask(1, "port list", None)["rows"][0]["connections"], 2);
    let node = world.ask(0, "node show", Some("beta"))["show"].clone();
    assert_eq!(names(&node["connections"]), ["beta/out-1", "beta/out-2"]);
    assert_eq!(node["queues"]["connections_total"], 2);
    assert_eq!(node["flows"][0]["connection"], "beta/out-1", "{node}");
    assert_eq!(
        (&node["credit_of_peer"], &node["credit_for_peer"]),
        (&json!([]), &json!([])),
        "those are ports'"
    );
}

#[test]
fn a_list_is_filtered_and_bounded_and_counts_the_rest() {
    let (mut world, server, mut client) = listening(400);
    let mut other = world.client(0);
    for _ in 0..300 {
        client.connect(Destination::Port(server.address()), WISH, None).unwrap();
        world.run(1);
    }
    connect(&mut world, &mut other, &server, false);
    let count = |answer: &Value| (answer["rows"].as_array().unwrap().len(), answer["rows_total"].clone());
    let all = world.ask(0, "connection list", None);
    assert_eq!(count(&all), (256, json!(301)));
    let few = world.request(0, &json!({ "command": "connection list", "limit": 3 }));
    assert_eq!(count(&few), (3, json!(301)));
    assert_eq!(names(&few), ["beta/out-1", "beta/out-2", "beta/out-3"]);
    let more = world.request(0, &json!({ "command": "connection list", "limit": 4_096, "peer": "beta" }));
    assert_eq!(count(&more), (301, json!(301)));
    let port = other.address().port.to_string();
    let only = world.request(0, &json!({ "command": "connection list", "port": port }));
    assert_eq!((count(&only), names(&only)), ((1, json!(1)), vec!["beta/out-301".to_owned()]));
    let own = world.request(0, &json!({ "command": "connection list", "peer": "alpha" }));
    assert_eq!(count(&own), (0, json!(0)));
    for (member, wrong, code) in [
        ("peer", json!("gamma"), "not_found"),
        ("port", json!("1"), "not_found"),
        ("limit", json!(0), "request"),
    ] {
        let answer = world.request(0, &json!({ "command": "connection list", member: wrong }));
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
    let unknown = world.ask(0, "connection show", Some("beta/in-1"))["error"]["message"].clone();
    let unknown = unknown.as_str().unwrap();
    assert!(
        unknown.starts_with("no connection \"beta/in-1\"; there are: beta/out-1, beta/out-2"),
        "{unknown}"
    );
    assert!(unknown.ends_with("and 285 more"), "{unknown}");
}

#[test]
fn what_became_of_connections_is_counted_by_cause() {
    let (mut world, mut server, mut client) = listening(2);
    let deaf = world.client(1);
    for _ in 0..3 {
        connect(&mut world, &mut client, &server, false);
    }
    connect(&mut world, &mut client, &deaf, false);
    accept(&mut world, &mut server);
    server.sort_fresh();
    let unwanted = server.take_request().unwrap();
    server.shut_down(unwanted.id, true, true).unwrap();
    world.run(5);
    let rows = |world: &mut World, node| world.ask(node, "connection stats", None)["rows"].clone();
    let asked = rows(&mut world, 0)[1].clone();
    assert_eq!(
        (&asked["name"], &asked["asked_by_us"], &asked["asked_by_peer"]),
        (&json!("beta"), &json!(4), &json!(0))
    );
    for cause in ["backlog", "nobody_listens", "not_allowed"] {
        assert_eq!(asked[format!("refused_by_peer_{cause}")], 1, "{asked}");
        assert_eq!(asked[format!("refused_here_{cause}")], 0, "{asked}");
    }
    assert_eq!((&asked["opened"], &asked["over"]), (&json!(1), &json!(3)), "{asked}");
    assert_eq!((&asked["now"], &asked["now_open"]), (&json!(1), &json!(1)), "{asked}");
    let answered = rows(&mut world, 1);
    let named: Vec<&Value> = answered.as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!(named, ["alpha", "beta", "all"]);
    for row in [&answered[0], &answered[2]] {
        for cause in ["backlog", "nobody_listens", "not_allowed"] {
            assert_eq!(row[format!("refused_here_{cause}")], 1, "{row}");
        }
        assert_eq!(
            (&row["asked_by_peer"], &row["opened"], &row["over"]),
            (&json!(4), &json!(1), &json!(1)),
            "{row}"
        );
    }
    let total = world.ask(1, "stats", None)["show"]["connections"].clone();
    assert_eq!((&total["refused_here_backlog"], &total["messages_late"]), (&json!(1), &json!(0)), "{total}");
    assert_eq!(world.ask(1, "stats", None)["show"]["drops"]["refused_connection"], 2);
}
