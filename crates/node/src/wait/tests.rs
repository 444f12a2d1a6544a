//! Nothing that is to be done waits for something else to happen. Others come at the worst moments, without any
//! thread: while a bearer is being read the engine is taken, and the last question before a sleep is asked in the seat.

use super::driving::CATCH_UPS_MAX;
use super::*;
use crate::engine::{Client, WhyClosed, client::Exchange};
use polyrail_bearer::{
    Address, Bearer, Capabilities, Descriptors, MemoryBearer, MemoryHub, Network, Notice, RxBatch,
    SendOutcome, ShmBearer, Transmit,
};
use polyrail_proto::Config;
use polyrail_proto::address::{Scope, ServiceRange};
use polyrail_proto::flow::Class;
use polyrail_proto::id::{Incarnation, NodeId};
use polyrail_proto::node::Destination;
use polyrail_shm::Sizes;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Weak, mpsc};

/// No wait takes so long, unless something was forgotten.
const PATIENCE_NS: u64 = 10_000_000_000;

/// What a test does to the bearer below.
#[derive(Default)]
struct Hand {
    /// It has no room.
    full: AtomicBool,
    /// Its further sockets.
    sockets: Mutex<Vec<EventFd>>,
    /// So many times somebody wants the engine while it reads.
    callers: AtomicU32,
    /// So many times somebody wants the seat meanwhile.
    seekers: AtomicU32,
    drive: OnceLock<Weak<Drive>>,
}

/// One of the two bearers of a node, with troubles: reading from outside, and sending on the way to itself.
struct Troubled {
    bearer: MemoryBearer,
    hand: Arc<Hand>,
    outside: bool,
}

impl Bearer for Troubled {
    fn name(&self) -> &str {
        self.bearer.name()
    }
    fn device(&self) -> Option<&str> {
        None
    }
    fn local(&self) -> Network {
        self.bearer.local()
    }
    fn capabilities(&self) -> &Capabilities {
        self.bearer.capabilities()
    }
    fn send(&mut self, transmit: &Transmit<'_>) -> SendOutcome {
        if self.is_full() { SendOutcome::WouldBlock } else { self.bearer.send(transmit) }
    }
    fn broadcast(&mut self, bytes: &[u8]) -> SendOutcome {
        self.bearer.broadcast(bytes)
    }
    fn recv(&mut self, batch: &mut RxBatch, thorough: bool) -> io::Result<usize> {
        let one_of = |left: &AtomicU32| {
            let one = |left: u32| left.checked_sub(1);
            self.outside && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one).is_ok()
        };
        let drive = || self.hand.drive.get().and_then(Weak::upgrade).unwrap();
        if one_of(&self.hand.callers) {
            assert!(drive().inline().is_none(), "the engine is taken");
        }
        if one_of(&self.hand.seekers) {
            assert_eq!(drive().poll(Sleeper::Port, None, &mut || false, &|| ()), Slept::NoSeat);
        }
        self.bearer.recv(batch, thorough)
    }
    fn recv_beacons(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        self.bearer.recv_beacons(batch)
    }
    fn notices(&mut self, out: &mut Vec<Notice>) {
        self.bearer.notices(out);
    }
    fn writable(&mut self) -> bool {
        !self.is_full()
    }
    fn backlog_bytes(&mut self) -> u32 {
        0
    }
    fn set_send_buffer(&mut self, _: u32) {}
    fn fds(&self) -> Descriptors {
        let mut fds = self.bearer.fds();
        if !self.outside {
            fds.data.extend(self.hand.sockets.lock().unwrap().iter().map(AsRawFd::as_raw_fd));
        }
        fds
    }
    fn fds_version(&self) -> u32 {
        if self.outside { 0 } else { self.hand.sockets.lock().unwrap().len() as u32 }
    }
}

impl Troubled {
    fn is_full(&self) -> bool {
        !self.outside && self.hand.full.load(Ordering::Relaxed)
    }
}

/// A node with one port, and nothing to do.
struct World {
    drive: Arc<Drive>,
    hand: Arc<Hand>,
    client: Client,
    /// The medium of the node's only bearer, and another seat at it.
    hub: MemoryHub,
    stranger: MemoryBearer,
}

