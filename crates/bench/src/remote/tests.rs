//! Client and server in one process, over loopback; shells stand in for measured processes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::channel::Outgoing;
use super::handshake;
use super::limits::Patience;
use super::message::{Ask, Tell};
use super::server::Server;
use super::*;
use crate::control::{Event, Far, Job, Order, Role, Task};
use crate::stats::Prng;
use crate::workload::{job_for_tests, setup_for_tests};

const KEY: &[u8] = b"a key for tests alone";
const PATIENCE: Duration = Duration::from_secs(30);
/// A limit to be reached: short, but long enough for a busy machine to do something before.
const SHORT: Duration = Duration::from_millis(1_500);

const QUICK: Patience = Patience { refusal_delay: Duration::from_millis(1), ..Patience::USUAL };
/// Says its process number as its address, then obeys until its input ends.
const OBEYS: &str = "read task; echo '{\"event\":\"listening\",\"address\":\"'$$'\"}'; read order; echo '{\"event\":\"ready\"}'; exec cat >/dev/null";

/// Ends the server also when a test panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A server whose measured processes run `script`, while `test` lasts. Gives what `run` gives in the end.
fn with_server(script: &str, patience: Patience, once: bool, test: impl FnOnce(&Server, SocketAddr)) -> i32 {
    let stop = AtomicBool::new(false);
    let launch = || {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Ok(command)
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new(listener, Key::of(KEY), Vec::new(), &launch, &stop, patience);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| server.run(once).unwrap());
        let guard = Stop(&stop);
        test(&server, address);
        if !once {
            drop(guard);
            return running.join().unwrap();
        }
        let code = running.join().unwrap();
        drop(guard);
        code
    })
}

fn client(at: SocketAddr) -> Result<Client, String> {
    Client::connect_within(&at.to_string().parse().unwrap(), &Key::of(KEY), &[], Patience::USUAL)
}

/// What is heard from whoever opens a session by hand.
fn by_hand(at: SocketAddr) -> (Outgoing, impl FnMut() -> Result<Tell, lines::Broken>, TcpStream) {
    let stream = TcpStream::connect(at).unwrap();
    let raw = stream.try_clone().unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let (out, mut incoming) = handshake::call(stream, &Key::of(KEY), PATIENCE).unwrap();
    let next = move || loop {
        if let Some((tell, _)) = incoming.next::<Tell>()? {
            return Ok(tell);
        }
    };
    (out, next, raw)
}

