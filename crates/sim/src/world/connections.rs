//! The applications' connections: who asks whom, what each end does by its script, and what the oracle hears of it.

use super::World;
use crate::check::connections::{Identity, Ledger, Verdict, Way, content_id};
use crate::check::{PortKey, Target};
use crate::content;
use crate::coverage::Coverage;
use crate::prng::Prng;
use crate::queue::{TimeNs, US};
use crate::subject::{Connector, Held, To};
use crate::workload::script::{self, Script};
use crate::workload::{EAGER_BYTES, WorkloadOptions};
use polyrail::engine::client::connections::Request;
use polyrail::engine::command::Ended;
use polyrail_proto::id::{ConnectionId, PortAddress, SessionId};

/// Most messages that one end reads at one time.
const READ_MOST: usize = 16;
/// Who was not let send tries again after so long.
const BLOCKED_NS: TimeNs = 100 * US;

/// A question without an answer of the own node.
#[derive(Debug)]
struct Asked {
    number: usize,
    port: PortKey,
    cookie: u64,
    first: Option<usize>,
    last: bool,
}

/// An end as its application drives it.
#[derive(Debug)]
struct End {
    number: usize,
    port: PortKey,
    id: ConnectionId,
    asks: bool,
    class: u8,
    script: Script,
    heavy: bool,
    /// What is still to be answered: whether it is wanted.
    answer: Option<bool>,
    /// Its node has said that something may be read, and not all of it was.
    readable: bool,
    sent: usize,
    read: usize,
    next_send_ns: TimeNs,
    reads_from_ns: TimeNs,
    finished: bool,
    end_seen: bool,
    deaf_seen: bool,
    sizes: Prng,
}

/// The connections of one node's applications.
#[derive(Debug, Default)]
pub(super) struct Connections {
    asked: Vec<Asked>,
    ends: Vec<End>,
}

impl Connections {
    /// The node died, or leaves: nobody drives its ends any more.
    pub(super) fn clear(&mut self) {
        (self.asked, self.ends) = (Vec::new(), Vec::new());
    }

    fn drop_port(&mut self, port: PortKey) {
        self.asked.retain(|asked| asked.port != port);
        self.ends.retain(|end| end.port != port);
    }
}

/// What a look at an end led to.
enum Stepped {
    /// It goes on, at the latest then.
    On(Option<TimeNs>),
    /// Something was done: look again soon.
    Acted,
    /// Its application is done with it.
    Done,
    /// The node says that it is over.
    Over(Ended),
}

impl World {
    /// A port asks another for connections.
    pub(super) fn connect(&mut self, node: usize, count: u64, service: bool, local: bool) {
        let from = self.draw_port(node);
        let Some((to, target)) = self.draw_target(node, service, local) else { return };
        if self.listens(target) {
            (0..count).for_each(|_| self.connect_one(node, from, to));
        }
    }

    fn connect_one(&mut self, node: usize, from: usize, to: To) {
        let number = self.oracle.connections.next();
        let scripts = script::draw(&self.plan.workload, self.plan.seed, number);
        let state = &mut self.nodes[node];
        let class = self.plan.workload.class(&mut state.app.sizes);
        let mut sizes = Prng::for_component(self.plan.seed, "connection sizes", 2 * number as u64);
        let mut first = Vec::new();
        if scripts.with_first {
            let bytes = size(&self.plan.workload, &mut sizes, scripts.heavy).min(EAGER_BYTES as usize);
            content::fill(content_id(number, Way::There, 0), bytes, &mut first);
        }
        let last = scripts.with_first && scripts.asker.messages == 1 && scripts.asker.finishes_first;
        let port = state.app.ports[from].key;
        let Some(connector) = state.subject.as_mut().and_then(|subject| subject.connector(port.port)) else {
            return;
        };
        let with = scripts.with_first.then_some(&first[..]);
        let Some(cookie) = connector.connect(to, class, with, last) else { return };
        let service = match to {
            To::Service(service) => Some((service.kind, service.instance)),
            To::Port(_) | To::All(_) => None,
        };
        self.oracle.connections.on_asked(self.now_ns, port, class, service);
        self.coverage.add("connection", "asked for", 1);
        self.coverage.add("connection", "data with the question", u64::from(scripts.with_first));
        let first = scripts.with_first.then_some(first.len());
        state.app.connections.asked.push(Asked { number, port, cookie, first, last });
        self.note(|| format!("{port} asks {to:?} for connection {number}: {scripts:?}"));
    }