impl World {
    fn new() -> World {
        let mut config = Config::new(NodeId(1), Incarnation(1));
        config.discovery = false;
        let mut engine = Engine::new(now_ns(), config);
        let (hub, hand) = (MemoryHub::new(), Arc::new(Hand::default()));
        let troubled =
            |bearer, outside| Box::new(Troubled { bearer, hand: hand.clone(), outside }) as Box<dyn Bearer>;
        engine.add_bearer(now_ns(), troubled(hub.bearer(0), true));
        engine.add_loopback(now_ns(), troubled(MemoryHub::new().bearer(0), false));
        let sizes = Sizes { sq_entries: 64, cq_entries: 64, tx_bytes: 1 << 20, rx_bytes: 1 << 20 };
        let client = engine.open_client(sizes, Exchange::default()).unwrap();
        let drive = Arc::new(Drive::new(engine).unwrap());
        hand.drive.set(Arc::downgrade(&drive)).unwrap();
        let mut world = World { drive, hand, client, stranger: hub.bearer(1), hub };
        // A first message to itself opens its way.
        world.send();
        world.settle();
        while world.client.poll().is_some() {}
        world.settle();
        world
    }

    /// Drives until nothing is left to do, now or later.
    fn settle(&self) {
        let until = now_ns() + PATIENCE_NS;
        let busy = |work: Work| work.done > 0 || work.blocked || work.next_deadline_ns.is_some();
        while self.drive.inline().is_none_or(busy) {
            assert!(now_ns() < until, "there is always something to do");
        }
    }

    /// Hands in a message to the port itself.
    fn send(&mut self) {
        let to = Destination::Port(self.client.address());
        self.client.send(to, Class::Normal, None, b"note").unwrap();
    }

    /// Asks for a binding: the answer comes at once, and nothing is left to do.
    fn bind(&mut self) {
        self.client.bind(ServiceRange::new(1000, 1, 1), Scope::Node).unwrap();
    }

    /// Something that will be tried again and again.
    fn connect(&self) {
        self.drive.engine().connect(now_ns(), Address::Memory(7));
    }

    /// Something comes in from outside.
    fn arrive(&mut self) {
        self.arrive_at(0);
    }

    /// The same for another seat.
    fn arrive_at(&mut self, seat: u32) {
        self.arrive_in(seat, b"hello", 1);
    }

    /// Several datagrams with these bytes.
    fn arrive_in(&mut self, seat: u32, each: &[u8], count: usize) {
        let bytes = each.repeat(count);
        let transmit = Transmit {
            to: Address::Memory(seat),
            segment_bytes: each.len(),
            bytes: bytes.len(),
            slices: &[std::io::IoSlice::new(&bytes)],
            express: false,
            lend: false,
            dscp: 0,
        };
        assert!(matches!(self.stranger.send(&transmit), SendOutcome::Sent));
    }

    fn turns(&self) -> u64 {
        self.drive.turns.load(Ordering::Relaxed)
    }

    /// Sleeps in the seat until something happens; `cause` is what others do in the last moment before.
    #[track_caller]
    fn sleep(&mut self, name: &str, mut cause: impl FnMut(&mut World)) {
        let (drive, until) = (self.drive.clone(), now_ns() + PATIENCE_NS);
        self.client.pair.client_bell.prepare();
        let slept = drive.poll(
            Sleeper::Port,
            Some(until),
            &mut || {
                cause(self);
                false
            },
            &|| (),
        );
        self.client.pair.client_bell.cancel();
        assert_eq!(slept, Slept::Over);
        assert!(now_ns() < until, "{name}: slept all the same");
    }

    /// Whether a sleep in the seat lasts until its time is over. (A stopped and continued process ends one early.)
    fn sleeps_on(&self) -> bool {
        (0..100).any(|_| {
            let until = now_ns() + 1_000_000;
            self.drive.poll(Sleeper::Other, Some(until), &mut || false, &|| ()) == Slept::Over
                && now_ns() >= until
        })
    }

    /// A program's own way of sleeping on the engine's descriptor.
    fn program(&self) -> Program {
        let epoll = Epoll::new().unwrap();
        epoll.add(self.drive.fd().unwrap(), 0, Interest::READ).unwrap();
        Program(epoll)
    }
}

