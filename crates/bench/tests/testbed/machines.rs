//! A receiver on another machine. The two machines are the nodes of a testbed that the measuring program knows nothing
//! of: it has a host's address and a key.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use polyrail_bench::netns::{LinkSpec, Spec, Testbed};
use serde_json::Value;

use super::{PROGRAM, name, output};

/// Two machines, of which the second serves.
struct Machines {
    testbed: Testbed,
    folder: PathBuf,
    server: Child,
}

impl Machines {
    fn new(what: &str, links: usize, serve: &[&str]) -> Self {
        let link = LinkSpec { rate_mbit: Some(200), ..LinkSpec::default() };
        let testbed = Testbed::create(Spec::pair(name(what), vec![link; links])).expect("testbed");
        let folder = std::env::temp_dir().join(format!("polyrail-{}", name(what)));
        std::fs::create_dir_all(&folder).expect("folder");
        for key in ["key", "other"] {
            let path = folder.join(key);
            let made =
                program(None, &["serve", "--make-key", &path.to_string_lossy()]).output().expect("key");
            assert_eq!(made.status.code(), Some(0), "{made:?}");
        }
        let server = Self::serve(&testbed, &folder, serve);
        Self { testbed, folder, server }
    }

    fn serve(testbed: &Testbed, folder: &std::path::Path, more: &[&str]) -> Child {
        let (address, key) = (testbed.address(1, 0).to_string(), folder.join("key"));
        let line = ["serve", "--listen", &address, "--key-file", &key.to_string_lossy(), "--json"];
        let mut server = program(Some((testbed, 1)), &line)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("server");
        let mut said = String::new();
        BufReader::new(server.stdout.take().expect("stdout")).read_line(&mut said).expect("its first line");
        assert!(said.contains(&format!("{address}:7432")), "{said}");
        server
    }

    /// A measurement from the first machine to the second.
    fn command(&self, line: &str) -> Command {
        let (host, key) = (self.testbed.address(1, 0).to_string(), self.folder.join("key"));
        let mut command = program(Some((&self.testbed, 0)), &line.split_whitespace().collect::<Vec<_>>());
        command.args(["--json", "--placement", &host, "--key-file"]).arg(key).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        command
    }

    fn measured(&self, line: &str) -> Value {
        let output = self.command(line).output().expect("measurement");
        let document = document(&output);
        assert_eq!(output.status.code(), Some(0), "{document:#}");
        document
    }

    /// Processes of a node, but for the server.
    fn processes(&self, node: usize) -> Vec<String> {
        let pids = output("ip", &["netns", "pids", &self.testbed.spec().namespace(node)]);
        pids.lines().filter(|pid| *pid != self.server.id().to_string()).map(str::to_owned).collect()
    }

    /// Bytes that have left the first machine over a link.
    fn sent_bytes(&self, link: usize) -> u64 {
        let path = format!("/sys/class/net/l{link}/statistics/tx_bytes");
        let read = self.testbed.command(0, "cat").arg(path).output().expect("cat");
        String::from_utf8_lossy(&read.stdout).trim().parse().expect("a number")
    }

