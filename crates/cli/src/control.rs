//! Questions to a running node over its control socket: one line of JSON each way (docs/operating.md, "Control
//! socket").

use crate::failure::{Exit, Failure};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a node may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
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

/// The rows that a node answers to `command`. Without a path, the only node of this machine is asked.
pub fn rows(path: Option<&Path>, command: &str) -> Result<Vec<Value>, Failure> {
    let (path, stream) = match path {
        Some(path) => (path.to_path_buf(), connect(path)?),
        None => only(&folder())?,
    };
    let answer = ask(stream, command).map_err(|error| {
        let exit = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Exit::TimedOut,
            _ => Exit::Failed,
        };
        Failure::new(exit, format!("{}: no answer: {error}", path.display()))
    })?;
    read(&answer)
        .map_err(|failure| Failure::new(failure.exit, format!("{}: {}", path.display(), failure.message)))
}

fn connect(path: &Path) -> Result<UnixStream, Failure> {
    UnixStream::connect(path).map_err(|error| {
        Failure::new(Exit::NotFound, format!("{}: no node answers: {error}", path.display()))
    })
}

/// The control socket behind which a node lives, if there is exactly one in the folder.
fn only(folder: &Path) -> Result<(PathBuf, UnixStream), Failure> {
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
            format!("several nodes run here; choose one by --control: {}", names.join(" ")),
        )),
    }
}

fn ask(mut stream: UnixStream, command: &str) -> std::io::Result<String> {
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    stream.write_all(format!("{}\n", json!({ "command": command })).as_bytes())?;
    let mut answer = String::new();
    BufReader::new(std::io::Read::take(stream, ANSWER_BYTES_MAX)).read_line(&mut answer)?;
    if answer.ends_with('\n') { Ok(answer) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

fn read(answer: &str) -> Result<Vec<Value>, Failure> {
    let not_understood = || Failure::failed("answer not understood");
    let mut answer: Value = serde_json::from_str(answer).map_err(|_| not_understood())?;
    if answer["ok"] == true {
        return match answer["rows"].take() {
            Value::Array(rows) => Ok(rows),
            _ => Err(not_understood()),
        };
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
        assert_eq!(rows(Some(&path), "link list"), Ok(vec![json!({ "link": 1 })]));
        assert_eq!(node.join().unwrap(), "{\"command\":\"link list\"}\n");
    }

    #[test]
    fn a_refusal_keeps_its_code() {
        let refusal = read("{\"ok\":false,\"error\":{\"code\":\"not_found\",\"message\":\"no peer x\"}}\n");
        assert_eq!(refusal, Err(Failure::new(Exit::NotFound, "no peer x")));
        for wrong in ["", "{}", "[1]", "{\"ok\":true}", "{\"ok\":true,\"rows\":3}"] {
            assert_eq!(read(wrong).unwrap_err().exit, Exit::Failed, "{wrong:?}");
        }
    }

    #[test]
    fn an_answer_cut_short_is_a_failure() {
        let folder = Folder::new("cut");
        let path = folder.0.join("a.sock");
        let node = answer_once(UnixListener::bind(&path).unwrap(), "{\"ok\":true,\"rows\":[");
        let failure = rows(Some(&path), "link list").unwrap_err();
        node.join().unwrap();
        assert!(failure.exit == Exit::Failed && failure.message.contains("no answer"), "{failure:?}");
    }

    #[test]
    fn the_only_living_node_is_found_and_dead_sockets_are_passed_over() {
        let folder = Folder::new("only");
        assert_eq!(only(&folder.0).unwrap_err().exit, Exit::NotFound);
        drop(UnixListener::bind(folder.0.join("dead.sock")).unwrap());
        assert_eq!(only(&folder.0).unwrap_err().exit, Exit::NotFound);
        let _alive = UnixListener::bind(folder.0.join("alive.sock")).unwrap();
        assert_eq!(only(&folder.0).unwrap().0, folder.0.join("alive.sock"));
        let _other = UnixListener::bind(folder.0.join("other.sock")).unwrap();
        let failure = only(&folder.0).unwrap_err();
        assert!(failure.exit == Exit::Usage && failure.message.contains("other.sock"), "{failure:?}");
    }
}