struct Program(Epoll);

impl Program {
    /// Whether it would not sleep.
    fn is_awake(&self) -> bool {
        self.0.wait(&mut Events::new(1), Some(0)).unwrap() > 0
    }

    #[track_caller]
    fn sleep(&self, name: &str) {
        let until = now_ns() + PATIENCE_NS;
        while self.0.wait(&mut Events::new(1), Some(PATIENCE_NS)).unwrap() == 0 {
            assert!(now_ns() < until, "{name}: slept all the same");
        }
    }
}

fn drive(world: &World) -> Work {
    world.drive.inline().expect("nobody else drives")
}

#[test]
fn whatever_happens_ends_the_sleep_in_the_seat() {
    type Cause<'a> = (&'a str, &'a dyn Fn(&mut World), &'a dyn Fn(&mut World));
    let nothing = |_: &mut World| {};
    let causes: [Cause<'_>; 9] = [
        ("a call", &nothing, &|world| world.drive.wake()),
        ("something that came in", &nothing, &World::arrive),
        ("an answer for the port that sleeps", &nothing, &|world| {
            world.bind();
            assert!(drive(world).rang);
        }),
        ("an earlier deadline", &nothing, &|world| {
            world.connect();
            drive(world);
        }),
        ("a new socket", &nothing, &|world| {
            world.hand.sockets.lock().unwrap().push(EventFd::new().unwrap());
            drive(world);
        }),
        (
            "what came to a new socket",
            &|world| world.hand.sockets.lock().unwrap().push(EventFd::new().unwrap()),
            &|world| {
                world.hand.sockets.lock().unwrap()[0].signal();
            },
        ),
        ("a bearer that has no room", &nothing, &|world| {
            world.hand.full.store(true, Ordering::Relaxed);
            world.send();
            assert!(drive(world).blocked);
        }),
        (
            "a bearer that has room again",
            &|world| {
                world.hand.full.store(true, Ordering::Relaxed);
                world.send();
                assert!(drive(world).blocked);
            },
            &nothing,
        ),
        ("a note", &nothing, &|world| {
            world.bind();
            let engine = world.drive.lock_to_drive();
            assert!(world.drive.inline().is_none());
            drop(engine);
        }),
    ];
    for (name, before, cause) in causes {
        let mut world = World::new();
        before(&mut world);
        world.sleep(name, |world| cause(world));
        assert_eq!(world.client.backlog(), 0, "{name}: nobody looked after it");
    }
}

#[test]
fn what_was_done_in_the_last_moment_needs_no_sleep() {
    let world = World::new();
    let until = now_ns() + PATIENCE_NS;
    assert_eq!(world.drive.poll(Sleeper::Port, Some(until), &mut || true, &|| ()), Slept::Done);
    assert!(now_ns() < until);
}

#[test]
fn what_ended_one_sleep_does_not_end_the_next() {
    let mut world = World::new();
    world.sleep("a call", |world| world.drive.wake());
    assert!(world.sleeps_on());
    // Far enough away to be slept for.
    world.drive.set_timer_by(now_ns(), now_ns() + 1_000_000);
    world.sleep("a timer", |_| {});
    assert!(world.sleeps_on());
}

#[test]
fn the_timer_is_left_at_an_earlier_moment_unless_that_is_over() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let (world, now) = (World::new(), now_ns());
    let set = |now_ns, at_ns| {
        world.drive.set_timer_by(now_ns, at_ns);
        world.drive.timer_ns.load(Ordering::Relaxed) - now
    };
    assert_eq!(set(now, now + 2 * HOUR_NS), 2 * HOUR_NS);
    assert_eq!(set(now, now + 3 * HOUR_NS), 2 * HOUR_NS);
    assert_eq!(set(now, u64::MAX), 2 * HOUR_NS);
    assert_eq!(set(now, now + HOUR_NS), HOUR_NS);
    assert_eq!(set(now + 2 * HOUR_NS, now + 3 * HOUR_NS), 3 * HOUR_NS);
}