    /// Begins a long measurement and waits until it is far enough into its window that the receiver has told of it.
    fn begin(&self) -> Child {
        let line = "stream --protocol tcp-cubic --warmup 0.05 --duration 60 --repeat 2 --wait block";
        let measuring = self.command(line).spawn().expect("measurement");
        wait_for("bytes on the link", || self.sent_bytes(0) > 40_000_000);
        measuring
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// This program as `bench`, on a node or outside.
fn program(node: Option<(&Testbed, usize)>, line: &[&str]) -> Command {
    let program = std::env::current_exe().expect("own program");
    let mut command = match node {
        Some((testbed, node)) => testbed.command(node, program),
        None => Command::new(program),
    };
    command.arg(PROGRAM).args(line);
    command
}

fn document(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn signal(name: &str, process: &Child) {
    let sent = Command::new("kill").args([name, &process.id().to_string()]).status().expect("kill");
    assert!(sent.success());
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..1_500 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("waited in vain for {what}");
}

pub fn every_workload_that_a_server_plays_is_measured_between_machines() {
    let machines = Machines::new("far", 1, &[]);
    let host = machines.testbed.address(1, 0).to_string();
    let short = "--size 1400 --repeat 2 --warmup 0.1 --duration 0.2 --wait block";
    for (workload, protocols) in [
        ("stream", "tcp-nodelay,udp,polyrail"),
        ("pingpong", "tcp-nodelay,udp,polyrail"),
        ("rate", "udp-gso"),
        ("transact", "tcp-nodelay,polyrail"),
        ("rate", "polyrail-connection,polyrail-stream"),
    ] {
        let document = machines.measured(&format!("{workload} --protocol {protocols} {short}"));
        assert!(document["peer_host"]["cores"].as_u64() > Some(0), "{document:#}");
        let rows = document["results"].as_array().expect("results");
        assert_eq!(rows.len(), protocols.split(',').count(), "{document:#}");
        for row in rows {
            assert_eq!((&row["placement"], row["links"].as_u64()), (&Value::from(host.as_str()), Some(1)));
            assert!(row["rate_per_s"]["median"].as_f64() > Some(0.0), "{row:#}");
            assert!(row["damaged"] == 0 && row.get("errors").is_none(), "{row:#}");
            assert!(row["protocol"] == "udp" || row["protocol"] == "udp-gso" || row["lost"] == 0, "{row:#}");
            assert_eq!(row["peer_calibration"].as_array().map(Vec::len), Some(2));
            let clocks = row["clock"]["samples"].as_array().expect("clocks");
            assert!(clocks.len() == 2 && row["clock"]["method"].is_string(), "{row:#}");
            for clock in clocks {
                // Both nodes have the same clock.
                let (offset, error) = (clock["offset_ns"].as_i64(), clock["error_ns"].as_u64());
                assert!(offset.expect("offset").unsigned_abs() <= error.expect("error"), "{clock:#}");
            }
        }
    }
    let document =
        machines.measured(&format!("openloop --protocol tcp-nodelay,polyrail --arrivals 500 {short}"));
    for row in document["results"].as_array().expect("results") {
        let figure = |name: &str| row[name]["p50"]["median"].as_f64().expect("a figure");
        // A time by a clock that is not ours would be hours off.
        assert!(figure("raw_latency_us") > 0.0 && figure("latency_us") < 5e6, "{row:#}");
    }
    let document = machines.measured(&format!("stream --protocol tcp-cubic,polyrail --streams 2 {short}"));
    let rows = document["results"].as_array().expect("results");
    assert!(rows.len() == 2 && rows.iter().all(|row| row["streams"] == 2 && row["lost"] == 0), "{rows:#?}");
    let document = machines.measured("stalled --protocol tcp-nodelay,udp --bytes 64M --duration 0.2");
    assert!(document["results"][0]["sent_before_block_bytes"].as_u64() > Some(0), "{document:#}");
    let document = machines.measured(&format!("pingpong --protocol unix-stream,tcp-cubic {short}"));
    let reason = document["unavailable"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("does not leave its machine"), "{reason}");
    assert!(machines.processes(1).is_empty(), "nothing is left");
}

pub fn a_server_with_two_addresses_is_measured_over_both_links() {
    let testbed_address = |machines: &Machines, link| machines.testbed.address(1, link).to_string();
    let mut machines = Machines::new("two", 2, &[]);
    let addresses = format!("{},{}", testbed_address(&machines, 0), testbed_address(&machines, 1));
    let _ = machines.server.kill();
    let _ = machines.server.wait();
    machines.server = Machines::serve(&machines.testbed, &machines.folder, &["--address", &addresses]);
    let document = machines.measured("stream --protocol polyrail --repeat 1 --duration 1 --wait block");
    let row = &document["results"][0];
    assert_eq!((row["links"].as_u64(), row["lost"].as_u64()), (Some(2), Some(0)), "{row:#}");
    let [first, second] = [0, 1].map(|link| machines.sent_bytes(link));
    assert!(first > 5_000_000 && second > 5_000_000, "{first} and {second} bytes: {row:#}");
}

pub fn a_wrong_key_and_a_wrong_use_are_refused_in_one_line() {
    let machines = Machines::new("keys", 1, &[]);
    let refused = |line: &str, code: i32| {
        let output = machines.command(line).output().expect("measurement");
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        let error = document(&output)["error"].as_str().expect("an error").to_owned();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    assert!(refused("failover", 2).contains("only a testbed can"));
    assert!(refused("share", 2).contains("testbed"));
    assert!(refused("idle", 2).contains("this machine only"));
    assert!(refused("stream --rate 100", 2).contains("leave out --links, --rate, --loss and --delay"));
    assert!(refused("stream --duration 700 --protocol udp --size 64 --repeat 1", 2).contains("600 s"));
    assert!(refused("stream --local 192.0.2.1", 1).contains("192.0.2.1: no address of this machine"));
    let swap = |from: &str, to: &str| {
        std::fs::rename(machines.folder.join(from), machines.folder.join(to)).expect("rename");
    };
    swap("other", "key");
    let error = refused("stream", 1);
    assert!(error.contains("refuses the key: --key-file must hold the same"), "{error}");
    std::fs::write(machines.folder.join("key"), "short").expect("write");
    assert!(refused("stream", 2).contains("at least 16"));
    assert!(machines.processes(1).is_empty());
}

pub fn a_server_killed_in_mid_run_leaves_what_was_measured_and_one_error() {
    let machines = Machines::new("gone", 1, &[]);
    let measuring = machines.begin();
    signal("-KILL", &machines.server);
    let output = measuring.wait_with_output().expect("measurement");
    let document = document(&output);
    assert_eq!(output.status.code(), Some(1), "{document:#}");
    let row = &document["results"][0];
    let error = row["errors"][0].as_str().expect("an error");
    let host = machines.testbed.address(1, 0).to_string();
    assert!(error.starts_with(&host) && error.contains("the control connection ended"), "{error}");
    assert_eq!((row["errors"].as_array().map(Vec::len), document["error"].as_str()), (Some(1), Some(error)));
    assert!(row["throughput_mbps"]["median"].as_f64().is_some_and(|mbps| mbps > 0.0), "{row:#}");
    wait_for("the processes' end", || machines.processes(0).is_empty() && machines.processes(1).is_empty());
}

pub fn a_client_killed_in_mid_run_frees_the_server_for_the_next() {
    let machines = Machines::new("lost", 1, &[]);
    let mut measuring = machines.begin();
    assert!(!machines.processes(1).is_empty(), "the receiver runs");
    let busy = document(&machines.command("stream").output().expect("measurement"));
    assert!(busy["error"].as_str().is_some_and(|error| error.contains("busy: another client")), "{busy:#}");
    measuring.kill().expect("kill");
    measuring.wait().expect("its end");
    wait_for("the receiver's end", || machines.processes(1).is_empty());
    let next = machines.measured("pingpong --protocol tcp-nodelay --repeat 1 --duration 0.2 --wait block");
    assert_eq!(next["results"].as_array().map(Vec::len), Some(1));
}

pub fn an_interrupt_on_either_side_leaves_no_process_behind() {
    let mut machines = Machines::new("ctrl-c", 1, &[]);
    let measuring = machines.begin();
    signal("-INT", &measuring);
    let output = measuring.wait_with_output().expect("measurement");
    let interrupted = document(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(interrupted["error"], "interrupted", "{interrupted:#}");
    assert!(interrupted["results"][0]["throughput_mbps"]["median"].as_f64() > Some(0.0), "{interrupted:#}");
    wait_for("the processes' end", || machines.processes(0).is_empty() && machines.processes(1).is_empty());
    let before = machines.sent_bytes(0);
    let measuring = machines.command("stream --protocol tcp-cubic --duration 60 --wait block").spawn();
    let measuring = measuring.expect("measurement");
    wait_for("bytes on the link", || machines.sent_bytes(0) > before + 20_000_000);
    signal("-INT", &machines.server);
    assert_eq!(machines.server.wait().expect("its end").code(), Some(0));
    let output = measuring.wait_with_output().expect("measurement");
    let stopped = document(&output);
    assert_eq!(output.status.code(), Some(1));
    let error = stopped["results"][0]["errors"][0].as_str().expect("an error");
    assert!(error.contains("was ended by whoever runs it"), "{error}");
    wait_for("the processes' end", || machines.processes(0).is_empty() && machines.processes(1).is_empty());
}