    /// Whether a target has begun to listen: a node that has not taken its turn refuses in the name of nobody.
    fn listens(&self, target: Target) -> bool {
        let Target::Port(key) = target else { return true };
        self.nodes[key.node].app.ports.iter().any(|port| port.key == key && port.listening)
    }

    /// Takes the answers of the own node, so that a connection is known before anybody hears of it.
    pub(super) fn take_answers(&mut self, node: usize) {
        for asked in std::mem::take(&mut self.nodes[node].app.connections.asked) {
            let Some(subject) = self.nodes[node].subject.as_mut() else { return };
            let Some(connector) = subject.connector(asked.port.port) else { continue };
            connector.take_in();
            match connector.answer(asked.cookie) {
                None => self.nodes[node].app.connections.asked.push(asked),
                Some(Ok((id, peer))) => self.on_connecting(node, &asked, id, peer),
                Some(Err(why)) => {
                    self.coverage.add("connection", format!("not asked for: {why:?}"), 1);
                    self.note(|| format!("connection {} can't be asked for: {why:?}", asked.number));
                    let verdict = self.oracle.connections.on_not_connecting(asked.number, why);
                    self.judge(verdict);
                }
            }
        }
    }

    fn on_connecting(&mut self, node: usize, asked: &Asked, id: ConnectionId, peer: PortAddress) {
        let &Asked { number, port, first, last, .. } = asked;
        let Some(of) = self.node_of_id(peer.node.0) else { return };
        let acceptor = self.key(of, peer.port.0);
        let identity = (node, port.life, id.session.0, id.end.connection_number());
        self.note(|| format!("connection {number} is {identity:?}, to {acceptor}"));
        let verdict = self.oracle.connections.on_connecting(number, identity, acceptor);
        self.judge(verdict);
        let mut end = self.new_end(number, port, id, true, None);
        if let Some(bytes) = first {
            self.oracle.connections.on_sent(number, Way::There, bytes);
            end.sent = 1;
            // The size of the first was drawn when it was sent.
            size(&self.plan.workload, &mut end.sizes, end.heavy);
        }
        if last {
            self.oracle.connections.on_finished(number, Way::There);
            end.finished = true;
        }
        self.nodes[node].app.connections.ends.push(end);
    }

    fn new_end(
        &self,
        number: usize,
        port: PortKey,
        id: ConnectionId,
        asks: bool,
        answer: Option<bool>,
    ) -> End {
        let scripts = script::draw(&self.plan.workload, self.plan.seed, number);
        let script = if asks { scripts.asker } else { scripts.acceptor };
        let stream = 2 * number as u64 + u64::from(!asks);
        End {
            number,
            port,
            id,
            asks,
            class: self.oracle.connections.class(number),
            script,
            heavy: scripts.heavy,
            answer,
            readable: false,
            sent: 0,
            read: 0,
            next_send_ns: self.now_ns,
            reads_from_ns: self.now_ns + script.sleeps_ns,
            finished: false,
            end_seen: false,
            deaf_seen: false,
            sizes: Prng::for_component(self.plan.seed, "connection sizes", stream),
        }
    }

    /// The connections of a port go on; when to look at them again.
    pub(super) fn poll_connections(&mut self, node: usize, index: usize) -> Option<TimeNs> {
        let key = self.nodes[node].app.ports[index].key;
        if let Some(connector) = self.connector(node, key) {
            connector.take_in();
        }
        while let Some(id) = self.connector(node, key).and_then(|connector| connector.next_readable()) {
            let mut ends = self.nodes[node].app.connections.ends.iter_mut();
            if let Some(end) = ends.find(|end| end.port == key && end.id == id) {
                end.readable = true;
            }
        }
        self.take_requests(node, index);
        let accepts_ns = self.nodes[node].app.ports[index].accepts_from_ns;
        let sleeps_ns = (accepts_ns > self.now_ns).then_some(accepts_ns);
        [self.step_ends(node, key), sleeps_ns].into_iter().flatten().min()
    }

