//! Connections under those who mean no good, or do not care: they come and go without end, all ends close at once, a node
//! dies while it is asked. What is held afterwards is counted.

use polyrail::engine::client::connections::Wish;
use polyrail::engine::client::{Arrival, Exchange};
use polyrail::engine::command::{Ended, NotConnecting};
use polyrail::engine::{Budget, Client, Engine};
use polyrail::{Class, Destination, NodeId};
use polyrail_bearer::{FaultBearer, Faults, MemoryHub};
use polyrail_proto::Config;
use polyrail_proto::id::{ConnectionId, Incarnation};
use polyrail_shm::Sizes;

const SIZES: Sizes = Sizes { sq_entries: 1_024, cq_entries: 8_192, tx_bytes: 1 << 20, rx_bytes: 4 << 20 };
const STEP_NS: u64 = 20_000;
const WISH: Wish = Wish { class: Class::Normal, stream: false, last: false };

/// Two engines on one wire, under one virtual clock.
struct World {
    now_ns: u64,
    engines: Vec<Engine>,
}

impl World {
    /// Two that have met, over a wire that loses and delays this share of packets.
    fn met(rough: f64) -> World {
        let (hub, now_ns) = (MemoryHub::new(), 1_000_000);
        let engine = |n: u64| {
            let mut engine = Engine::new(now_ns, Config::new(NodeId(n), Incarnation(7)));
            let faults = Faults { lose: rough, delay: rough, delay_batches_max: 8, ..Faults::default() };
            engine.add_bearer(now_ns, Box::new(FaultBearer::new(hub.bearer(n as u32), n, faults)));
            engine.add_loopback(now_ns, Box::new(MemoryHub::new().bearer(0)));
            engine
        };
        let mut world = World { now_ns, engines: (1..=2).map(engine).collect() };
        world.run(20_000);
        world
    }

    fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.now_ns += STEP_NS;
            for engine in &mut self.engines {
                engine.turn(self.now_ns, Budget::THOROUGH);
            }
        }
    }

    /// A port that listens on the second node, and one on the first.
    fn ports(&mut self, backlog: u32) -> (Client, Client) {
        let open = |engine: &mut Engine| engine.open_client(SIZES, Exchange::default()).unwrap();
        let (mut server, client) = (open(&mut self.engines[1]), open(&mut self.engines[0]));
        server.listen(backlog).unwrap();
        self.run(10);
        (server, client)
    }

    /// Ends, their credits and their flows that a node holds; and all flows and transfers.
    fn held(&self, node: usize) -> [usize; 7] {
        let mut held = [0; 7];
        for session in self.engines[node].core().sessions() {
            let [a, b, c, d] = session.sizes();
            let counts =
                [session.connections(), session.connection_credits(), session.connection_flows(), a, b, c, d];
            held.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        held
    }
}

/// Takes in what came; the names of connections that are there.
fn answers(client: &mut Client, cookies: &mut Vec<u64>) -> Vec<Result<ConnectionId, NotConnecting>> {
    client.sort_fresh();
    let mut found = Vec::new();
    cookies.retain(|cookie| match client.take_answer(*cookie) {
        Some(answer) => {
            found.push(answer.map(|(id, _)| id));
            false
        }
        None => true,
    });
    found
}

/// A connection of both ports: its end at the server, and that at the client.
fn joined(world: &mut World, server: &mut Client, client: &mut Client) -> (ConnectionId, ConnectionId) {
    let mut cookies = vec![client.connect(Destination::Port(server.address()), WISH, None).unwrap()];
    for _ in 0..10_000 {
        world.run(1);
        server.sort_fresh();
        if let Some(request) = server.take_request() {
            server.accept_connection(request.id).unwrap();
            world.run(20);
            let asking = answers(client, &mut cookies).remove(0).unwrap();
            return (request.id, asking);
        }
    }
    panic!("nobody is asked");
}

/// Gives back what came by no connection, and drops failures: those are not what this is about.
fn drain(client: &mut Client) {
    while let Some(arrival) = client.poll() {
        if let Arrival::Message(envelope, offset) = arrival {
            client.release(offset, envelope.len);
        }
    }
}