#[test]
fn who_is_about_to_wake_by_the_timer_is_woken_though_another_deadline_comes() {
    let (world, now) = (World::new(), now_ns());
    world.drive.set_timer_by(now, now + 1);
    world.drive.armed_ns.store(u64::MAX, Ordering::Relaxed);
    let work = Work { next_deadline_ns: Some(now + PATIENCE_NS), ..Work::default() };
    world.drive.arm(&world.drive.lock_to_drive(), work, now + 2);
    let slept = world.drive.poll(Sleeper::Port, Some(now + PATIENCE_NS / 2), &mut || false, &|| ());
    assert_eq!(slept, Slept::Over);
    assert!(now_ns() < now + PATIENCE_NS / 2, "it slept on");
}

#[test]
fn a_sleep_ends_in_time_whatever_the_one_before_waited_for() {
    for before_ns in [0, 1_000_000, 3_600_000_000_000] {
        let (tell, told) = mpsc::channel();
        let own = World::new().drive;
        std::thread::spawn(move || {
            let sleep = |until, cause: &mut dyn FnMut()| {
                let done = &mut || {
                    cause();
                    false
                };
                assert_eq!(own.poll(Sleeper::Other, Some(until), done, &|| ()), Slept::Over);
            };
            sleep(now_ns() + before_ns, &mut || own.wake());
            let (until, mut sleeps) = (now_ns() + 2_000_000, 0);
            while sleeps == 0 || now_ns() < until {
                sleep(until, &mut || ());
                sleeps += 1;
            }
            let _ = tell.send(sleeps);
        });
        let sleeps = told.recv_timeout(Duration::from_nanos(PATIENCE_NS)).expect("it sleeps on");
        // One by the timer of before, one by its own; a stopped and continued process ends a few more.
        assert!(sleeps < 20, "{sleeps} sleeps: it is kept awake");
    }
}

#[test]
fn what_comes_to_a_socket_that_was_silent_for_long_ends_the_sleep_and_is_read() {
    let mut world = World::new();
    world.hand.sockets.lock().unwrap().push(EventFd::new().unwrap());
    let inbox = world.drive.engine().fds().next().unwrap().1.data[0];
    let unread = Program(Epoll::new().unwrap());
    unread.0.add(inbox, 0, Interest::READ).unwrap();
    let is_near = |world: &World| world.drive.data().near(&[]).any(|(_, fd, _)| fd == inbox);
    let mut sleeps = 0;
    while is_near(&world) {
        world.sleep("what came to another socket", |world| world.hand.sockets.lock().unwrap()[0].signal());
        world.hand.sockets.lock().unwrap()[0].clear();
        sleeps += 1;
        assert!(sleeps < 1_000, "it is never far");
    }
    world.sleep("what came to a far socket", |world| {
        world.arrive();
        assert!(unread.is_awake());
    });
    assert!(!unread.is_awake(), "it was not read");
    assert!(world.sleeps_on());
    assert!(is_near(&world), "it has ended a sleep");
}

/// Rests in the seat for so long; what the look behind it found, and how long it took.
fn rest(world: &World, rest_ns: u64) -> (bool, Sleep, u64) {
    let mut sleep = Sleep::default();
    world.drive.prepare(&world.drive.lock_to_drive(), &mut sleep, true, Work::default());
    let before_ns = now_ns();
    let rare = world.drive.rest_and_look(&mut sleep, rest_ns);
    (rare, sleep, now_ns() - before_ns)
}

#[test]
fn what_comes_in_a_rest_waits_for_its_end_and_only_who_has_something_is_read_then() {
    const REST_NS: u64 = 1_000_000;
    let mut world = World::new();
    world.arrive();
    let (rare, sleep, took_ns) = rest(&world, REST_NS);
    assert!(!rare && took_ns >= REST_NS);
    assert_eq!(sleep.ready.len(), 1);
    assert!(world.drive.lock_to_drive().rested(now_ns(), &sleep.ready).done > 0);
    world.arrive();
    assert_eq!(
        world.drive.lock_to_drive().rested(now_ns(), &[]).done,
        0,
        "who was not seen ready is not looked at"
    );
}