    /// A port looks at what is wanted of it.
    fn take_requests(&mut self, node: usize, index: usize) {
        while self.nodes[node].app.ports[index].accepts_from_ns <= self.now_ns {
            let key = self.nodes[node].app.ports[index].key;
            let Some(subject) = self.nodes[node].subject.as_mut() else { break };
            let Some(connector) = subject.connector(key.port) else { break };
            let Some(request) = connector.request() else { break };
            let Some(identity) = self.identity(node, request.id) else {
                // The session is over, and so is what was wanted.
                if let Some(connector) = self.connector(node, key) {
                    connector.forget(request.id);
                }
                continue;
            };
            self.on_request(node, index, &request, identity);
        }
    }

    fn on_request(&mut self, node: usize, index: usize, request: &Request, identity: Identity) {
        let key = self.nodes[node].app.ports[index].key;
        let service = request.service.map(|service| (service.kind, service.instance));
        let (from, class) = (request.from.port.0, request.class as u8);
        let number = match self.oracle.connections.on_request(identity, key, from, class, service) {
            Ok(number) => number,
            Err(what) => return self.judge(Err(what)),
        };
        let scripts = script::draw(&self.plan.workload, self.plan.seed, number);
        self.nodes[node].app.ports[index].accepts_from_ns = self.now_ns + scripts.accepts_again_ns;
        let end = self.new_end(number, key, request.id, false, Some(!scripts.refuses));
        self.nodes[node].app.connections.ends.push(end);
    }

    /// What both sides call a connection that is wanted of `node`; `None`: its session is over.
    fn identity(&self, node: usize, id: ConnectionId) -> Option<Identity> {
        let (incarnation, SessionId(session)) = self.nodes[node].subject.as_ref()?.far_session(id.session)?;
        let (asker, life) = self.names.life(incarnation)?;
        Some((asker, life, session, id.end.connection_number()))
    }

    pub(super) fn connector(&mut self, node: usize, port: PortKey) -> Option<&mut dyn Connector> {
        self.nodes[node].subject.as_mut()?.connector(port.port)
    }

    /// Every end of port `key` does what it can; when to look again.
    fn step_ends(&mut self, node: usize, key: PortKey) -> Option<TimeNs> {
        let mut again_ns: Option<TimeNs> = None;
        let mut ends = std::mem::take(&mut self.nodes[node].app.connections.ends);
        ends.retain_mut(|end| {
            if end.port != key {
                return true;
            }
            let now_ns = self.now_ns;
            let at_ns = match self.step_end(node, end) {
                Stepped::Done => return false,
                Stepped::Over(why) => {
                    self.on_over(node, end, why);
                    return false;
                }
                Stepped::Acted => Some(now_ns + US),
                Stepped::On(at_ns) => at_ns,
            };
            again_ns = [again_ns, at_ns].into_iter().flatten().min();
            true
        });
        self.nodes[node].app.connections.ends = ends;
        again_ns
    }

    fn step_end(&mut self, node: usize, end: &mut End) -> Stepped {
        let Some(subject) = self.nodes[node].subject.as_mut() else { return Stepped::Done };
        let Some(connector) = subject.connector(end.port.port) else { return Stepped::Done };
        let mut step = Step {
            connector,
            ledger: &mut self.oracle.connections,
            coverage: &mut self.coverage,
            workload: &self.plan.workload,
            now_ns: self.now_ns,
            objections: Vec::new(),
        };
        let stepped = step.run(end);
        for what in step.objections {
            self.oracle.violation("I13", self.now_ns, what);
        }
        stepped
    }