#[test]
fn a_hundred_thousand_that_come_and_vanish_leave_nothing() {
    const ROUNDS: u64 = 1_000;
    const AT_ONCE: u64 = 100;
    let mut world = World::met(0.0);
    let (mut server, mut client) = world.ports(64);
    let to = Destination::Port(server.address());
    let mut cookies = Vec::new();
    let mut most = [[0; 7]; 2];
    for round in 0..ROUNDS {
        for n in 0..AT_ONCE {
            // Some bring a message, which nobody will read.
            let first = (n % 3 == 0).then_some(&b"knock"[..]);
            cookies.push(client.connect(to, WISH, first).unwrap());
        }
        world.run(2);
        for id in answers(&mut client, &mut cookies).into_iter().flatten() {
            client.shut_down(id, true, true).unwrap();
            client.forget(id);
        }
        world.run(6);
        // The server looks at some of them, and finds those that are gone; it never reads.
        if round % 3 == 0 {
            server.sort_fresh();
            while let Some(request) = server.take_request() {
                server.shut_down(request.id, true, true).unwrap();
                server.forget(request.id);
            }
        }
        drain(&mut client);
        // What the first hundred rounds took is as much as any take.
        for (node, most) in most.iter_mut().enumerate() {
            let held = world.held(node);
            if round < 100 {
                most.iter_mut().zip(held).for_each(|(most, held)| *most = held.max(*most));
            }
            assert!(
                held.iter().zip(*most).all(|(held, most)| *held <= most + 16),
                "{round}: {held:?} {most:?}"
            );
        }
    }
    server.sort_fresh();
    assert!(server.take_request().is_none(), "all of them are gone");
    world.run(500);
    assert_eq!([world.held(0), world.held(1)].map(|held| [held[0], held[1], held[2]]), [[0; 3]; 2]);
    let session = world.engines[1].core().sessions().find(|s| s.peer.node == NodeId(1)).unwrap();
    let counted = *session.connection_stats();
    let refused = counted.refused_here;
    assert_eq!((counted.offered, counted.over), (ROUNDS * AT_ONCE, ROUNDS * AT_ONCE - refused.backlog));
    assert!(refused.backlog > 0 && counted.over > 0, "{counted:?}");
    assert_eq!((client.unconfirmed(), world.engines[1].receiving_bytes()), (0, 0));
    let (answering, asking) = joined(&mut world, &mut server, &mut client);
    client.send(Destination::Connection(asking), Class::Normal, None, b"still open").unwrap();
    world.run(20);
    server.sort_fresh();
    assert!(server.read(answering).is_some());
}

/// How an end goes.
#[derive(Clone, Copy, Debug)]
enum Exit {
    /// It has sent all.
    Finish,
    /// It sends no more and receives no more.
    Drop,
    /// Its port closes.
    Close,
}

fn leave(client: &mut Client, id: ConnectionId, how: Exit) {
    match how {
        Exit::Finish => client.shut_down(id, true, false).unwrap(),
        Exit::Drop => client.shut_down(id, true, true).unwrap(),
        Exit::Close => client.close(),
    }
}

#[test]
fn both_ends_may_go_at_once_in_every_way_and_nothing_is_left() {
    const EXITS: [Exit; 3] = [Exit::Finish, Exit::Drop, Exit::Close];
    for rough in [0.0, 0.2] {
        let mut world = World::met(rough);
        let ways = EXITS.into_iter().flat_map(|a| EXITS.map(|b| (a, b)));
        for ((first, second), apart) in ways.flat_map(|way| [0, 1, 3].map(|apart| (way, apart))) {
            let (mut server, mut client) = world.ports(4);
            let (answering, asking) = joined(&mut world, &mut server, &mut client);
            // What is on its way meets the end of its way.
            for port in [(&mut server, answering), (&mut client, asking)] {
                let sent = port.0.send(Destination::Connection(port.1), Class::Normal, None, &[7; 3_000]);
                assert!(sent.is_ok());
            }
            leave(&mut client, asking, first);
            world.run(apart);
            leave(&mut server, answering, second);
            for _ in 0..50 {
                world.run(100);
                if world.held(0)[..3] == [0; 3] && world.held(1)[..3] == [0; 3] {
                    break;
                }
            }
            let what = format!("{first:?}, {second:?}, {apart} steps apart, rough {rough}");
            assert_eq!((&world.held(0)[..3], &world.held(1)[..3]), (&[0; 3][..], &[0; 3][..]), "{what}");
            // Both finished: each has what the other sent, and its end.
            if let (Exit::Finish, Exit::Finish) = (first, second) {
                for (port, id) in [(&mut server, answering), (&mut client, asking)] {
                    port.sort_fresh();
                    assert!(port.read(id).is_some() && port.progress(id).unwrap().ended, "{what}");
                }
            }
            [server, client].iter_mut().for_each(Client::close);
            world.run(100);
        }
    }
}

#[test]
fn who_asks_a_node_that_has_died_is_told_when_it_is_given_up_and_at_once_from_then_on() {
    let mut world = World::met(0.0);
    let (server, mut client) = world.ports(4);
    let to = Destination::Port(server.address());
    world.engines.truncate(1);
    let mut cookies = vec![client.connect(to, WISH, Some(b"anybody?")).unwrap()];
    world.run(2);
    let asking = answers(&mut client, &mut cookies).remove(0).unwrap();
    assert_eq!(client.progress(asking).unwrap().over, None, "its node may still be silent");
    // The tolerance is half a second.
    world.run(100_000);
    client.sort_fresh();
    assert_eq!(client.progress(asking).unwrap().over, Some(Ended::NodeLost));
    assert_eq!((world.held(0), client.unconfirmed()), ([0; 7], 0));
    cookies.push(client.connect(to, WISH, None).unwrap());
    world.run(2);
    assert_eq!(answers(&mut client, &mut cookies), [Err(NotConnecting::NoNode)]);
}
