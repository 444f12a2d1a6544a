//! Files by streams of bytes.
//!
//!     cargo run --example file_server -- serve lo /usr/share/doc           on one machine
//!     cargo run --example file_server -- get lo base-files/README > copy   on another one, or in another shell
//!
//! A connection of a stream is read and written like a file. The name of the file leaves with the connection; the stream
//! ends behind the file's last byte, so that one that was cut short is not taken for the whole: it ends with an error.
//! With `--attach=PATH` for `lo` it uses a node that runs already.

mod common;

use polyrail::{Connect, Connection, Node, Port, Scope, ServiceAddress};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 21);
const FOUND: u8 = 1;
const NOT_FOUND: u8 = 0;

/// Serves the files below `folder`, one connection after the other, for ever.
pub fn serve(node: &Node, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let port = node.port()?;
    port.listen(128)?;
    port.bind(SERVICE, Scope::Cluster)?;
    loop {
        let connection = port.accept()?;
        if let Err(error) = answer(connection, folder) {
            eprintln!("a client went away: {error}");
        }
    }
}

/// Sends one file.
fn answer(mut connection: Connection<&Port>, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let name = connection.recv_timeout(Duration::from_secs(1))?.ok_or("no name")?.to_vec();
    match path_of(folder, &name).and_then(|path| File::open(path).ok()) {
        Some(mut file) => {
            connection.write_all(&[FOUND])?;
            io::copy(&mut file, &mut connection)?;
        }
        None => connection.write_all(&[NOT_FOUND])?,
    }
    connection.finish();
    Ok(())
}

/// The file of that name, if the name leads nowhere else.
fn path_of(folder: &Path, name: &[u8]) -> Option<PathBuf> {
    let name = Path::new(std::str::from_utf8(name).ok()?);
    let inside = name.components().all(|part| matches!(part, Component::Normal(_)));
    inside.then(|| folder.join(name))
}

/// Copies the file `name` of the server to `out`; how many bytes it had.
pub fn get(node: &Node, name: &str, out: &mut impl Write) -> Result<u64, Box<dyn std::error::Error>> {
    let port = node.port()?;
    port.wait_for(SERVICE, Some(Duration::from_secs(10)))?;
    let how = Connect { stream: true, first: Some(name.as_bytes()), last: true, ..Connect::default() };
    let mut connection = port.connect_with(SERVICE, &how)?;
    let mut found = [NOT_FOUND];
    Read::read_exact(&mut connection, &mut found)?;
    if found != [FOUND] {
        return Err(format!("{name}: the server has no such file").into());
    }
    Ok(io::copy(&mut connection, out)?)
}

#[allow(dead_code, reason = "the tests run the rest")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: file_server serve|get INTERFACE|--attach=PATH FOLDER|NAME";
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [verb, _, path] = &args[..] else { return Err(usage.into()) };
    let node = common::node(&args[1..2])?;
    match verb.as_str() {
        "serve" => serve(&node, Path::new(path)),
        "get" => get(&node, path, &mut io::stdout()).map(drop),
        _ => Err(usage.into()),
    }
}