    fn on_over(&mut self, node: usize, end: &End, why: Ended) {
        let peer = self.oracle.connections.peer(end.number, end.asks);
        // A session that never came up ends what began on it.
        let early = |peer: usize| !self.met.contains(&(node, peer));
        let excused = peer.is_some_and(|p| p.node != node && (early(p.node) || self.excused(node, p.node)));
        let (number, asks) = (end.number, end.asks);
        self.note(|| format!("connection {number} is over for {}: {why:?}", end.port));
        let what = match why {
            Ended::Backlog | Ended::NobodyListens | Ended::NotAllowed => format!("refused: {why:?}"),
            Ended::NodeLost => "over by a node that was lost".to_owned(),
            _ => format!("over: {why:?}"),
        };
        self.coverage.add("connection", what, 1);
        let verdict = self.oracle.connections.on_over(self.now_ns, number, asks, why, excused);
        self.judge(verdict);
        let id = end.id;
        if let Some(connector) = self.connector(node, end.port) {
            connector.forget(id);
        }
    }

    /// A port closes in good order, and with it its connections.
    pub(super) fn close_connections(&mut self, node: usize, port: PortKey) {
        self.nodes[node].app.connections.drop_port(port);
        self.oracle.connections.on_port_closed(port);
    }

    fn judge(&mut self, verdict: Verdict) {
        if let Err(what) = verdict {
            self.oracle.violation("I13", self.now_ns, what);
        }
    }

    /// Whether all scripts have come to their end, and no engine holds anything of a connection.
    pub(super) fn connections_settled(&self) -> bool {
        self.nodes.iter().all(|node| {
            let Connections { asked, ends } = &node.app.connections;
            let held = node.subject.as_ref().map_or(Held::default(), |subject| subject.held());
            asked.is_empty() && ends.is_empty() && held == Held::default()
        })
    }

    /// I13: in the end every connection has come to its end.
    pub(super) fn check_connections_at_the_end(&mut self) {
        let mut found = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let Connections { asked, ends } = &node.app.connections;
            for asked in asked {
                found.push(self.oracle.connections.about(asked.number, "got no answer of its own node"));
            }
            for end in ends {
                let End { asks, answer, sent, read, finished, end_seen, deaf_seen, .. } = end;
                let what = format!(
                    "has not come to its end (asks {asks}, to be answered {answer:?}, sent {sent} of {}, read {read}, \
                     finished {finished}, end seen {end_seen}, deaf {deaf_seen})",
                    end.script.messages
                );
                found.push(self.oracle.connections.about(end.number, &what));
            }
            let held = node.subject.as_ref().map_or(Held::default(), |subject| subject.held());
            if ends.is_empty() && held != Held::default() {
                found.push(format!("node {index} holds {held:?} although all connections are over"));
            }
        }
        for what in found {
            self.oracle.violation("I13", self.now_ns, what);
        }
    }
}

/// Bytes of the next message of a connection.
fn size(workload: &WorkloadOptions, sizes: &mut Prng, heavy: bool) -> usize {
    if heavy {
        sizes.log_uniform(8_192, 65_535).min(workload.connect_bytes_max) as usize
    } else {
        workload.bytes(sizes)
    }
}

/// One look at an end.
struct Step<'a> {
    connector: &'a mut dyn Connector,
    ledger: &'a mut Ledger,
    coverage: &'a mut Coverage,
    workload: &'a WorkloadOptions,
    now_ns: TimeNs,
    objections: Vec<String>,
}

