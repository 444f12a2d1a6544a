//! A real browser without a window, spoken to over two pipes by its own protocol for debugging.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine;
use serde_json::{Value, json};

/// How long an answer may take: a machine may be busy with much else.
const ANSWER_MAX: Duration = Duration::from_secs(180);
/// As much of a page as is looked at by its points.
const PICTURE_HEIGHT_MAX: f64 = 8_000.0;
/// Names of browsers that speak the protocol.
const NAMES: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// What a page is shown on.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// In points.
    pub width: u32,
    pub is_dark: bool,
}

/// What was on a screen.
pub struct Picture {
    bytes: Vec<u8>,
    bytes_per_point: usize,
}

impl Picture {
    /// Red, green and blue of each point.
    pub fn points(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.bytes_per_point).map(|point| &point[..3])
    }
}

/// A browser with one page; it ends with the value.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    number: u64,
    /// What the page asked for since it was opened.
    requests: Vec<String>,
    folder: PathBuf,
}

impl Browser {
    /// Starts the browser that is installed; the test fails where there is none, and says what installs it.
    pub fn start() -> Self {
        let program = program();
        let folder =
            std::env::temp_dir().join(format!("polyrail-browser-{}-{:p}", std::process::id(), &NAMES));
        let folder = folder.with_extension(format!("{:?}", std::thread::current().id()));
        let mut command = Command::new("sh");
        // The protocol is spoken over the descriptors 3 and 4.
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 1>/dev/null 2>/dev/null"]).arg(program);
        command.args([
            "--headless",
            "--remote-debugging-pipe",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
        ]);
        command.arg(format!("--user-data-dir={}", folder.display()));
        if rustix::process::geteuid().is_root() {
            // Its sandbox refuses to run as root; the page is of our own making.
            command.arg("--no-sandbox");
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell starts the browser");
        let commands = child.stdin.take().expect("a pipe");
        let mut answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let (found, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while let Ok(1..) = answers.read_until(0, &mut message) {
                message.pop();
                let value = serde_json::from_slice(&message).expect("the browser says JSON");
                message.clear();
                if found.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            commands,
            messages,
            session: String::new(),
            number: 0,
            requests: Vec::new(),
            folder,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        browser.call("Page.enable", json!({}));
        browser.call("Network.enable", json!({}));
        browser
    }

    /// Opens a file on a screen and waits until it is shown.
    pub fn open(&mut self, page: &str, screen: Screen) {
        let Screen { width, is_dark } = screen;
        let size = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 700 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme =
            json!({ "name": "prefers-color-scheme", "value": if is_dark { "dark" } else { "light" } });
        self.call("Emulation.setEmulatedMedia", json!({ "features": [scheme] }));
        self.requests.clear();
        self.call("Page.navigate", json!({ "url": format!("file://{page}") }));
        while self.next()["method"] != "Page.loadEventFired" {}
        // What is closed is part of the page: tables that are too wide would hide there.
        self.ask("for (const d of document.querySelectorAll('details')) d.open = true; ''");
    }

    /// The text that an expression gives.
    pub fn ask(&mut self, expression: &str) -> String {
        let answer =
            self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        let text = answer["result"]["value"].as_str();
        text.unwrap_or_else(|| panic!("{expression}: {answer}")).to_owned()
    }

    /// What the page asked for since it was opened, itself included.
    pub fn requests(&self) -> &[String] {
        &self.requests
    }

    /// The beginning of the page, below the screen's edge too.
    pub fn picture(&mut self) -> Picture {
        let metrics = self.call("Page.getLayoutMetrics", json!({}));
        let size = &metrics["cssContentSize"];
        let height = size["height"].as_f64().unwrap_or(0.0).min(PICTURE_HEIGHT_MAX);
        let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1 });
        let asked = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let answer = self.call("Page.captureScreenshot", asked);
        let text = answer["data"].as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
        if let Some(folder) = std::env::var_os("POLYRAIL_PICTURES") {
            let path = PathBuf::from(folder)
                .join(format!("page-{}x{}-{}.png", size["width"], size["height"], self.number));
            std::fs::write(path, &bytes).expect("POLYRAIL_PICTURES names a folder");
        }
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG");
        let mut bytes = vec![0; reader.output_buffer_size().expect("a picture that fits into memory")];
        let frame = reader.next_frame(&mut bytes).expect("a picture");
        assert_eq!(frame.bit_depth, png::BitDepth::Eight);
        bytes.truncate(frame.buffer_size());
        Picture { bytes, bytes_per_point: frame.color_type.samples() }
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let text = format!("{message}\0");
        self.commands.write_all(text.as_bytes()).expect("the browser runs");
        loop {
            let answer = self.next();
            if answer["id"] == self.number {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// The next message; what the page asks for is noted.
    fn next(&mut self) -> Value {
        let message = self.messages.recv_timeout(ANSWER_MAX).expect("the browser answers");
        if message["method"] == "Network.requestWillBeSent" {
            self.requests.push(message["params"]["request"]["url"].as_str().unwrap_or_default().to_owned());
        }
        message
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The browser that is installed.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = NAMES.iter().find_map(|name| {
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
    });
    found.unwrap_or_else(|| {
        panic!(
            "no browser among {}: install one, for example by `apt-get install --no-install-recommends chromium-headless-shell`",
            NAMES.join(", ")
        )
    })
}