fn job() -> Task {
    let far = Far { cluster: "c".to_owned(), peers: Vec::new() };
    let setup = crate::control::Setup { far: Some(far), ..setup_for_tests(64) };
    Task::Play(Box::new(Job { role: Role::Receiver, protocol: "udp".to_owned(), ..job_for_tests(setup) }))
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The process that a job of [`OBEYS`] tells of.
fn listening(events: &Receiver<Event>) -> String {
    match events.recv_timeout(PATIENCE).unwrap() {
        Event::Listening { address } => address,
        other => panic!("{other:?}"),
    }
}

/// The same, heard by hand.
fn told_listening(next: &mut impl FnMut() -> Result<Tell, lines::Broken>) -> String {
    let told = next().unwrap();
    let Tell::Event { event, .. } = told else { panic!("{told:?}") };
    let Event::Listening { address } = *event else { panic!("{event:?}") };
    address
}

fn await_end(pid: &str) {
    let path = format!("/proc/{pid}");
    wait_for("the measured process to end", || !Path::new(&path).exists());
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited in vain for {what}");
}

#[test]
fn a_job_is_started_told_relayed_and_ended_with_its_session() {
    let code = with_server(OBEYS, QUICK, false, |server, at| {
        let client = client(at).unwrap();
        assert_eq!(
            (client.devices.as_slice(), client.welcome.refusal("udp")),
            (&["lo".to_owned()][..], None)
        );
        assert!(client.welcome.refusal("no-such").unwrap().contains("not known"));
        let (mut side, events) = client.start(&job()).unwrap();
        let first = listening(&events);
        side.tell(&Order::Go).unwrap();
        assert!(matches!(events.recv_timeout(PATIENCE), Ok(Event::Ready)));
        // The next one ends the one before.
        let (_second_side, events) = client.start(&job()).unwrap();
        let second = listening(&events);
        await_end(&first);
        let reading = client.compare_clocks().unwrap();
        assert!(reading.offset_ns.unsigned_abs() <= reading.error_ns, "one clock: {reading:?}");
        drop(client);
        await_end(&second);
        wait_for("the session's end", || count(&server.counts.jobs) == 2);
        assert_eq!((count(&server.counts.clients), count(&server.counts.broken)), (1, 0));
    });
    assert_eq!(code, 0);
}

#[test]
fn a_job_that_dies_or_is_not_allowed_is_told_of_in_one_line() {
    with_server("read task; echo boom >&2; exit 7", QUICK, false, |_, at| {
        let client = client(at).unwrap();
        let (mut side, events) = client.start(&job()).unwrap();
        assert!(events.recv_timeout(PATIENCE).is_err());
        assert_eq!(side.epitaph(), "ended early (exit status: 7) boom");
        let Task::Play(mut wrong) = job() else { panic!("a job") };
        wrong.role = Role::Sender;
        let (mut side, events) = client.start(&Task::Play(wrong)).unwrap();
        assert!(events.recv_timeout(PATIENCE).is_err());
        assert_eq!(side.epitaph(), "the server only receives");
        assert!(client.failure().is_none(), "the session goes on");
    });
}

#[test]
fn a_second_client_is_told_that_the_server_is_busy() {
    with_server(OBEYS, QUICK, false, |server, at| {
        let first = client(at).unwrap();
        let said = client(at).err().unwrap();
        assert!(said.contains("busy: another client") && said.lines().count() == 1, "{said}");
        assert_eq!(count(&server.counts.busy), 1);
        drop(first);
        wait_for("the seat", || client(at).is_ok());
    });
}

#[test]
fn strangers_get_nothing_started_and_are_counted() {
    with_server(OBEYS, QUICK, false, |server, at| {
        let name: HostName = at.to_string().parse().unwrap();
        let said = Client::connect(&name, &Key::of(b"another key, as long"), &[]).err().unwrap();
        assert!(said.contains("refuses the key: --key-file"), "{said}");
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let newer = handshake::call_as(stream, &Key::of(KEY), PATIENCE, CONTROL_VERSION + 1).err().unwrap();
        assert!(newer.to_string().contains("speaks version"), "{newer}");
        wait_for("both counts", || {
            count(&server.counts.wrong_key) == 1 && count(&server.counts.other_version) == 1
        });
        assert_eq!((count(&server.counts.clients), count(&server.counts.jobs)), (0, 0));
    });
}

/// Random bytes, lines of random JSON, cut and changed handshakes: whatever is sent, the next client is served.
#[test]
fn whatever_strangers_send_the_server_goes_on_serving() {
    with_server(OBEYS, QUICK, false, |server, at| {
        let mut random = Prng::new(7);
        let hello = format!("{{\"polyrail_bench\":{CONTROL_VERSION},\"nonce\":\"{}\"}}\n", "ab".repeat(32));
        for round in 0..60 {
            let mut bytes: Vec<u8> = match round % 4 {
                0 => (0..random.below(3_000)).map(|_| random.below(256) as u8).collect(),
                1 => hello.as_bytes()[..random.below(hello.len())].to_vec(),
                2 => format!("{hello}{{\"proof\":\"{}\"}}\n0 00 {{}}\n", "0".repeat(random.below(80))).into(),
                _ => hello.clone().into(),
            };
            if let Some(length) = bytes.len().checked_sub(1).filter(|_| round % 4 == 3) {
                bytes[random.below(length)] ^= 1 << random.below(8);
            }
            let mut stream = TcpStream::connect(at).unwrap();
            // The server may have had enough before all of it has left.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            // The end of the answer: this one's place is free again.
            let _ = stream.read_to_end(&mut Vec::new());
        }
        let answered =
            [&server.counts.wrong_key, &server.counts.other_version, &server.counts.not_understood];
        wait_for("all to be counted", || answered.iter().map(|one| count(one)).sum::<u64>() == 60);
        assert_eq!((count(&server.counts.clients), count(&server.counts.jobs)), (0, 0));
        client(at).expect("the next client is served");
    });
}

#[test]
fn many_mute_callers_from_one_address_leave_room_for_no_more_and_go_by_themselves() {
    let patience = Patience { handshake: SHORT, ..QUICK };
    with_server(OBEYS, patience, false, |server, at| {
        let mute: Vec<TcpStream> = (0..6).map(|_| TcpStream::connect(at).unwrap()).collect();
        wait_for("two to be turned away", || count(&server.counts.crowded) == 2);
        wait_for("four to be given up", || count(&server.counts.not_understood) == 4);
        client(at).expect("the next client is served");
        drop(mute);
    });
}

#[test]
fn sealed_nonsense_ends_the_session_and_its_process() {
    for nonsense in 0..3 {
        with_server(OBEYS, QUICK, false, |server, at| {
            let (mut out, mut next, mut stream) = by_hand(at);
            assert!(matches!(next(), Ok(Tell::Welcome(_))));
            out.send(&Ask::Start { job: 1, task: job() }).unwrap();
            let address = told_listening(&mut next);
            match nonsense {
                0 => out.send(&"nonsense").unwrap(),
                // What somebody on the way would add.
                1 => stream.write_all(b"{\"ask\":\"start\",\"job\":2,\"task\":\"calibrate\"}\n").unwrap(),
                _ => out.send(&Ask::Tell { job: 1, line: serde_json::json!({ "order": "dance" }) }).unwrap(),
            }
            await_end(&address);
            wait_for("the session's end", || count(&server.counts.broken) == 1);
            assert_eq!(count(&server.counts.jobs), 1, "nothing more was started");
            client(at).expect("the next client is served");
        });
    }
}

#[test]
fn orders_that_a_process_does_not_read_hold_nobody_up() {
    with_server("read task; exec sleep 1000", QUICK, false, |server, at| {
        let client = client(at).unwrap();
        let (mut side, events) = client.start(&job()).unwrap();
        // Those after the last may find the session over.
        let told = (0..20).take_while(|_| side.tell(&Order::Drain { expected: vec![u64::MAX; 64] }).is_ok());
        assert!(told.count() >= 16);
        assert!(events.recv_timeout(PATIENCE).is_err());
        assert!(side.epitaph().contains("more than 16 orders"), "{}", side.epitaph());
        wait_for("the session's end", || count(&server.counts.broken) == 1);
    });
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    with_server(OBEYS, QUICK, false, |_, at| {
        let impatient = Patience { silence: SHORT, ..QUICK };
        let name = at.to_string().parse().unwrap();
        let client = Client::connect_within(&name, &Key::of(KEY), &[], impatient).unwrap();
        wait_for("the session's end", || client.failure().is_some());
        assert_eq!(client.failure().unwrap(), format!("{at}: no sign of life for 1.5 s"));
    });
}

#[test]
fn a_client_that_falls_silent_or_asks_for_nothing_is_given_up() {
    let silent = Patience { silence: SHORT, ..QUICK };
    with_server(OBEYS, silent, false, |_, at| {
        let (mut out, mut next, _raw) = by_hand(at);
        assert!(matches!(next(), Ok(Tell::Welcome(_))));
        out.send(&Ask::Start { job: 1, task: job() }).unwrap();
        let address = told_listening(&mut next);
        let Ok(Tell::Bye { reason }) = next() else { panic!("no goodbye") };
        assert!(reason.contains("no sign of life for 1.5 s"), "{reason}");
        await_end(&address);
        client(at).expect("the next client is served");
    });
    let idle = Patience { idle: SHORT, ..QUICK };
    with_server(OBEYS, idle, false, |_, at| {
        let client = client(at).unwrap();
        wait_for("the session's end", || client.failure().is_some());
        assert!(client.failure().unwrap().contains("nothing was asked for"));
    });
    let short = Patience { job: SHORT, ..QUICK };
    with_server(OBEYS, short, false, |_, at| {
        let client = client(at).unwrap();
        let (mut side, events) = client.start(&job()).unwrap();
        let pid = listening(&events);
        let then = events.recv_timeout(PATIENCE);
        assert!(then.is_err(), "{then:?}");
        assert!(side.epitaph().contains("more than 1.5 s: killed"), "{}", side.epitaph());
        await_end(&pid);
    });
}

#[test]
fn a_server_that_ends_tells_its_client_and_leaves_no_process() {
    let (mut kept, mut pid) = (None, String::new());
    let code = with_server(OBEYS, QUICK, false, |_, at| {
        let client = client(at).unwrap();
        let (side, events) = client.start(&job()).unwrap();
        pid = listening(&events);
        kept = Some((client, side));
    });
    assert_eq!(code, 0);
    await_end(&pid);
    let (client, mut side) = kept.unwrap();
    wait_for("the goodbye", || client.failure().is_some());
    assert!(side.epitaph().contains("was ended by whoever runs it"), "{}", side.epitaph());
    assert!(client.start(&job()).is_err() && client.compare_clocks().is_err());
}

#[test]
fn a_server_that_vanishes_or_is_no_server_is_told_of_in_one_line() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = listener.accept().unwrap().0;
            let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        });
        let said = client(at).err().unwrap();
        assert!(said.contains("is no `polyrail bench serve`"), "{said}");
    });
    drop(listener);
    let said = client(at).err().unwrap();
    assert!(said.contains("start `polyrail bench serve` there"), "{said}");
}

#[test]
fn once_means_one_client_and_its_end_is_the_exit_code() {
    assert_eq!(with_server(OBEYS, QUICK, true, |_, at| drop(client(at).unwrap())), 0);
    assert_eq!(
        with_server(OBEYS, QUICK, true, |_, at| {
            let (out, mut next, raw) = by_hand(at);
            assert!(matches!(next(), Ok(Tell::Welcome(_))));
            drop((out, next, raw));
        }),
        1
    );
}