impl Step<'_> {
    fn judge(&mut self, verdict: Verdict) {
        self.objections.extend(verdict.err());
    }

    fn run(&mut self, end: &mut End) -> Stepped {
        if let Some(wanted) = end.answer {
            return self.answer(end, wanted);
        }
        let Some(before) = self.connector.progress(end.id) else {
            self.judge(Err(self.ledger.about(end.number, "was forgotten while its application held it")));
            return Stepped::Done;
        };
        // Nobody looks at a connection of which nothing was said.
        let awake = end.reads_from_ns <= self.now_ns && end.readable;
        let mut acted = awake && self.read(end);
        let unread = self.connector.progress(end.id).is_some_and(|now| now.unread);
        if let Some(why) = before.over.filter(|_| awake && !unread) {
            return Stepped::Over(why);
        }
        if before.deaf && !std::mem::replace(&mut end.deaf_seen, true) {
            let verdict = self.ledger.on_deaf(end.number, end.asks);
            self.judge(verdict);
            self.coverage.add("connection", "the other side gave it up", 1);
        }
        end.readable &= unread || end.reads_from_ns > self.now_ns;
        if awake && before.ended && !unread && !std::mem::replace(&mut end.end_seen, true) {
            let verdict = self.ledger.on_end(end.number, Way::of_reader(end.asks));
            self.judge(verdict);
            self.coverage.add("connection", "half closed", u64::from(!end.finished));
        }
        acted |= self.send(end);
        if end.script.drops_after.is_some_and(|most| end.sent + end.read >= most) {
            return self.give_up(end, true);
        }
        self.finish(end);
        if end.finished && end.end_seen {
            return self.give_up(end, false);
        }
        if acted {
            return Stepped::Acted;
        }
        let waits = [(end.reads_from_ns, true), (end.next_send_ns, end.sent < end.script.messages)];
        let next = waits.into_iter().filter(|(at_ns, counts)| *counts && *at_ns > self.now_ns);
        Stepped::On(next.map(|(at_ns, _)| at_ns).min())
    }

    fn answer(&mut self, end: &mut End, wanted: bool) -> Stepped {
        let told =
            if wanted { self.connector.accept(end.id) } else { self.connector.shut_down(end.id, true, true) };
        if !told {
            return Stepped::Acted;
        }
        end.answer = None;
        self.ledger.on_answered(self.now_ns, end.number, wanted);
        if wanted {
            self.coverage.add("connection", "accepted", 1);
            return Stepped::Acted;
        }
        self.connector.forget(end.id);
        Stepped::Done
    }

    /// Reads what is here, not too much at once.
    fn read(&mut self, end: &mut End) -> bool {
        let mut any = false;
        for _ in 0..READ_MOST {
            let unread = self.connector.progress(end.id).is_some_and(|now| now.unread);
            if !unread {
                break;
            }
            // An offer was given its memory, or there is none now: the message comes later.
            let Some(bytes) = self.connector.read(end.id) else { break };
            any = true;
            end.read += 1;
            let verdict = self.ledger.on_message(end.number, Way::of_reader(end.asks), &bytes);
            self.judge(verdict);
        }
        any
    }

    fn send(&mut self, end: &mut End) -> bool {
        let mut any = false;
        let mut bytes = Vec::new();
        while end.sent < end.script.messages
            && !end.finished
            && !end.deaf_seen
            && end.next_send_ns <= self.now_ns
        {
            let way = Way::of_sender(end.asks);
            let mut sizes = end.sizes.clone();
            content::fill(
                content_id(end.number, way, end.sent),
                size(self.workload, &mut sizes, end.heavy),
                &mut bytes,
            );
            if !self.connector.send_on(end.id, end.class, &bytes) {
                self.coverage.add("connection", "sends blocked", 1);
                // All that wait try at the same moments, or many of them would keep their node turning.
                end.next_send_ns = (self.now_ns / BLOCKED_NS + 1) * BLOCKED_NS;
                break;
            }
            end.sizes = sizes;
            end.sent += 1;
            any = true;
            end.next_send_ns = self.now_ns + end.script.gap_ns;
            self.ledger.on_sent(end.number, way, bytes.len());
        }
        any
    }

    fn finish(&mut self, end: &mut End) {
        let sent_all = end.sent == end.script.messages && (end.script.finishes_first || end.end_seen);
        if end.finished || !(sent_all || end.deaf_seen) {
            return;
        }
        end.finished = self.connector.shut_down(end.id, true, false);
        if end.finished {
            self.ledger.on_finished(end.number, Way::of_sender(end.asks));
        }
    }

    /// The application has had enough: of a connection that goes on, or of one whose halves are both done.
    fn give_up(&mut self, end: &mut End, early: bool) -> Stepped {
        if early || end.script.says_deaf {
            if !self.connector.shut_down(end.id, true, true) {
                return Stepped::Acted;
            }
            self.ledger.on_dropped(end.number, end.asks);
        }
        self.coverage.add("connection", if early { "given up" } else { "complete" }, 1);
        self.connector.forget(end.id);
        Stepped::Done
    }
}
