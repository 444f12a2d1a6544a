//! Network name spaces: they belong to a thread, so a program can have a thread in each.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::call::check;

/// Moves the calling thread into the network name space that `ip netns` calls `name`. Sockets it opened before
/// stay where they were.
pub fn enter_netns(name: &str) -> io::Result<()> {
    let file = File::open(format!("/run/netns/{name}"))?;
    // SAFETY: the call takes no pointers.
    check(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) })?;
    Ok(())
}

/// Moves the calling thread into a new, empty network name space.
pub fn unshare_netns() -> io::Result<()> {
    // SAFETY: the call takes no pointers; a network name space is not shared memory or file state.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface;

    #[test]
    fn a_new_name_space_has_a_loopback_only() {
        let there = std::thread::spawn(|| match unshare_netns() {
            Ok(()) => Some(interface::list().unwrap()),
            Err(error) => {
                eprintln!("SKIPPED a_new_name_space_has_a_loopback_only: {error}");
                None
            }
        });
        if let Some(interfaces) = there.join().unwrap() {
            let own: Vec<_> = interfaces.iter().filter(|i| i.kind == interface::Kind::Loopback).collect();
            assert_eq!(own.len(), 1);
            assert!(!own[0].up && own[0].addresses.is_empty());
        }
    }

    #[test]
    fn an_unknown_name_space_is_not_found() {
        assert_eq!(enter_netns("no/such").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