#[test]
fn a_call_ends_a_rest_and_neither_deadlines_nor_room_make_anybody_call() {
    let world = World::new();
    world.drive.wake();
    let (rare, _, took_ns) = rest(&world, PATIENCE_NS);
    assert!(rare && took_ns < PATIENCE_NS);
    world.hand.full.store(true, Ordering::Relaxed);
    let due = Work { blocked: true, next_deadline_ns: Some(1), ..Work::default() };
    world.drive.arm(&world.drive.lock_to_drive(), due, now_ns());
    assert_eq!(world.drive.woken.load(Ordering::Relaxed), 0);
    let (rare, _, took_ns) = rest(&world, 1);
    assert!(!rare, "what called is over after {took_ns} ns");
}

#[test]
fn a_bearer_that_is_opened_ends_sleeps_and_one_that_is_closed_leaves_nothing() {
    for joined in [false, true] {
        let mut world = World::new();
        let program = joined.then(|| world.program());
        let closed = |engine: &mut Engine| engine.close_bearer(now_ns(), 0, &WhyClosed::InterfaceRemoved);
        let gone = world.drive.change_bearers(closed).expect("it is open");
        let inbox = gone.fds().data[0];
        let has_it = |world: &World| world.drive.data().near(&[]).any(|(_, fd, _)| fd == inbox);
        assert!(!has_it(&world), "nobody sleeps by it any more, though it is not closed yet");
        drop(gone);
        world.settle();
        assert!(world.sleeps_on());
        assert!(world.drive.engine().attachments().is_empty(), "what is left is no interface's");

        let bearer = Box::new(world.hub.bearer(2));
        let opened = world.drive.change_bearers(|engine| engine.open_bearer(now_ns(), bearer));
        assert_eq!(opened, Some(2), "the number of the one before rests");
        world.settle();
        assert!(world.sleeps_on());
        match &program {
            Some(program) => {
                world.arrive_at(2);
                program.sleep("what came by the new bearer");
            }
            None => world.sleep("what came by the new bearer", |world| world.arrive_at(2)),
        }
        let twice =
            world.drive.change_bearers(|engine| engine.close_bearer(now_ns(), 0, &WhyClosed::NotChosen));
        assert!(twice.is_none() && world.drive.engine().poll_event().is_some());
    }
}

#[test]
fn what_comes_by_loopback_is_no_packet_and_three_are_many() {
    let mut world = World::new();
    let is_sparse = |world: &World| world.drive.passing().is_sparse(now_ns());
    assert!(is_sparse(&world), "loopback does not count");
    for (count, sparse) in [(2, true), (3, false)] {
        world.arrive_in(0, &[0; 1_400], count);
        world.settle();
        assert_eq!(is_sparse(&world), sparse, "{count} packets");
    }
}

#[test]
fn who_finds_the_engine_taken_is_looked_after_by_whoever_has_it() {
    let mut world = World::new();
    let own = world.drive.clone();
    let engine = own.engine();
    world.bind();
    assert!(world.drive.inline().is_none());
    assert_eq!(world.client.backlog(), 1);
    drop(engine);
    assert_eq!(world.client.backlog(), 0);

    let turns = world.turns();
    world.hand.callers.store(3, Ordering::Relaxed);
    drive(&world);
    assert_eq!(world.turns() - turns, 4, "one of its own, and one for each of them");
    drive(&world);
    assert_eq!(world.turns() - turns, 5);
}

#[test]
fn who_waits_for_the_engine_has_it_before_whoever_drives_next() {
    let world = World::new();
    let until = now_ns() + PATIENCE_NS;
    std::thread::scope(|scope| {
        let engine = world.drive.engine();
        scope.spawn(|| drop(world.drive.engine()));
        while world.drive.askers.load(Ordering::Relaxed) == 0 || world.drive.queue.try_lock().is_ok() {
            assert!(now_ns() < until, "it does not ask");
            std::thread::yield_now();
        }
        let drivers = [Sleeper::Port, Sleeper::Other].map(|who| {
            let world = &world;
            scope.spawn(move || {
                match who {
                    Sleeper::Port => drop(world.drive.inline()),
                    Sleeper::Other => drop(world.drive.poll(who, Some(now_ns()), &mut || true, &|| ())),
                }
                assert_eq!(world.drive.askers.load(Ordering::Relaxed), 0, "it drove before");
            })
        });
        std::thread::sleep(Duration::from_millis(5));
        drop(engine);
        drivers.into_iter().for_each(|driver| driver.join().unwrap());
    });
}

