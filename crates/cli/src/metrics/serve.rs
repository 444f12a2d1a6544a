//! A server for one page and one client at a time: whoever hangs or talks too much costs the next one a bounded wait.

use super::answer::{Answer, Wish, wish};
use super::{ask, page_of};
use crate::failure::{Exit, Failure};
use crate::log;
use crate::output::Output;
use serde_json::json;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// No head of a request is longer: those of scrapers have a few hundred bytes.
const REQUEST_BYTES_MAX: usize = 8_192;
/// How long a client may take to send its request.
const REQUEST_MAX: Duration = Duration::from_secs(2);
/// How long it may take to take the answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long we look at what it says after the answer, so that the system does not take the answer back.
const FAREWELL_MAX: Duration = Duration::from_millis(200);
/// After a client could not be let in, for want of descriptors as a rule.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until a signal comes.
pub fn run(address: SocketAddr, control: Option<&Path>, output: &Output) -> Result<ExitCode, Failure> {
    let listener = TcpListener::bind(address).map_err(|error| {
        let exit = match error.kind() {
            ErrorKind::AddrNotAvailable | ErrorKind::PermissionDenied => Exit::Unavailable,
            _ => Exit::Failed,
        };
        Failure::new(exit, format!("{address}: can't listen: {error}"))
    })?;
    end_at_signal()?;
    let at = listener.local_addr()?;
    // The node may begin later, and end and begin anew: each client gets what there is then.
    if let Err(failure) = ask(control) {
        log::warn(&failure.message);
    }
    output.result(format!("http://{at}/metrics"), &json!({ "ok": true, "listening": at.to_string() }));
    for client in listener.incoming() {
        match client {
            Ok(client) => {
                // Whose client goes away has no answer to get.
                let _ = serve(client, control);
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One request and its answer.
fn serve(mut client: TcpStream, control: Option<&Path>) -> io::Result<()> {
    let answer = match head(&mut client, Instant::now() + REQUEST_MAX) {
        Ok(head) => wish(&head).map_or_else(|refusal| refusal, |wish| page(control, wish)),
        Err(Unread::Refused(answer)) => answer,
        Err(Unread::Gone) => return Ok(()),
    };
    write(&mut client, &answer.to_bytes(), Instant::now() + ANSWER_MAX)?;
    client.shutdown(Shutdown::Write)?;
    client.set_read_timeout(Some(FAREWELL_MAX))?;
    client.read(&mut [0; REQUEST_BYTES_MAX]).map(|_| ())
}

/// Writes all of it, if the client takes it in time.
fn write(client: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        client.set_write_timeout(Some(left))?;
        match client.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The node's page now.
fn page(control: Option<&Path>, wish: Wish) -> Answer {
    let asked = ask(control).and_then(|answer| page_of(&answer).map(str::to_owned));
    match asked {
        Ok(text) => Answer::page(text, wish),
        Err(failure) => Answer::no_node(&failure.message),
    }
}

/// Why there is no request.
enum Unread {
    Refused(Answer),
    Gone,
}

/// The head of a request: all up to the empty line.
fn head(client: &mut TcpStream, until: Instant) -> Result<Vec<u8>, Unread> {
    let mut head = Vec::new();
    let mut part = [0; 1_024];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Unread::Refused(Answer::too_slow()));
        }
        client.set_read_timeout(Some(left)).map_err(|_| Unread::Gone)?;
        match client.read(&mut part) {
            Ok(0) => return Err(Unread::Gone),
            Ok(bytes) => head.extend_from_slice(&part[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return Err(Unread::Gone),
        }
        if head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n") {
            return Ok(head);
        }
        if head.len() > REQUEST_BYTES_MAX {
            return Err(Unread::Refused(Answer::too_long()));
        }
    }
}

/// Ends the program at a signal, whoever is being served.
fn end_at_signal() -> Result<(), Failure> {
    let mut signals = crate::node::signals()?;
    std::thread::spawn(move || {
        if signals.read_exact(&mut [0]).is_ok() {
            std::process::exit(0);
        }
    });
    Ok(())
}
