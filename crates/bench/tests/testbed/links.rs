//! What can happen to a link happens, and only that.

use polyrail_bench::netns::{Direction, LinkSpec, NetnsError, Spec, Testbed};

use super::{name, namespaces};

pub fn carrier_is_lost_and_comes_back() {
    let testbed = Testbed::create(Spec::pair(name("carrier"), vec![LinkSpec::default()])).expect("testbed");
    let become_ = |up: bool| {
        testbed.carrier(0, 0, up).expect("carrier");
        while sees_carrier(&testbed, 0) != up {}
    };
    assert!(sees_carrier(&testbed, 0));
    become_(false);
    become_(true);
    assert!(reaches(&testbed, 0, 1, 0));
}

pub fn a_black_hole_swallows_only_its_direction() {
    let mut testbed =
        Testbed::create(Spec::pair(name("hole"), vec![LinkSpec::default(); 2])).expect("testbed");
    testbed.prepare_faults().expect("faults");
    assert!(reaches(&testbed, 0, 1, 0) && reaches(&testbed, 0, 1, 1));
    for direction in [Direction::Into, Direction::OutOf, Direction::Both] {
        testbed.black_hole(0, 0, direction, true).expect("hole");
        assert!(!reaches(&testbed, 0, 1, 0), "{direction:?}");
        assert!(reaches(&testbed, 0, 1, 1), "the other link is untouched");
        testbed.black_hole(0, 0, direction, false).expect("end of the hole");
        assert!(reaches(&testbed, 0, 1, 0), "after {direction:?}");
    }
    testbed.set_loss(0, 100.0).expect("loss");
    assert!(!reaches(&testbed, 0, 1, 0));
    testbed.set_loss(0, 0.0).expect("no loss");
    testbed.set_rate(0, Some(10)).expect("rate");
    testbed.set_rate(0, None).expect("no rate");
    testbed.set_mtu(0, 9000).expect("mtu");
    assert!(reaches(&testbed, 0, 1, 0));
    assert!(testbed.carrier(7, 0, false).is_err(), "a link that is not there");
}

pub fn three_nodes_share_each_link() {
    let link = LinkSpec { rate_mbit: Some(100), ..LinkSpec::default() };
    let spec = Spec { name: name("three"), nodes: 3, links: vec![link; 2] };
    let mut testbed = Testbed::create(spec).expect("testbed");
    assert!(reaches(&testbed, 0, 2, 0) && reaches(&testbed, 1, 2, 1));
    testbed.black_hole(0, 2, Direction::OutOf, true).expect("hole");
    assert!(!reaches(&testbed, 0, 2, 0));
    assert!(reaches(&testbed, 0, 1, 0), "the others still reach each other");
    testbed.carrier(1, 1, false).expect("carrier");
    assert!(!reaches(&testbed, 1, 2, 1));
    let prefix = format!("pr-{}", testbed.spec().name);
    testbed.down().expect("down");
    assert!(!namespaces().contains(&prefix));
}

pub fn a_delayed_link_takes_its_time_and_can_be_cut() {
    let delayed = LinkSpec { delay_us: 30_000, ..LinkSpec::default() };
    let spec = Spec::pair(name("delayed"), vec![LinkSpec::default(), delayed]);
    let mut testbed = Testbed::create(spec).expect("testbed");
    assert!(reaches(&testbed, 0, 1, 0));
    let begun = std::time::Instant::now();
    assert!(reaches(&testbed, 1, 0, 1));
    // At least once there and once back, however quick the machine.
    assert!(begun.elapsed() >= std::time::Duration::from_millis(60));
    for direction in [Direction::Into, Direction::OutOf, Direction::Both] {
        testbed.black_hole(1, 0, direction, true).expect("hole");
        assert!(!reaches(&testbed, 0, 1, 1), "{direction:?}");
        testbed.black_hole(1, 0, direction, false).expect("end of the hole");
        assert!(reaches(&testbed, 0, 1, 1), "after {direction:?}");
    }
    testbed.carrier(1, 0, false).expect("carrier");
    assert!(!reaches(&testbed, 0, 1, 1));
    testbed.carrier(1, 0, true).expect("carrier");
    while !reaches(&testbed, 0, 1, 1) {}
    let prefix = format!("pr-{}", testbed.spec().name);
    let relay = testbed.relay_pid().expect("a relay");
    testbed.down().expect("down");
    assert!(!namespaces().contains(&prefix));
    assert!(!std::path::Path::new(&format!("/proc/{relay}")).exists(), "the relay has ended");
}

pub fn another_process_finds_and_removes_a_testbed() {
    let name = name("kept");
    let spec = Spec::pair(name.clone(), vec![LinkSpec::default()]);
    let testbed = Testbed::create(spec.clone()).expect("testbed");
    assert!(matches!(Testbed::create(spec), Err(NetnsError::Exists { .. })));
    // A process inside must not keep the namespace alive.
    let mut sleeper = testbed.command(0, "sleep").arg("1000").spawn().expect("sleep");
    testbed.keep();
    assert!(Testbed::list().iter().any(|record| record.spec.name == name));
    assert!(reaches(&Testbed::open(&name).expect("open"), 0, 1, 0));
    Testbed::remove(&name).expect("remove");
    // The sleeper may not have entered the namespace yet when it was searched; it is ours to end in any case.
    let _ = sleeper.kill();
    sleeper.wait().expect("sleep has ended");
    assert!(!namespaces().contains(&name));
    assert!(Testbed::remove(&name).is_err());
}

fn sees_carrier(testbed: &Testbed, node: usize) -> bool {
    let output = testbed.command(node, "cat").arg("/sys/class/net/l0/carrier").output().expect("cat");
    String::from_utf8_lossy(&output.stdout).trim() == "1"
}

/// Whether a node answers: a port where nobody listens refuses a connection, which takes both directions.
fn reaches(testbed: &Testbed, from: usize, to: usize, link: usize) -> bool {
    let address = testbed.address(to, link);
    let mut command = testbed.command(from, "timeout");
    command.args(["2", "bash", "-c", &format!("exec 3<>/dev/tcp/{address}/9")]);
    let output = command.output().expect("timeout and bash");
    String::from_utf8_lossy(&output.stderr).contains("refused")
}