#[test]
fn who_comes_too_often_wakes_the_one_that_sleeps() {
    let world = World::new();
    let program = world.program();
    drive(&world);
    assert!(!program.is_awake());
    let turns = world.turns();
    world.hand.callers.store(u32::MAX, Ordering::Relaxed);
    drive(&world);
    assert_eq!(world.turns() - turns, 1 + u64::from(CATCH_UPS_MAX));
    assert!(program.is_awake());
}

#[test]
fn a_program_that_sleeps_on_the_descriptor_is_woken_by_whatever_happens() {
    let mut world = World::new();
    let program = world.program();
    program.sleep("what happened before");
    let rests = |world: &World| {
        world.settle();
        assert!(!program.is_awake(), "there is nothing to do");
    };
    rests(&world);
    world.arrive();
    program.sleep("something that came in");
    rests(&world);
    world.drive.wake();
    program.sleep("a call");
    rests(&world);
    world.hand.sockets.lock().unwrap().push(EventFd::new().unwrap());
    rests(&world);
    world.hand.sockets.lock().unwrap()[0].signal();
    program.sleep("what came to a new socket");
    world.hand.sockets.lock().unwrap()[0].clear();
    rests(&world);
    world.hand.full.store(true, Ordering::Relaxed);
    world.send();
    assert!(drive(&world).blocked);
    program.sleep("a bearer that has no room");
    world.hand.full.store(false, Ordering::Relaxed);
    rests(&world);
    world.connect();
    drive(&world);
    program.sleep("a deadline");
}

#[test]
fn what_comes_by_shared_memory_ends_sleeps_that_the_kernel_knows_nothing_of() {
    let world = World::new();
    let machine = u64::from(std::process::id()) << 8 | 2;
    let opened = Box::new(ShmBearer::open(machine).unwrap());
    world.drive.change_bearers(|engine| engine.open_bearer(now_ns(), opened)).unwrap();
    let (mut other, to) = (ShmBearer::open(machine).unwrap(), world.drive.engine().seat().unwrap());
    let mut say = || {
        let (slices, segment_bytes, bytes) = ([std::io::IoSlice::new(b"hello")], 5, 5);
        let (express, lend, dscp) = (false, false, 0);
        other.send(&Transmit { to, segment_bytes, bytes, slices: &slices, express, lend, dscp });
    };
    // It is let in by who looks everywhere; what is due soon after is over then.
    say();
    std::thread::sleep(Duration::from_millis(2));
    world.drive.poll(Sleeper::Port, Some(now_ns() + PATIENCE_NS), &mut || false, &|| ());
    for _ in 0..3 {
        let began_ns = now_ns();
        let mut last_moment = || {
            say();
            false
        };
        world.drive.poll(Sleeper::Port, Some(began_ns + PATIENCE_NS), &mut last_moment, &|| ());
        assert!(now_ns() - began_ns < PATIENCE_NS / 2, "whoever polls slept all the same");
        world.settle();
    }
    let program = world.program();
    program.sleep("it may have to drive first");
    for _ in 0..3 {
        world.settle();
        assert!(!program.is_awake(), "there is nothing to do");
        say();
        program.sleep("what came by shared memory");
    }
}

#[test]
fn a_program_is_woken_at_the_deadline_that_another_thread_has_left() {
    for asleep in [false, true] {
        let world = World::new();
        let program = world.program();
        drive(&world);
        if !asleep {
            world.connect();
        }
        let until = Some(now_ns() + PATIENCE_NS);
        let last_moment = &mut || {
            if asleep {
                world.connect();
                world.drive.wake();
            }
            !asleep
        };
        world.drive.poll(Sleeper::Port, until, last_moment, &|| ());
        program.sleep("a deadline");
    }
}

#[test]
fn the_helper_ends_its_sleep_when_it_is_to_stop() {
    let world = World::new();
    let (tell, told) = mpsc::channel();
    let own = world.drive.clone();
    std::thread::spawn(move || {
        own.help(0);
        let _ = tell.send(());
    });
    let until = now_ns() + PATIENCE_NS;
    while world.drive.polling.load(Ordering::Relaxed) == NOBODY {
        assert!(now_ns() < until, "it never takes the seat");
        std::thread::yield_now();
    }
    world.drive.stop();
    told.recv_timeout(Duration::from_nanos(PATIENCE_NS)).expect("it sleeps on");
}

