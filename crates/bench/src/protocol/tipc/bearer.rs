//! TIPC between the nodes of a testbed: Ethernet bearers on the first two links.
//!
//! The second has the lower priority and stands by: with equal ones a connection would take either link by chance.

use std::process::Stdio;
use std::time::Duration;

use crate::clock::now_ns;
use crate::netns::{Testbed, device};

/// Links that TIPC uses; a third between the same nodes is never made by the kernel.
const LINKS_MAX: usize = 2;
/// Priorities of their bearers.
const PRIORITIES: [&str; LINKS_MAX] = ["10", "9"];
/// How long the nodes may take to find each other.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// Makes every node of the testbed a TIPC node and waits for the links between them. What is done already stays.
pub(super) fn prepare(testbed: &Testbed) -> Result<(), String> {
    let links = testbed.spec().links.len().min(LINKS_MAX);
    for node in 0..testbed.spec().nodes {
        if in_node(testbed, node, &["tipc", "bearer", "list"])?.contains(&format!("eth:{}", device(0))) {
            continue;
        }
        keep_to_the_links(testbed, node, links)?;
        // A node that is numbered by hand need not find out for a second whether its number is free.
        in_node(testbed, node, &["tipc", "node", "set", "address", &format!("1.1.{}", node + 1)])?;
        for (link, priority) in PRIORITIES.iter().enumerate().take(links) {
            let device = device(link);
            let bearer = ["priority", priority, "media", "eth", "device", &device];
            in_node(testbed, node, &[&["tipc", "bearer", "enable"], bearer.as_slice()].concat())?;
        }
    }
    (0..testbed.spec().nodes).try_for_each(|node| await_links(testbed, node, links))
}

/// Two namespaces of one kernel know each other by a number in their greetings (word 13 of messages of user 13), and then
/// hand messages over past every link. That would be measured as if it were the link, so the number is blotted out.
fn keep_to_the_links(testbed: &Testbed, node: usize, links: usize) -> Result<(), String> {
    let mut table = String::from("table netdev polyrail_tipc {\n");
    for device in (0..links).map(device) {
        table += &format!(
            "chain in_{device} {{ type filter hook ingress device \"{device}\" priority -1; policy accept; \
             ether type 0x88ca @nh,3,4 13 @nh,416,32 set 0x0; }}\n"
        );
    }
    in_node(testbed, node, &["nft", &(table + "}")]).map(drop)
}

fn await_links(testbed: &Testbed, node: usize, links: usize) -> Result<(), String> {
    let start_ns = now_ns();
    loop {
        let list = in_node(testbed, node, &["tipc", "link", "list"])?;
        if links_up(&list) >= links * (testbed.spec().nodes - 1) {
            return Ok(());
        }
        if u128::from(now_ns() - start_ns) > UP_WITHIN.as_nanos() {
            let seen = list.trim().replace('\n', ", ");
            let limit_s = UP_WITHIN.as_secs();
            return Err(format!("TIPC's links are not up after {limit_s} s: `tipc link list` says: {seen}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Links to other nodes that work, by the words of `tipc link list`.
fn links_up(list: &str) -> usize {
    let is_up = |line: &&str| !line.starts_with("broadcast-link") && line.trim_end().ends_with(": up");
    list.lines().filter(is_up).count()
}

/// Runs a command in a node and gives what it writes.
fn in_node(testbed: &Testbed, node: usize, words: &[&str]) -> Result<String, String> {
    let (program, args) = words.split_first().expect("a command has a name");
    let line = words.join(" ");
    let output = testbed.command(node, program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`{line}`: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(explain(program, &line, String::from_utf8_lossy(&output.stderr).trim()))
}

fn explain(program: &str, line: &str, stderr: &str) -> String {
    // The words of `ip netns exec`.
    if stderr.contains(&format!("exec of \"{program}\" failed: No such file")) {
        let package = if program == "nft" { "nftables" } else { "iproute2" };
        return format!("command `{program}` not found: install the package {package}");
    }
    // nft repeats what it was given below what is wrong with it.
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("`{line}`: {}", stderr.lines().next().unwrap_or("refused without a word"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_other_nodes_that_work_are_counted() {
        let list = "broadcast-link: up\n1001001:l0-1001002:l0: up\n1001001:l1-1001002:l1: down\n";
        assert_eq!(links_up(list), 1);
        assert_eq!(links_up("broadcast-link: up\n"), 0);
    }

    #[test]
    fn a_missing_program_is_told_apart_from_one_that_refuses() {
        let missing = explain("tipc", "tipc link list", "exec of \"tipc\" failed: No such file or directory");
        assert!(missing.contains("install the package iproute2"), "{missing}");
        let refused = explain("tipc", "tipc link list", "error: Operation not permitted");
        assert_eq!(refused, "`tipc link list`: error: Operation not permitted");
        let long = explain("nft", "nft table {\n}", "Error: syntax error\ntable {\n}\n^");
        assert_eq!(long, "`nft table { }`: Error: syntax error");
    }
}
