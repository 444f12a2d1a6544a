//! Where the programs of other systems are.

use std::env;
use std::path::{Path, PathBuf};

/// Names the folder of the drivers, if it is not beside the program's.
pub(super) const FOLDER_VARIABLE: &str = "POLYRAIL_PEERS";

/// A program of the system, from PATH; `install` is the line that brings it.
pub(super) fn installed(name: &str, install: &str) -> Result<PathBuf, String> {
    let found = env::var_os("PATH").and_then(|path| first(env::split_paths(&path), name));
    found.ok_or_else(|| format!("`{name}` is not installed: {install}"))
}

/// A driver that `make peers` builds; `install` is the line that brings what it is built from.
pub(super) fn driver(name: &str, install: &str) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = folders().into_iter().chain(env::split_paths(&path));
    first(folders, name).ok_or_else(|| {
        let places: Vec<String> = folders_named();
        format!("`{name}` is not in {} nor in PATH: {install}", places.join(" nor "))
    })
}

/// $POLYRAIL_PEERS, then `peers` beside the folder of this program.
fn folders() -> Vec<PathBuf> {
    let named = env::var_os(FOLDER_VARIABLE).map(PathBuf::from);
    let own = env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).and_then(Path::parent).map(|path| path.join("peers"));
    named.into_iter().chain(beside).collect()
}

fn folders_named() -> Vec<String> {
    folders().iter().map(|folder| folder.display().to_string()).collect()
}

fn first(folders: impl IntoIterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    folders.into_iter().map(|folder| folder.join(name)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_the_line_that_brings_it() {
        let error = installed("polyrail-no-such-program", "apt-get install it").unwrap_err();
        assert_eq!(error, "`polyrail-no-such-program` is not installed: apt-get install it");
        let error = driver("polyrail-no-such-program", "make peers").unwrap_err();
        assert!(error.contains("peers") && error.ends_with("nor in PATH: make peers"), "{error}");
    }

    #[test]
    fn only_a_file_that_can_be_run_is_a_program() {
        assert!(installed("sh", "").is_ok());
        assert_eq!(first([PathBuf::from("/proc/self")], "status"), None);
        assert_eq!(first([PathBuf::from("/")], "proc"), None);
    }
}
