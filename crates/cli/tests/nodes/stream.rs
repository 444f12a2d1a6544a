//! Messages of 1 MiB from alpha to beta, each a process with a control socket, until a test has seen enough.
#![allow(dead_code)]

use crate::world::{Running, Scratch, ask_until, inside};
use polyrail_bench::netns::Testbed;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Write;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

const MESSAGE_BYTES: usize = 1 << 20;

/// A stream; what arrives is compared at its end with what was sent.
pub struct Stream {
    /// The control sockets of alpha and beta.
    pub sockets: [Scratch; 2],
    pub sender: Running,
    pub receiver: Running,
    /// Dropped, it ends the stream.
    go_on: Sender<()>,
    feeder: JoinHandle<Fed>,
    received: Scratch,
    /// The files of both nodes' settings.
    _settings: [Scratch; 2],
}

/// What was sent.
struct Fed {
    messages: u64,
    sha256: String,
}

impl Stream {
    /// Nodes with these lines of settings; returns when both links carry messages.
    pub fn start(testbed: &Testbed, lines: &str) -> Stream {
        let scratch = |what: &str| Scratch::new(&format!("stream-{}-{what}", testbed.spec().name));
        let sockets = ["alpha.sock", "beta.sock"].map(scratch);
        let settings = ["alpha.toml", "beta.toml"].map(scratch);
        for (file, socket) in settings.iter().zip(&sockets) {
            let text = format!("control = {:?}\n{lines}", socket.path());
            std::fs::write(&file.0, text).expect("a temporary file can be written");
        }
        let received = scratch("received");
        let recv =
            ["recv", "100:0", "--until-end", "--digest", "--name", "beta", "--config", settings[1].path()];
        let mut command = inside(testbed, 1, &recv);
        // A line for each message is more than a pipe holds that nobody reads.
        command.stdout(File::create(&received.0).expect("a temporary file can be written"));
        let receiver = Running::start(command);

        let send = ["send", "100:0", "--end", "--wait=60", "--name", "alpha", "--config", settings[0].path()];
        let mut command = inside(testbed, 0, &send);
        command.stdin(Stdio::piped());
        let mut sender = Running::start(command);
        let (go_on, until) = channel();
        let stdin = sender.stdin();
        let feeder = std::thread::spawn(move || feed(stdin, &until));
        let stream = Stream { sockets, sender, receiver, go_on, feeder, received, _settings: settings };
        stream.until_links(|links| links.len() == 2 && links.iter().all(carries));
        stream
    }

    /// Waits until something is so of alpha's links.
    pub fn until_links(&self, is_so: impl Fn(&[Value]) -> bool) {
        ask_until(&self.sockets[0], &["link", "list"], |answer| {
            answer["rows"].as_array().is_some_and(|links| is_so(links))
        });
    }

    /// Ends the stream: everything arrived, once and in order, or this fails.
    pub fn finish(self) {
        drop(self.go_on);
        let fed = self.feeder.join().expect("the program reads what it is to send");
        let sent = self.sender.finish();
        assert!(sent.status.success(), "{sent:?}");
        let ended = self.receiver.finish();
        assert!(ended.status.success(), "{ended:?}");
        let text = std::fs::read_to_string(&self.received.0).expect("a file");
        let sum: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
        assert_eq!(
            (sum["messages"].as_u64(), sum["sha256"].as_str()),
            (Some(fed.messages), Some(fed.sha256.as_str())),
            "{sum}"
        );
    }
}

/// Whether a link is up and more than handshakes have gone by it.
fn carries(link: &Value) -> bool {
    link["state"] == "up" && link["bytes_sent"].as_u64() > Some(MESSAGE_BYTES as u64)
}

/// Writes messages that tell their numbers until nobody wants more.
fn feed(mut stdin: ChildStdin, until: &Receiver<()>) -> Fed {
    let mut message: Vec<u8> = (0..MESSAGE_BYTES).map(|at| (at * at / 7) as u8).collect();
    let (mut messages, mut digest) = (0u64, Sha256::new());
    while until.try_recv() == Err(TryRecvError::Empty) {
        message[..8].copy_from_slice(&messages.to_le_bytes());
        stdin.write_all(&message).expect("the program reads");
        digest.update(&message);
        messages += 1;
    }
    let sha256 = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Fed { messages, sha256 }
}
