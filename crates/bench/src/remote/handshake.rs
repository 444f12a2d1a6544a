//! Who is there: each side proves that it has the key, the caller first, and both get the keys of this one session.
//!
//! ```text
//! caller: {"polyrail_bench":VERSION,"nonce":N}
//! server: {"says":"challenge","nonce":M}          or {"says":"refused",...}
//! caller: {"proof":HMAC(key, "caller" VERSION N M)}
//! server: {"says":"proof","proof":HMAC(key, "server" VERSION N M)}
//! ```
//!
//! The caller goes first, so that a stranger learns nothing that was made with the key. These lines carry no seal:
//! somebody on the way can make a handshake fail, and no more.

use std::fmt;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::channel::{Incoming, Outgoing};
use super::key::{Digest, Key, random};
use super::lines::{Broken, Lines};
use super::{CONTROL_VERSION, hex};
use crate::clock::now_ns;

/// Longest line of a handshake.
const HANDSHAKE_LINE_BYTES_MAX: usize = 1024;

/// The caller's first line. `polyrail_bench` comes first in every version, so that each can tell the other.
#[derive(Serialize, Deserialize)]
struct Hello {
    polyrail_bench: u32,
    nonce: String,
}

/// As much of a caller's first line as every version has.
#[derive(Deserialize)]
struct AnyHello {
    polyrail_bench: u32,
}

#[derive(Serialize, Deserialize)]
struct Proof {
    proof: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "says")]
enum Reply {
    Challenge { nonce: String },
    Proof { proof: String },
    Refused { refusal: Refusal },
}

/// Why the server goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub(super) enum Refusal {
    /// The caller's proof does not fit.
    Key,
    /// The caller speaks another version.
    Version {
        /// The one spoken here.
        spoken: u32,
    },
    /// The caller's lines make no sense.
    NotUnderstood,
    /// Too many callers at once.
    Crowded,
}

/// Why there is no session.
#[derive(Debug)]
pub(super) enum Denied {
    /// The server said so, or says so.
    Refused(Refusal),
    /// The server has no proof that it has the key.
    Impostor,
    /// What came is not this protocol.
    NotUnderstood,
    /// Nothing came in time.
    Late,
    /// The connection failed.
    Broken(Broken),
}

impl From<Broken> for Denied {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::TooLong => Self::NotUnderstood,
            broken => Self::Broken(broken),
        }
    }
}

impl From<std::io::Error> for Denied {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.into())
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(Refusal::Key) => {
                write!(f, "refuses the key: --key-file must hold the same key on both machines")
            }
            Self::Refused(Refusal::Version { spoken }) => write!(
                f,
                "speaks version {spoken} of the control protocol, this program version {CONTROL_VERSION}: use the same version of polyrail on both machines"
            ),
            Self::Refused(Refusal::NotUnderstood) => write!(f, "did not understand what it was sent"),
            Self::Refused(Refusal::Crowded) => write!(f, "has too many callers at once: try again later"),
            Self::Impostor => {
                write!(f, "did not prove that it has the key: it is not the server that is meant")
            }
            Self::NotUnderstood => write!(f, "what answers there is no `polyrail bench serve`"),
            Self::Late => {
                write!(f, "does not answer in time: what listens there may be no `polyrail bench serve`")
            }
            Self::Broken(broken) => write!(f, "{broken}"),
        }
    }
}

/// The two halves of a connection whose ends have proven themselves.
pub(super) type Session = (Outgoing, Incoming);

/// The caller's side; takes no longer than `patience`. The stream's read timeout says how often it looks.
pub(super) fn call(stream: TcpStream, key: &Key, patience: Duration) -> Result<Session, Denied> {
    call_as(stream, key, patience, CONTROL_VERSION)
}

