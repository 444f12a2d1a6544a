//! How much memory and how many descriptors there are for this process.

use std::path::{Path, PathBuf};

/// The memory of the machine, or of the control group of this process if that has less; 0 bytes are never told.
pub(crate) fn memory_bytes() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| machine_bytes(&text)).unwrap_or(u64::MAX);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups, Path::new("/sys/fs/cgroup"));
    let limits = limits.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    limits.filter_map(|text| limit_bytes(&text)).fold(machine, u64::min).max(1)
}

/// Descriptors that this process may have open; `None` if that is not limited or not told.
pub(crate) fn descriptors() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Where limits of the groups stand that a process is in, those above included: of the second version of control groups
/// (`0::/a/b`) or of the first (`4:memory:/a/b`).
fn limit_files(groups: &str, root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let (folder, name) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        files.extend(group.ancestors().map(|group| folder.join(group).join(name)));
    }
    files
}

/// `None`: there is none.
fn limit_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_has_is_read() {
        assert_eq!(machine_bytes("MemTotal:       24 kB\nMemFree: 3 kB\n"), Some(24 * 1024));
        assert_eq!(machine_bytes("MemFree: 3 kB\n"), None);
        assert!(memory_bytes() > 1 << 20);
        assert!(descriptors().is_none_or(|count| count >= 8));
    }

    #[test]
    fn limits_of_both_versions_of_control_groups_are_found_up_to_the_root() {
        let root = Path::new("/g");
        let files = |groups: &str| -> Vec<String> {
            limit_files(groups, root).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(files("0::/a/b\n"), ["/g/a/b/memory.max", "/g/a/memory.max", "/g/memory.max"]);
        let first = ["/g/memory/a/memory.limit_in_bytes", "/g/memory/memory.limit_in_bytes"];
        assert_eq!(files("5:devices:/x\n4:memory:/a\n"), first);
        assert_eq!(files("nonsense\n"), [""; 0]);
        assert_eq!((limit_bytes("max\n"), limit_bytes("4096\n")), (None, Some(4096)));
    }
}
