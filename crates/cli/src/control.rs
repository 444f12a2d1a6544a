//! Questions to a running node over its control socket: one line of JSON each way (docs/operating.md, "Control
//! socket").

use crate::failure::{Exit, Failure};
use serde_json::{Map, Value, json};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a node may take to answer, also on a machine with far more to do than it has cores.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// No answer is longer: a list of every service of a large cluster is far below.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Where `polyrail node` puts control sockets: /run/polyrail for root, else below $XDG_RUNTIME_DIR or /tmp.
pub fn folder() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return PathBuf::from("/run/polyrail");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(run) => PathBuf::from(run).join("polyrail"),
        None => PathBuf::from(format!("/tmp/polyrail-{}", user.as_raw())),
    }
}

/// What a node is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Noun and verb.
    pub command: &'a str,
    /// The thing that is meant, if it is about one.
    pub name: Option<&'a str>,
    /// Further members, if it is about some of many.
    pub only: Option<&'a Value>,
}

impl Question<'_> {
    fn to_json(self) -> Value {
        let mut question = json!({ "command": self.command });
        if let Some(name) = self.name {
            question["name"] = json!(name);
        }
        for (member, value) in self.only.and_then(Value::as_object).into_iter().flatten() {
            question[member] = value.clone();
        }
        question
    }
}

/// What a node answers. Without a path, the only node of this machine is asked.
pub fn ask(path: Option<&Path>, question: &Question<'_>) -> Result<Value, Failure> {
    let (path, stream) = open(path)?;
    let answer = exchange(stream, &question.to_json()).map_err(|error| no_answer(&path, &error))?;
    read(&answer)
        .map_err(|failure| Failure::new(failure.exit, format!("{}: {}", path.display(), failure.message)))
}

/// The rows of an answer.
pub fn rows_of(answer: &Value) -> Result<&[Value], Failure> {
    answer["rows"].as_array().map(Vec::as_slice).ok_or_else(not_understood)
}

/// The groups of an answer.
pub fn groups_of(answer: &Value) -> Result<&Map<String, Value>, Failure> {
    answer["show"].as_object().ok_or_else(not_understood)
}

/// A connection to a node, and where it is.
pub fn open(path: Option<&Path>) -> Result<(PathBuf, UnixStream), Failure> {
    match path {
        Some(path) => Ok((path.to_path_buf(), connect(path)?)),
        None => only_in(&folder()),
    }
}

/// The control socket of the only node of this machine.
pub fn only() -> Result<PathBuf, Failure> {
    only_in(&folder()).map(|(path, _)| path)
}

/// The failure of a node that did not answer.
pub fn no_answer(path: &Path, error: &std::io::Error) -> Failure {
    let exit = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Exit::TimedOut,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("{}: no answer: {error}", path.display()))
}

fn not_understood() -> Failure {
    Failure::failed("answer not understood")
}

fn connect(path: &Path) -> Result<UnixStream, Failure> {
    UnixStream::connect(path).map_err(|error| {
        Failure::new(Exit::NotFound, format!("{}: no node answers: {error}", path.display()))
    })
}

/// The control socket behind which a node lives, if there is exactly one in the folder.
fn only_in(folder: &Path) -> Result<(PathBuf, UnixStream), Failure> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
    paths.sort();
    // Sockets that a killed node left behind refuse.
    let mut alive: Vec<_> =
        paths.into_iter().filter_map(|p| UnixStream::connect(&p).ok().map(|s| (p, s))).collect();
    let names: Vec<String> = alive.iter().map(|(path, _)| path.display().to_string()).collect();
    match alive.len() {
        1 => Ok(alive.remove(0)),
        0 => Err(Failure::new(
            Exit::NotFound,
            format!("no node has a control socket in {}; start one by `polyrail node`", folder.display()),
        )),
        _ => Err(Failure::new(
            Exit::Usage,
            format!(
                "several nodes run here; choose one by --control, or of those that end in .attach by --attach: {}",
                names.join(" ")
            ),
        )),
    }
}

