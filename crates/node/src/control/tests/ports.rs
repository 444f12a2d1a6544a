//! What ports count.

use super::*;

#[test]
fn a_port_counts_what_goes_to_one_and_to_several_and_what_comes() {
    let mut world = World::met();
    let (mut server, mut client, mut own) = (world.client(1), world.client(0), world.client(0));
    let range = ServiceRange::new(100, 0, 9);
    server.bind(range, Scope::Cluster).unwrap();
    own.bind(range, Scope::Cluster).unwrap();
    world.run(20);
    client.send(Destination::Port(server.address()), Class::Normal, None, &[7; 300]).unwrap();
    client.send(Destination::Multicast(range), Class::Normal, None, &[7; 40]).unwrap();
    world.run(20);
    // By turns, so that each counts for itself.
    for owns in [true, false, true] {
        let port = if owns { &mut own } else { &mut client };
        port.send(Destination::Port(server.address()), Class::Normal, None, &[7; 5]).unwrap();
        world.run(20);
    }
    let count = |world: &mut World, node: usize, port: &Client| {
        let port = port.address().port;
        let members = ["messages_sent", "bytes_sent", "messages_received", "bytes_received"];
        let counters = |row: &Value| members.map(|member| row[member].as_u64().unwrap());
        let counted = counters(&world.ask(node, "port stats", Some(&port.to_string()))["rows"][0]);
        let listed = world.ask(node, "port list", None)["rows"].clone();
        let row = listed.as_array().unwrap().iter().find(|row| row["port"] == port.0).unwrap();
        assert_eq!(counters(row), counted);
        counted
    };
    assert_eq!(count(&mut world, 0, &client), [3, 345, 0, 0]);
    assert_eq!(count(&mut world, 0, &own), [2, 10, 1, 40]);
    assert_eq!(count(&mut world, 1, &server), [0, 0, 5, 355]);
}