#[test]
fn the_helper_does_not_fall_asleep_if_it_is_to_stop() {
    let world = World::new();
    world.drive.fd().unwrap();
    // It looked whether it is to stop just before, and who wakes the program's sleeper is not heard after its turn.
    world.drive.stop();
    let (tell, told) = mpsc::channel();
    let own = world.drive.clone();
    std::thread::spawn(move || tell.send(own.poll(Sleeper::Other, None, &mut || false, &|| ())));
    let slept = told.recv_timeout(Duration::from_nanos(PATIENCE_NS)).expect("it sleeps");
    assert_eq!(slept, Slept::Over);
}

#[test]
fn a_helper_spins_for_other_processes_as_long_as_it_should_and_they_are_there() {
    let world = World::new();
    let caller = EventFd::new().unwrap();
    world.drive.add_caller(caller.as_raw_fd()).unwrap();
    let spin = |spin_ns| {
        let (tell, told) = mpsc::channel();
        let own = world.drive.clone();
        std::thread::spawn(move || {
            own.drive_on(spin_ns);
            let _ = tell.send(());
        });
        told
    };
    let patience = Duration::from_nanos(PATIENCE_NS);
    spin(1_000_000).recv_timeout(patience).expect("nothing comes, and it spins on");
    let for_good = spin(u64::MAX);
    let (turns, until) = (world.turns(), now_ns() + PATIENCE_NS);
    while world.turns() < turns + 1_000 {
        assert!(now_ns() < until && for_good.try_recv() == Err(mpsc::TryRecvError::Empty), "it sleeps");
    }
    world.drive.remove_caller(caller.as_raw_fd());
    for_good.recv_timeout(patience).expect("nobody can call, and it spins on");
}

#[test]
fn a_patient_helper_is_told_that_the_seat_is_free() {
    let world = World::new();
    let own = world.drive.clone();
    let helper = std::thread::spawn(move || own.rest(true, HELPER_TICK));
    let is_patient = || *world.drive.patient.lock().unwrap();
    while !is_patient() && !helper.is_finished() {
        std::thread::yield_now();
    }
    world.drive.left_seat();
    assert!(!is_patient());
    helper.join().unwrap();
}

#[test]
fn the_helper_does_not_stand_back_from_a_thread_that_found_the_seat_taken_until_that_is_rung() {
    let mut world = World::new();
    let seat = |who| world.drive.polling.store(who, Ordering::Relaxed);
    assert!(!world.drive.is_wanted());
    seat(Sleeper::Other as u64);
    world.client.pair.client_bell.prepare();
    assert_eq!(world.drive.poll(Sleeper::Port, None, &mut || false, &|| ()), Slept::NoSeat);
    seat(NOBODY);
    assert!(world.drive.is_wanted());
    // What others have the engine do, and what rings nobody, changes nothing.
    world.arrive();
    world.settle();
    assert!(world.drive.is_wanted());
    world.bind();
    world.settle();
    assert!(!world.drive.is_wanted(), "it was rung");
    world.client.pair.client_bell.cancel();
}

/// The helper's next steps.
fn steps<const N: usize>(world: &World, watch: &mut Watch) -> [Next; N] {
    std::array::from_fn(|_| world.drive.next_of_helper(watch))
}

const REST: Next = Next::Rest { patient: false };

/// Somebody finds the seat taken, and `turn` rings a doorbell.
fn ring(world: &mut World, turn: impl FnOnce(&World)) {
    let seat = |world: &World, who| world.drive.polling.store(who, Ordering::Relaxed);
    seat(world, Sleeper::Other as u64);
    world.client.pair.client_bell.prepare();
    assert_eq!(world.drive.poll(Sleeper::Port, None, &mut || false, &|| ()), Slept::NoSeat);
    world.bind();
    turn(world);
    world.client.pair.client_bell.cancel();
    seat(world, NOBODY);
}