pub(super) fn call_as(
    mut stream: TcpStream,
    key: &Key,
    patience: Duration,
    version: u32,
) -> Result<Session, Denied> {
    let mut lines = Lines::new(stream.try_clone()?);
    let until_ns = now_ns() + patience.as_nanos() as u64;
    let go_on = || now_ns() < until_ns;
    let caller = random()?;
    say(&mut stream, &Hello { polyrail_bench: version, nonce: hex::encode(&caller) })?;
    let Reply::Challenge { nonce } = reply(&mut lines, &go_on)? else { return Err(Denied::NotUnderstood) };
    let server = hex::decode(nonce.as_bytes()).ok_or(Denied::NotUnderstood)?;
    let talk = Talk { key, version, nonces: [caller, server] };
    say(&mut stream, &Proof { proof: hex::encode(&talk.digest(CALLER)) })?;
    let Reply::Proof { proof } = reply(&mut lines, &go_on)? else { return Err(Denied::NotUnderstood) };
    if !talk.verifies(SERVER, &proof) {
        return Err(Denied::Impostor);
    }
    let (to, from) = (talk.digest(TO_SERVER), talk.digest(TO_CALLER));
    Ok((Outgoing::new(stream, to), Incoming::new(lines, from)))
}

fn reply(lines: &mut Lines, go_on: &dyn Fn() -> bool) -> Result<Reply, Denied> {
    match line(lines, go_on)? {
        Reply::Refused { refusal } => Err(Denied::Refused(refusal)),
        reply => Ok(reply),
    }
}

/// The server's side; goes on while `go_on` says so. A caller that is denied is not told yet: see [`refuse`].
pub(super) fn answer(mut stream: TcpStream, key: &Key, go_on: &dyn Fn() -> bool) -> Result<Session, Denied> {
    let mut lines = Lines::new(stream.try_clone()?);
    let first: serde_json::Value = line(&mut lines, go_on)?;
    let AnyHello { polyrail_bench: version } =
        serde_json::from_value(first.clone()).map_err(|_| Denied::NotUnderstood)?;
    if version != CONTROL_VERSION {
        return Err(Denied::Refused(Refusal::Version { spoken: CONTROL_VERSION }));
    }
    let Hello { nonce, .. } = serde_json::from_value(first).map_err(|_| Denied::NotUnderstood)?;
    let caller = hex::decode(nonce.as_bytes()).ok_or(Denied::NotUnderstood)?;
    let server = random()?;
    say(&mut stream, &Reply::Challenge { nonce: hex::encode(&server) })?;
    let talk = Talk { key, version, nonces: [caller, server] };
    let Proof { proof } = line(&mut lines, go_on)?;
    if !talk.verifies(CALLER, &proof) {
        return Err(Denied::Refused(Refusal::Key));
    }
    say(&mut stream, &Reply::Proof { proof: hex::encode(&talk.digest(SERVER)) })?;
    let (to, from) = (talk.digest(TO_CALLER), talk.digest(TO_SERVER));
    Ok((Outgoing::new(stream, to), Incoming::new(lines, from)))
}

/// Tells a caller that it was refused.
pub(super) fn refuse(mut stream: &TcpStream, refusal: Refusal) {
    // It may have gone.
    let _ = say(&mut stream, &Reply::Refused { refusal });
}

const CALLER: &[u8] = b"polyrail bench: proof of the caller\0";
const SERVER: &[u8] = b"polyrail bench: proof of the server\0";
const TO_SERVER: &[u8] = b"polyrail bench: seals to the server\0";
const TO_CALLER: &[u8] = b"polyrail bench: seals to the caller\0";

/// What both sides know of one handshake.
struct Talk<'a> {
    key: &'a Key,
    version: u32,
    nonces: [Digest; 2],
}

impl Talk<'_> {
    fn digest(&self, what_for: &[u8]) -> Digest {
        self.key.digest(&[what_for, &self.version.to_be_bytes(), &self.nonces[0], &self.nonces[1]])
    }

    fn verifies(&self, what_for: &[u8], proof: &str) -> bool {
        let parts: [&[u8]; 4] = [what_for, &self.version.to_be_bytes(), &self.nonces[0], &self.nonces[1]];
        hex::decode(proof.as_bytes()).is_some_and(|proof| self.key.verifies(&parts, &proof))
    }
}

fn say(stream: &mut impl Write, message: &impl Serialize) -> Result<(), Denied> {
    let mut line = serde_json::to_vec(message).map_err(|_| Denied::NotUnderstood)?;
    line.push(b'\n');
    Ok(stream.write_all(&line)?)
}

