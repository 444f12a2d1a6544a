//! A picture as text, and on a terminal in place of the one before.

use super::picture::Picture;
use crate::output::{aligned, cell};
use crate::size::show_bytes;
use serde_json::Value;
use std::io::Write;
use std::time::Duration;

/// Where the size of the terminal is not told.
const LINES: usize = 24;
const COLUMNS: usize = 80;

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// A terminal that pictures are drawn on; whole again when the value goes.
pub struct Screen;

impl Screen {
    /// Hides the cursor, which would be everywhere.
    pub fn open() -> Screen {
        write(HIDE_CURSOR);
        Screen
    }

    /// Draws over the picture before, as much as there is room for.
    pub fn draw(&self, picture: &Picture, every: Duration) {
        let (height, width) = size();
        let mut text = HOME.to_owned();
        // The last line stays empty: the cursor comes to rest there.
        for line in lines(picture, every, Some(height - 1)) {
            // Before the words: behind a line as wide as the screen it would take the last of them.
            text.push_str(CLEAR_LINE);
            text.extend(line.chars().take(width));
            text.push('\n');
        }
        text.push_str(CLEAR_BELOW);
        write(&text);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the cursor back.
pub fn restore() {
    write(SHOW_CURSOR);
}

fn write(text: &str) {
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        // The terminal is gone, and whoever looked at it.
        std::process::exit(1);
    }
}

/// Lines and columns of the terminal, enough for a heading at least.
fn size() -> (usize, usize) {
    let told = rustix::termios::tcgetwinsize(std::io::stdout()).ok().filter(|size| size.ws_row > 0);
    let (height, width) = told.map_or((LINES, COLUMNS), |size| (size.ws_row.into(), size.ws_col.into()));
    (height.max(4), width.max(20))
}

/// A picture for people. Of what does not fit into `height` lines the last rows are left out, and counted.
pub fn lines(picture: &Picture, every: Duration, height: Option<usize>) -> Vec<String> {
    let (ports, links) = (picture.ports.len(), picture.links.len());
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let every_s = every.as_secs_f64();
    let mut lines = vec![
        format!("{}: {}, {}, every {every_s} s", picture.node, plural(ports, "port"), plural(links, "link")),
        String::new(),
    ];
    // Links are few as a rule, and ports may be very many.
    let room = height.map(|height| height.saturating_sub(lines.len() + 1));
    let links_room = room.map(|room| (links + 1).min(room / 2));
    let ports_room = room.zip(links_room).map(|(room, links)| room - links);
    lines.extend(bounded(port_table(&picture.ports), ports_room));
    lines.push(String::new());
    lines.extend(bounded(link_table(&picture.links), links_room));
    lines.iter().map(|line| printable(line)).collect()
}

/// The first lines; in place of the others how many there are.
fn bounded(mut lines: Vec<String>, room: Option<usize>) -> Vec<String> {
    let Some(room) = room.filter(|room| *room < lines.len()) else { return lines };
    let more = lines.len() - room.saturating_sub(1);
    lines.truncate(room.saturating_sub(1));
    if room > 0 {
        lines.push(format!("... and {more} more; --sort says which come first"));
    }
    lines
}

/// What others have named may hold anything, also what a terminal obeys.
fn printable(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn port_table(ports: &[Value]) -> Vec<String> {
    let headings = [
        "port",
        "program",
        "pid",
        "uid",
        "sent/s",
        "sent_B/s",
        "received/s",
        "received_B/s",
        "unconfirmed",
        "commands",
        "unread",
        "free",
    ];
    let row = |port: &Value| {
        vec![
            cell(&port["port"]),
            cell(&port["program"]),
            cell(&port["pid"]),
            cell(&port["uid"]),
            number(&port["sent_messages_per_s"]),
            bytes(&port["sent_bytes_per_s"]),
            number(&port["received_messages_per_s"]),
            bytes(&port["received_bytes_per_s"]),
            cell(&port["messages_unconfirmed"]),
            cell(&port["commands_waiting"]),
            cell(&port["completions_waiting"]),
            bytes(&port["receive_free_bytes"]),
        ]
    };
    let rows: Vec<Vec<String>> = ports.iter().map(row).collect();
    aligned(&headings, &rows, &to_right(&headings, &["program"]))
}

fn link_table(links: &[Value]) -> Vec<String> {
    let headings = [
        "link",
        "bearer",
        "state",
        "rate/s",
        "rtt_us",
        "sent_B/s",
        "received_B/s",
        "lost/s",
        "lost_percent",
        "inflight",
    ];
    let row = |link: &Value| {
        vec![
            cell(&link["name"]),
            cell(&link["bearer"]),
            state(link),
            bytes(known(&link["rate_bytes_per_s"])),
            cell(known(&link["rtt_us"])),
            bytes(&link["sent_bytes_per_s"]),
            bytes(&link["received_bytes_per_s"]),
            number(&link["lost_packets_per_s"]),
            cell(&link["lost_percent"]),
            bytes(&link["inflight_bytes"]),
        ]
    };
    let rows: Vec<Vec<String>> = links.iter().map(row).collect();
    aligned(&headings, &rows, &to_right(&headings, &["link", "bearer", "state"]))
}

/// All but those that are words.
fn to_right(headings: &[&str], words: &[&str]) -> Vec<bool> {
    headings.iter().map(|heading| !words.contains(heading)).collect()
}

/// What is wanted of a link is told if it is not to be used as any other.
fn state(link: &Value) -> String {
    let aside = [&link["status"], &link["status_of_peer"]].into_iter().filter_map(Value::as_str);
    let aside = aside.filter(|status| *status != "active").max();
    aside.map_or_else(|| cell(&link["state"]), |aside| format!("{}, {aside}", cell(&link["state"])))
}

/// The lists have 0 for what was never measured.
fn known(value: &Value) -> &Value {
    if value.as_f64() == Some(0.0) { &Value::Null } else { value }
}

fn bytes(value: &Value) -> String {
    value.as_f64().map_or_else(|| cell(value), |bytes| show_bytes(bytes.round() as u64))
}

/// Small rates with a decimal, large ones without.
fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(rate) if rate >= 100.0 || rate == 0.0 => format!("{rate:.0}"),
        _ => cell(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn port(number: u64) -> Value {
        json!({
            "port": number, "program": "ingest\u{1b}[2J", "pid": 7, "uid": 1000, "sent_messages_per_s": 1234.5,
            "sent_bytes_per_s": 3_145_728.0, "received_messages_per_s": 2.5, "received_bytes_per_s": 0.0,
            "messages_unconfirmed": 5, "commands_waiting": 0, "completions_waiting": 3, "receive_free_bytes": 4_194_304,
        })
    }

    fn link(status: &str) -> Value {
        json!({
            "name": "beta/0", "bearer": "udp/l0", "state": "up", "status": status, "status_of_peer": "active",
            "rate_bytes_per_s": 0, "rtt_us": 61.25, "sent_bytes_per_s": null, "received_bytes_per_s": 100.0,
            "lost_packets_per_s": 0.5, "lost_percent": null, "inflight_bytes": 2_048,
        })
    }

    fn picture(ports: u64) -> Picture {
        let ports = (0..ports).map(port).collect();
        Picture { node: "alpha".into(), span: None, ports, links: vec![link("drain")] }
    }

    #[test]
    fn ports_come_first_and_then_links_with_units() {
        let lines = lines(&picture(1), Duration::from_millis(500), None);
        assert_eq!(lines[0], "alpha: 1 port, 1 link, every 0.5 s");
        for word in ["1234", "3.0 MiB", "2.5", "0 B", "4.0 MiB", "1000"] {
            assert!(lines[3].contains(word), "{word}: {}", lines[3]);
        }
        for word in ["beta/0", "up, drain", "61.2", "100 B", "0.5", "2.0 KiB", "  -"] {
            assert!(lines[6].contains(word), "{word}: {}", lines[6]);
        }
        assert_eq!(lines.len(), 7);
    }

    #[test]
    fn nothing_that_a_program_calls_itself_reaches_the_terminal_as_a_command() {
        assert!(lines(&picture(1), Duration::from_secs(1), None).iter().all(|line| !line.contains('\u{1b}')));
    }

    #[test]
    fn a_picture_never_has_more_lines_than_there_is_room_for() {
        for height in 3..40 {
            let lines = lines(&picture(20), Duration::from_secs(1), Some(height));
            assert!(lines.len() <= height, "{height}: {lines:#?}");
        }
        let lines = lines(&picture(20), Duration::from_secs(1), Some(10));
        assert!(lines.iter().any(|line| line.starts_with("... and 17 more;")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("beta/0")), "{lines:#?}");
    }
}