#[test]
fn the_helper_stands_back_for_a_moment_from_a_thread_that_it_has_rung() {
    let (mut world, mut watch) = (World::new(), Watch::default());
    assert_eq!(steps(&world, &mut watch), [REST, Next::Poll]);
    ring(&mut world, |world| {
        world.drive.polling.store(NOBODY, Ordering::Relaxed);
        assert_eq!(world.drive.poll(Sleeper::Other, Some(now_ns()), &mut || true, &|| ()), Slept::Done);
    });
    assert_eq!(steps(&world, &mut watch), [REST, Next::Poll, Next::Poll], "that one did not come");
}

#[test]
fn who_finds_the_seat_taken_in_the_turn_in_which_a_doorbell_is_rung_is_watched_for() {
    let (mut world, mut watch) = (World::new(), Watch::default());
    ring(&mut world, |world| {
        world.hand.seekers.store(1, Ordering::Relaxed);
        assert!(drive(world).rang);
        assert_eq!(world.hand.seekers.load(Ordering::Relaxed), 0);
    });
    assert!(world.drive.is_wanted());
    assert_eq!(steps(&world, &mut watch), [Next::Poll]);
}

#[test]
fn the_helper_leaves_the_seat_to_a_thread_that_sleeps_in_it_again_and_again() {
    let (world, mut watch) = (World::new(), Watch::default());
    assert_eq!(steps(&world, &mut watch), [REST, Next::Poll]);
    for _ in 0..3 {
        assert_eq!(world.drive.poll(Sleeper::Port, Some(now_ns()), &mut || true, &|| ()), Slept::Done);
        assert_eq!(steps(&world, &mut watch), [REST]);
    }
    assert_eq!(steps(&world, &mut watch), [Next::Poll], "it is gone");
    world.drive.polling.store(Sleeper::Port as u64, Ordering::Relaxed);
    let patient = Next::Rest { patient: true };
    assert_eq!(steps(&world, &mut watch), [REST, REST, patient, patient], "it sleeps for long");
}

#[test]
fn the_helper_looks_less_often_after_a_thread_that_drives_all_the_time_alone() {
    let (world, mut watch) = (World::new(), Watch::default());
    let look = |watch: &mut Watch| {
        drive(&world);
        assert_eq!(steps(&world, watch), [REST]);
        watch.tick()
    };
    for _ in 1..STEADY_TICKS {
        assert_eq!(look(&mut watch), HELPER_TICK);
    }
    assert_eq!((look(&mut watch), look(&mut watch)), (STEADY_TICK, STEADY_TICK));
    assert_eq!((steps(&world, &mut watch), watch.tick()), ([Next::Poll], HELPER_TICK), "it has stopped");

    (0..STEADY_TICKS).for_each(|_| _ = look(&mut watch));
    world.drive.polling.store(Sleeper::Port as u64, Ordering::Relaxed);
    assert_eq!(world.drive.poll(Sleeper::Port, None, &mut || false, &|| ()), Slept::NoSeat);
    drive(&world);
    assert_eq!((steps(&world, &mut watch), watch.tick()), ([REST], HELPER_TICK), "another thread waits");
}

#[test]
fn the_helper_looks_less_often_after_a_thread_that_rests_between_its_turns() {
    let (world, mut watch) = (World::new(), Watch::default());
    let drive_and_look = |watch: &mut Watch, rests: bool| {
        // It woke and rests again; by the next look it has not woken yet.
        drive(&world);
        world.drive.polling.store(Sleeper::Port as u64, Ordering::Relaxed);
        world.drive.prepare(&world.drive.lock_to_drive(), &mut Sleep::default(), rests, Work::default());
        assert_eq!(steps(&world, watch), [REST, REST]);
        watch.tick()
    };
    for _ in 0..STEADY_TICKS {
        assert_eq!(drive_and_look(&mut watch, false), HELPER_TICK, "one that sleeps may wake up to compute");
    }
    (1..STEADY_TICKS / 2).for_each(|_| assert_eq!(drive_and_look(&mut watch, true), HELPER_TICK));
    assert_eq!(drive_and_look(&mut watch, true), STEADY_TICK);
    world.drive.polling.store(NOBODY, Ordering::Relaxed);
    assert_eq!((steps(&world, &mut watch), watch.tick()), ([Next::Poll], HELPER_TICK), "it has stopped");
}
