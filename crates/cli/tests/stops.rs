//! Processes that stand still for a while, as those of a machine do that is suspended, swaps, or is looked at by a debugger.
//! In two network namespaces with two links between them; needs root, says so and passes where there is none.

#![forbid(unsafe_code)]

#[path = "nodes/findings.rs"]
mod findings;
#[path = "nodes/stream.rs"]
mod stream;
#[path = "nodes/world.rs"]
mod world;

use findings::{doctor, found, until_found};
use polyrail_bench::netns::Testbed;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};
use stream::Stream;
use world::{Running, Scratch, ask, ask_until, inside, last_document, testbed};

/// No stop of these tests is as long, however busy the machine.
const LONG: &str = "tolerance_ms = 60000\n";
/// How long a process stands still, when its peer holds every link for dead already.
const STOP: Duration = Duration::from_millis(200);

/// What tells a session from the one after it.
fn session(stream: &Stream) -> Value {
    let shown = ask(&stream.sockets[0], &["node", "show", "beta"])["show"].clone();
    assert_eq!(shown["node"]["state"], "up", "{shown}");
    shown["session"]["index"].clone()
}

fn is_dead(link: &Value) -> bool {
    link["state"] == "down" || link["state"] == "damped"
}

/// Stops a process of a stream twice, and lets it go on. After a third time its links would be damped for a while.
fn pause(stream: &Stream, stopped: &Running, peer: &Scratch) {
    let before = session(stream);
    for _ in 0..2 {
        stopped.signal("STOP");
        ask_until(peer, &["link", "list"], |answer| {
            answer["rows"].as_array().is_some_and(|links| links.iter().all(is_dead))
        });
        std::thread::sleep(STOP);
        stopped.signal("CONT");
        stream.until_links(|links| links.iter().any(|link| !is_dead(link)));
    }
    assert_eq!(session(stream), before);
}

#[test]
fn a_receiver_that_stands_still_for_less_than_the_tolerance_misses_nothing_and_keeps_its_session() {
    let Some(testbed) = testbed("pause") else { return };
    let stream = Stream::start(&testbed, LONG);
    pause(&stream, &stream.receiver, &stream.sockets[0]);
    stream.finish();
}

#[test]
fn a_sender_that_stands_still_for_less_than_the_tolerance_loses_nothing_and_keeps_its_session() {
    let Some(testbed) = testbed("pause-sender") else { return };
    let stream = Stream::start(&testbed, LONG);
    pause(&stream, &stream.sender, &stream.sockets[1]);
    stream.finish();
}

/// A receiver that writes a line of JSON into a file for each message.
struct Receiver {
    process: Running,
    file: Scratch,
}

impl Receiver {
    fn start(testbed: &Testbed) -> Receiver {
        let file = Scratch::new(&format!("stops-{}-received", testbed.spec().name));
        let mut command = inside(testbed, 1, &["recv", "100:0"]);
        command.stdout(File::create(&file.0).expect("a temporary file can be written"));
        Receiver { process: Running::start(command), file }
    }

    /// The texts that have arrived.
    fn texts(&self) -> Vec<String> {
        let lines = std::fs::read_to_string(&self.file.0).expect("a file");
        let whole = lines.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let documents = whole.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        documents.filter_map(|document| document["text"].as_str().map(str::to_owned)).collect()
    }

    fn await_text(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.texts().iter().any(|one| one == text) {
            assert!(Instant::now() < deadline, "no {text}: {:?}", self.texts());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_sender_is_told_what_became_of_its_messages_if_the_receiver_stands_still_for_longer() {
    let Some(testbed) = testbed("stop") else { return };
    let receiver = Receiver::start(&testbed);
    let send = ["send", "100:0", "--lines", "--wait=60"];
    let mut command = inside(&testbed, 0, &send);
    command.stdin(Stdio::piped());
    let mut sender = Running::start(command);
    let mut lines = sender.stdin();
    writeln!(lines, "line 0").expect("the sender reads");
    receiver.await_text("line 0");
    receiver.process.signal("STOP");
    // The sender ends with the first call that is told of it.
    let mut number = 0;
    while writeln!(lines, "line {}", number + 1).is_ok() {
        number += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    let ended = sender.finish();
    let error = last_document(&ended)["error"].clone();
    assert_eq!((ended.status.code(), &error["code"]), (Some(1), &"failed".into()), "{error}");
    assert!(error["message"].as_str().is_some_and(|told| told.contains("of this port failed")), "{error}");

    receiver.process.signal("CONT");
    let again = inside(&testbed, 0, &["send", "100:0", "--text", "again", "--wait=60"]);
    let again = Running::start(again).finish();
    assert!(again.status.success(), "{again:?}");
    receiver.await_text("again");
    // What came before the stop was known arrived once and in order, and nothing of it comes after.
    let texts = receiver.texts();
    let expected = (0..texts.len() - 1).map(|number| format!("line {number}"));
    assert_eq!(texts, expected.chain(["again".to_owned()]).collect::<Vec<_>>());
    assert!(texts.len() as u64 <= number + 2, "{texts:?}");
}

#[test]
fn nodes_that_lost_each_other_by_a_stop_find_each_other_again_and_tell_of_it() {
    let Some(testbed) = testbed("found-again") else { return };
    let sockets = ["alpha", "beta"].map(|name| Scratch::new(&format!("stops-{name}.sock")));
    let [_alpha, beta] = [(0, "alpha"), (1, "beta")].map(|(node, name)| {
        let control = sockets[node].path();
        Running::start(inside(&testbed, node, &["node", "--name", name, "--control", control]))
    });
    let peers = |is_so: &dyn Fn(&[&Value]) -> bool, socket: &Scratch| {
        ask_until(socket, &["node", "list"], |answer| {
            let rows = answer["rows"].as_array().into_iter().flatten();
            is_so(&rows.filter(|row| row["state"] != "self").collect::<Vec<_>>())
        });
    };
    let met = |peers: &[&Value]| peers.len() == 1 && peers[0]["links_up"] == 2;
    sockets.iter().for_each(|socket| peers(&met, socket));
    beta.signal("STOP");
    let lost =
        |peers: &[&Value]| peers.len() == 1 && peers[0]["state"] == "lost" && peers[0]["name"] == "beta";
    peers(&lost, &sockets[0]);
    let finding = until_found(&testbed, 0, &sockets[0], "lost-node");
    assert_eq!(finding["about"], "node beta");
    let gone = ask(&sockets[0], &["node", "show", "beta"])["show"].clone();
    assert_eq!(gone["node"]["state"], "gone", "{gone}");
    beta.signal("CONT");
    sockets.iter().for_each(|socket| peers(&met, socket));
    let back = ask(&sockets[0], &["node", "show", "beta"])["show"].clone();
    let told = back["changes"].as_array().expect("changes").iter().map(|change| change["what"].clone());
    assert_eq!(told.collect::<Vec<_>>(), ["up", "lost", "up"], "{back}");
    // What alpha asked while beta stood still reaches beta's session from before; that is no stranger.
    for (node, socket) in sockets.iter().enumerate() {
        let (_, document) = doctor(&testbed, node, &["--control", socket.path()]);
        assert!(found(&document, "refused-peer").is_empty(), "{document}");
        assert!(found(&document, "lost-node").is_empty(), "it is back: {document}");
    }
}
