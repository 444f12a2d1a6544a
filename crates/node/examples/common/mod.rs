//! Where an example gets its node from: the rest of it is the same either way.

use polyrail::{Config, Node, StartError};

/// The node of an example, by the words of its command line that say where: interfaces, for a node of its own, or
/// `--attach=PATH`, for that of another process (`polyrail node` tells the path when it starts).
pub fn node(words: &[String]) -> Result<Node, StartError> {
    let path = if let [word] = words { word.strip_prefix("--attach=") } else { None };
    match path {
        Some(path) => Node::attach(path),
        None => Node::embed(Config::new().insecure().interfaces(words)),
    }
}
