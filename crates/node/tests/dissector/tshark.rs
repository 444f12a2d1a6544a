//! A capture file, tshark, and what it says.

use polyrail_bearer::Address;
use polyrail_bearer::capture::{Captured, file_header};
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// Whether tshark can be run; that it cannot is said past the capture of the test's output.
pub fn installed(test: &str) -> bool {
    let there = Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: no tshark (apt-get install tshark)");
    }
    there
}

/// A file that vanishes with the value.
pub struct Capture {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Capture {
    /// For packets over IP.
    pub fn ip(name: &str) -> Capture {
        let path =
            std::env::temp_dir().join(format!("polyrail-dissector-{}-{name}.pcap", std::process::id()));
        Capture { path, bytes: file_header().to_vec() }
    }

    /// For Ethernet frames.
    pub fn ethernet(name: &str) -> Capture {
        let mut capture = Capture::ip(name);
        capture.bytes[20..24].copy_from_slice(&1u32.to_le_bytes());
        capture
    }

    /// A datagram.
    pub fn udp(&mut self, from: u16, to: u16, packet: &[u8]) {
        self.cut(from, to, packet, packet.len());
    }

    /// The beginning of a datagram.
    pub fn cut(&mut self, from: u16, to: u16, bytes: &[u8], whole_bytes: usize) {
        let address = |last: u8, port: u16| Address::Ip(([10, 0, 0, last], port).into());
        let (from, to) = (address(1, from), address(2, to));
        Captured { unix_ns: 1, from, to, bytes, whole_bytes }.put(&mut self.bytes);
    }

    /// An Ethernet frame.
    pub fn frame(&mut self, frame: &[u8]) {
        let length = frame.len() as u32;
        for word in [0, 1, length, length] {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.bytes.extend_from_slice(frame);
    }

    /// What tshark makes of each packet.
    pub fn decode(&self) -> Vec<Seen> {
        std::fs::write(&self.path, &self.bytes).expect("a temporary file can be written");
        let script =
            concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/polyrail.lua");
        let output = Command::new("tshark")
            .args([
                "-n",
                "-X",
                script,
                "-T",
                "json",
                "--no-duplicate-keys",
                "-J",
                "polyrail polyrail_express",
                "-r",
            ])
            .arg(&self.path)
            // Nobody's own settings.
            .env("HOME", std::env::temp_dir())
            .env_remove("XDG_CONFIG_HOME")
            .output()
            .expect("tshark starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("Lua"), "{said}");
        let packets: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let packets = packets.as_array().expect("a list of packets").iter();
        packets.map(|packet| Seen::of(&packet["_source"]["layers"])).collect()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The fields of one packet, with their values as texts, in the order of the packet.
#[derive(Debug)]
pub struct Seen(Vec<(String, String)>);

impl Seen {
    fn of(layers: &Value) -> Seen {
        let mut seen = Seen(Vec::new());
        seen.add("", layers);
        seen
    }

    fn add(&mut self, name: &str, value: &Value) {
        match value {
            Value::Object(members) => members.iter().for_each(|(name, value)| self.add(name, value)),
            Value::Array(values) => values.iter().for_each(|value| self.add(name, value)),
            Value::String(text) => self.0.push((name.to_owned(), text.clone())),
            other => self.0.push((name.to_owned(), other.to_string())),
        }
    }

    /// The values of a field as texts.
    pub fn texts(&self, field: &str) -> Vec<String> {
        self.0.iter().filter(|(name, _)| name == field).map(|(_, text)| text.clone()).collect()
    }

    /// The values of a field as numbers.
    pub fn values(&self, field: &str) -> Vec<u64> {
        let read = |text: &String| match (text.as_str(), text.strip_prefix("0x")) {
            ("True", _) => Some(1),
            ("False", _) => Some(0),
            (_, Some(digits)) => u64::from_str_radix(digits, 16).ok(),
            (digits, None) => digits.parse().ok(),
        };
        let texts = self.texts(field);
        texts.iter().map(|text| read(text).unwrap_or_else(|| panic!("{field} is {text:?}"))).collect()
    }

    /// What the dissector calls malformed.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.texts("_ws.expert.message");
        faults.retain(|text| text.starts_with("malformed") || text.contains("Lua"));
        faults.extend(self.texts("_ws.lua.text"));
        faults
    }
}
