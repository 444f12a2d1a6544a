//! For tests: two clients of one engine, joined by a stream.

use super::client::connections::Wish;
use super::client::{Client, Exchange};
use super::{Budget, Engine, Sizes};
use polyrail_bearer::MemoryHub;
use polyrail_proto::Config;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{ConnectionId, Incarnation, NodeId};
use polyrail_proto::node::Destination;

/// The first client asked for the connection, the second has accepted.
pub(super) struct Joined {
    pub now_ns: u64,
    pub engine: Engine,
    pub clients: [Client; 2],
    /// What each calls the connection.
    pub ids: [ConnectionId; 2],
}

impl Joined {
    pub fn with(sizes: Sizes) -> Joined {
        let mut engine = Engine::new(1, Config::new(NodeId(1), Incarnation(1)));
        engine.add_bearer(1, Box::new(MemoryHub::new().bearer(1)));
        engine.add_loopback(1, Box::new(MemoryHub::new().bearer(0)));
        let clients = [(); 2].map(|()| engine.open_client(sizes, Exchange::default()).unwrap());
        let nobody = ConnectionId { session: Default::default(), end: Default::default() };
        let mut joined = Joined { now_ns: 1_000_000, engine, clients, ids: [nobody; 2] };
        joined.clients[1].listen(1).unwrap();
        joined.turn(Budget::USUAL);
        let to = Destination::Port(joined.clients[1].address());
        let wish = Wish { class: Class::Normal, stream: true, last: false };
        let cookie = joined.clients[0].connect(to, wish, None).unwrap();
        joined.turn(Budget::USUAL);
        joined.clients.iter_mut().for_each(Client::sort_fresh);
        let (asking, _) = joined.clients[0].take_answer(cookie).unwrap().unwrap();
        let answering = joined.clients[1].take_request().unwrap().id;
        joined.clients[1].accept_connection(answering).unwrap();
        joined.ids = [asking, answering];
        joined.turn(Budget::USUAL);
        joined
    }

    /// As many turns as whatever was handed in can need.
    pub fn turn(&mut self, budget: Budget) {
        for _ in 0..20 {
            self.now_ns += 10_000;
            self.engine.turn(self.now_ns, budget);
        }
    }
}