fn line<T: DeserializeOwned>(lines: &mut Lines, go_on: &dyn Fn() -> bool) -> Result<T, Denied> {
    while go_on() {
        if let Some(line) = lines.next(HANDSHAKE_LINE_BYTES_MAX)? {
            return serde_json::from_slice(&line.bytes).map_err(|_| Denied::NotUnderstood);
        }
    }
    Err(Denied::Late)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn streams() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let streams = [caller, listener.accept().unwrap().0];
        for stream in &streams {
            stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        }
        streams
    }

    /// What both sides come to.
    fn meet(caller_key: &str, server_key: &str, version: u32) -> [Result<Session, Denied>; 2] {
        let [caller, server] = streams();
        std::thread::scope(|scope| {
            let called = scope.spawn(|| call_as(caller, &Key::of(caller_key.as_bytes()), PATIENCE, version));
            let refusing = server.try_clone().unwrap();
            let answered = answer(server, &Key::of(server_key.as_bytes()), &|| true);
            match &answered {
                Err(Denied::Refused(refusal)) => refuse(&refusing, *refusal),
                Err(Denied::NotUnderstood) => refuse(&refusing, Refusal::NotUnderstood),
                _ => {}
            }
            [called.join().unwrap(), answered]
        })
    }

    #[test]
    fn equal_keys_open_a_session_both_ways() {
        let [caller, server] = meet("the same key", "the same key", CONTROL_VERSION);
        let ((mut to_server, mut from_server), (mut to_caller, mut from_caller)) =
            (caller.unwrap(), server.unwrap());
        to_server.send(&"ask").unwrap();
        to_caller.send(&"tell").unwrap();
        let heard = |incoming: &mut Incoming| loop {
            if let Some((text, _)) = incoming.next::<String>().unwrap() {
                break text;
            }
        };
        assert_eq!((heard(&mut from_caller), heard(&mut from_server)), ("ask".to_owned(), "tell".to_owned()));
    }

    #[test]
    fn another_key_or_version_is_told_to_both() {
        let [caller, server] = meet("one", "another", CONTROL_VERSION);
        assert!(matches!(caller, Err(Denied::Refused(Refusal::Key))));
        assert!(matches!(server, Err(Denied::Refused(Refusal::Key))));
        let [caller, server] = meet("same", "same", CONTROL_VERSION + 1);
        let said = caller.err().unwrap().to_string();
        assert!(said.contains("speaks version 1") && said.contains("same version of polyrail"), "{said}");
        assert!(matches!(server, Err(Denied::Refused(Refusal::Version { spoken: CONTROL_VERSION }))));
    }

    /// What a caller comes to at a server that says these lines.
    fn fooled(lines: &[&str]) -> Denied {
        let [caller, mut server] = streams();
        lines.iter().for_each(|line| server.write_all(format!("{line}\n").as_bytes()).unwrap());
        call(caller, &Key::of(b"key"), Duration::from_millis(200)).err().unwrap()
    }

    #[test]
    fn a_server_without_the_key_gets_no_session() {
        let nonce = "00".repeat(32);
        let challenge = format!("{{\"says\":\"challenge\",\"nonce\":\"{nonce}\"}}");
        let proof = format!("{{\"says\":\"proof\",\"proof\":\"{nonce}\"}}");
        assert!(matches!(fooled(&[&challenge, &proof]), Denied::Impostor));
        assert!(matches!(fooled(&[&challenge, &challenge]), Denied::NotUnderstood));
        assert!(matches!(fooled(&[&proof]), Denied::NotUnderstood));
        assert!(matches!(fooled(&["SSH-2.0-OpenSSH_9.2"]), Denied::NotUnderstood));
        assert!(matches!(fooled(&[&"x".repeat(2_000)]), Denied::NotUnderstood));
        assert!(matches!(fooled(&[]), Denied::Late));
    }

    #[test]
    fn a_proof_of_one_side_is_none_of_the_other_and_of_no_other_handshake() {
        let key = Key::of(b"key");
        let talk = Talk { key: &key, version: 1, nonces: [[1; 32], [2; 32]] };
        let proof = hex::encode(&talk.digest(CALLER));
        assert!(talk.verifies(CALLER, &proof) && !talk.verifies(SERVER, &proof));
        let turned = Talk { nonces: [[2; 32], [1; 32]], ..talk };
        assert!(!turned.verifies(CALLER, &proof));
        let newer = Talk { version: 2, ..turned };
        assert!(!newer.verifies(CALLER, &hex::encode(&turned.digest(CALLER))));
    }
}