fn exchange(mut stream: UnixStream, question: &Value) -> std::io::Result<String> {
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    stream.write_all(format!("{question}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(std::io::Read::take(stream, ANSWER_BYTES_MAX)).read_line(&mut answer)?;
    if answer.ends_with('\n') { Ok(answer) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

/// An answer that is not a refusal.
pub fn read(answer: &str) -> Result<Value, Failure> {
    let answer: Value = serde_json::from_str(answer).map_err(|_| not_understood())?;
    if answer["ok"] == true {
        return Ok(answer);
    }
    let error = &answer["error"];
    let message = error["message"].as_str().ok_or_else(not_understood)?;
    Err(Failure::new(Exit::from_name(error["code"].as_str().unwrap_or_default()), message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A folder of its own that vanishes with the value.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("polyrail-control-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Answers one question with `answer`, and gives the question.
    fn answer_once(listener: UnixListener, answer: &'static str) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut question = String::new();
            BufReader::new(&stream).read_line(&mut question).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
            question
        })
    }

    #[test]
    fn a_question_is_a_line_and_so_is_the_answer() {
        let folder = Folder::new("line");
        let path = folder.0.join("a.sock");
        let node = answer_once(UnixListener::bind(&path).unwrap(), "{\"ok\":true,\"rows\":[{\"link\":1}]}\n");
        let question = Question { command: "link list", name: None, only: None };
        let answer = ask(Some(&path), &question).unwrap();
        assert_eq!(rows_of(&answer), Ok(&[json!({ "link": 1 })][..]));
        assert_eq!(node.join().unwrap(), "{\"command\":\"link list\"}\n");
        let question = Question { command: "link show", name: Some("beta/1"), only: None };
        assert_eq!(question.to_json().to_string(), "{\"command\":\"link show\",\"name\":\"beta/1\"}");
        let only = json!({ "limit": 7 });
        let question = Question { command: "connection list", name: None, only: Some(&only) };
        assert_eq!(question.to_json().to_string(), "{\"command\":\"connection list\",\"limit\":7}");
    }

    #[test]
    fn a_refusal_keeps_its_code() {
        let refusal = read("{\"ok\":false,\"error\":{\"code\":\"not_found\",\"message\":\"no peer x\"}}\n");
        assert_eq!(refusal, Err(Failure::new(Exit::NotFound, "no peer x")));
        for wrong in ["", "{}", "[1]"] {
            assert_eq!(read(wrong).unwrap_err().exit, Exit::Failed, "{wrong:?}");
        }
        for wrong in [json!({ "ok": true }), json!({ "rows": 3, "show": 3 })] {
            assert!(rows_of(&wrong).is_err() && groups_of(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_cut_short_is_a_failure() {
        let folder = Folder::new("cut");
        let path = folder.0.join("a.sock");
        let node = answer_once(UnixListener::bind(&path).unwrap(), "{\"ok\":true,\"rows\":[");
        let failure =
            ask(Some(&path), &Question { command: "link list", name: None, only: None }).unwrap_err();
        node.join().unwrap();
        assert!(failure.exit == Exit::Failed && failure.message.contains("no answer"), "{failure:?}");
    }

    #[test]
    fn the_only_living_node_is_found_and_dead_sockets_are_passed_over() {
        let folder = Folder::new("only");
        assert_eq!(only_in(&folder.0).unwrap_err().exit, Exit::NotFound);
        drop(UnixListener::bind(folder.0.join("dead.sock")).unwrap());
        assert_eq!(only_in(&folder.0).unwrap_err().exit, Exit::NotFound);
        let _alive = UnixListener::bind(folder.0.join("alive.sock")).unwrap();
        assert_eq!(only_in(&folder.0).unwrap().0, folder.0.join("alive.sock"));
        let _other = UnixListener::bind(folder.0.join("other.sock")).unwrap();
        let failure = only_in(&folder.0).unwrap_err();
        assert!(failure.exit == Exit::Usage && failure.message.contains("other.sock"), "{failure:?}");
    }
}
