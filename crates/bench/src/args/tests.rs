//! Command lines, good and bad.

use super::*;
use crate::failover::Kind;

#[derive(clap::Parser)]
struct Wrapper {
    #[command(flatten)]
    bench: BenchArgs,
}

pub(crate) fn parse(line: &str) -> Result<BenchArgs, String> {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    <Wrapper as clap::Parser>::try_parse_from(words).map(|w| w.bench).map_err(|error| error.to_string())
}

fn sizes(plan: &Plan) -> Vec<usize> {
    plan.points.iter().map(|point| point.size).collect()
}

fn rates(plan: &Plan) -> Vec<Vec<Option<u32>>> {
    plan.environments.iter().map(|place| place.rates.clone()).collect()
}

fn planned(line: &str) -> Plan {
    parse(line).and_then(|args| args.plan()).expect(line)
}

#[test]
fn one_core_is_for_two_threads_that_sleep_within_a_machine() {
    assert!(planned("transact --placement intra --wait block --one-core").one_core);
    for line in [
        "transact --placement intra --wait spin,block --one-core",
        "transact --placement intra --one-core",
        "transact --wait block --one-core",
        "idle --placement intra --wait block --one-core",
    ] {
        assert!(refused(line).contains("--one-core"), "{line}");
    }
}

#[test]
fn receivers_of_streams_may_copy() {
    assert_eq!(planned("stream --read copy").read, ReadKind::Copy);
    assert_eq!(planned("rate").read, ReadKind::Place);
    assert!(refused("pingpong --read copy").contains("--read"));
    assert_eq!(planned("stream --read whole --wait block").read, ReadKind::Whole);
    assert!(refused("stream --read whole --wait block,adaptive").contains("--wait block"));
}

#[test]
fn clients_of_one_server_are_processes_of_one_machine() {
    let plan = planned("pingpong --placement intra --clients 1,64");
    let loads: Vec<Load> = plan.points.iter().map(|point| point.load).collect();
    assert_eq!(loads, [Load::Clients(1), Load::Clients(64)]);
    assert!(
        plan.points.iter().all(|point| point.wait == WaitMode::Block),
        "65 that spin would wait in turns"
    );
    assert_eq!(planned("rate --placement intra --clients 8 --wait spin,adaptive").points.len(), 2);
    for line in [
        "pingpong --clients 4",
        "rate --placement intra,inter --clients 4",
        "transact --placement intra --clients 4",
        "pingpong --placement intra --clients 0",
        "pingpong --placement intra --clients 257",
    ] {
        assert!(refused(line).contains("--clients"), "{line}");
    }
    for (line, flag) in [
        ("pingpong --placement intra --clients 4 --beside bulk", "--beside"),
        ("stream --placement intra --clients 4 --streams 2", "--streams"),
        ("rate --placement intra --clients 4 --wait block --one-core", "--one-core"),
        ("rate --placement intra --clients 4 --read copy", "--read"),
        ("rate --placement intra --clients 4 --send buffer", "--send"),
    ] {
        assert!(refused(line).contains(flag), "{line}");
    }
}

#[test]
fn sizes_are_numbers_powers_of_two_and_the_edges_of_packets() {
    assert_eq!(sizes(&planned("stream --size 100,64..1K,2K")), [100, 64, 128, 256, 512, 1024, 2048]);
    assert_eq!(sizes(&planned("stream --size 64,128 --around 3")), [61, 64, 67, 125, 128, 131]);
    assert_eq!(sizes(&planned("rate --size 8,10 --around 3")), [8, 10, 11, 13], "never below the least");
    assert!(sizes(&planned("stream --size mtu --around 1")).contains(&1_449));
    assert!(refused("stream --size 128..64").contains("128..64"));
    assert!(refused("stream --size 1..64").contains("1..64"));
    assert!(refused("stream --size ..64").contains("..64"));
    assert!(refused("stream --size x..64").contains("`x`"));
    assert!(refused("stream --around 0").contains("around"));
}

#[test]
fn every_wait_buffer_and_load_is_a_point_of_its_own() {
    let plan = planned("transact --placement intra,inter --size 128..4K --wait spin,adaptive,block");
    assert_eq!((plan.environments.len(), plan.points.len()), (2, 18));
    assert!(plan.needs_testbed());
    assert!(!planned("transact --placement intra").needs_testbed());
    let plan = planned("buffer");
    assert_eq!(plan.points.len(), 50, "five lengths, ten buffers");
    assert_eq!(plan.points[0].socket_buffer_max, Some(2048));
    let loads = |line: &str| planned(line).points.iter().map(|point| point.load).collect::<Vec<_>>();
    let (same, opposite) = (FlowDirection::Same, FlowDirection::Opposite);
    assert_eq!(loads("share"), [Load::Pairs(1, same), Load::Pairs(2, same), Load::Pairs(2, opposite)]);
    assert_eq!(loads("datagram --offer 0,10"), [Load::Offered(0), Load::Offered(10)]);
    assert_eq!(loads("stream --streams 1,4"), [Load::Full, Load::Streams(4)]);
    assert_eq!(loads("incast --senders 3"), [Load::Senders(3)]);
    assert_eq!(planned("incast --senders 3").environments[0].nodes, 4);
    assert_eq!(loads("multicast --members 3 --size 1K"), [Load::Members(3, 3)]);
    let ports = loads("multicast --members 2,4 --member-ports 1,3 --size 1K");
    assert_eq!(ports, [(2, 1), (2, 3), (4, 1), (4, 3)].map(|(members, ports)| Load::Members(members, ports)));
    assert_eq!(planned("multicast").environments[0].nodes, 9);
    assert_eq!(loads("pingpong --beside bulk --class urgent"), [Load::BesideBulk]);
    assert_eq!(planned("pingpong --beside bulk").points[0].wait, WaitMode::Block, "four threads");
    assert_eq!(loads("openloop --arrivals 7,8"), [Load::Arrivals(7), Load::Arrivals(8)]);
}

#[test]
fn links_are_measured_one_by_one_up_to_their_number() {
    let counts: Vec<usize> = rates(&planned("links --links 3")).iter().map(Vec::len).collect();
    assert_eq!(counts, [1, 2, 3]);
    let unequal = rates(&planned("links --links 2 --rate 1000:250"));
    assert_eq!(unequal, [vec![Some(1000)], vec![Some(1000), Some(250)]]);
}

fn refused(line: &str) -> String {
    parse(line).and_then(|args| args.plan()).expect_err(line)
}

#[test]
fn defaults_follow_the_workload() {
    let plan = parse("stream").unwrap().plan().unwrap();
    assert_eq!((sizes(&plan), plan.repeat, rates(&plan)), (vec![131_072], 5, vec![vec![None]]));
    assert_eq!(sizes(&parse("pingpong").unwrap().plan().unwrap()), [64]);
    let plan = planned("lone");
    assert_eq!((rates(&plan), sizes(&plan)), (vec![vec![Some(1000); 2]], vec![65_536, 262_144, 1 << 20]));
    let plan = parse("failover").unwrap().plan().unwrap();
    assert_eq!((rates(&plan), sizes(&plan)), (vec![vec![Some(1000); 2]], vec![4096]));
    assert_eq!((plan.points[0].wait, plan.repeat, plan.failover.cuts), (WaitMode::Block, 1, 20));
    let plan = parse("stalled --placement intra --bytes 3M").unwrap().plan().unwrap();
    assert_eq!((plan.bytes, rates(&plan)), (3 << 20, vec![vec![None]]));
}

#[test]
fn lists_are_split_and_unequal_links_have_their_own_rates() {
    let plan = parse("stream --links 2 --rate 0,1000,1000:250 --size 64,4096 --protocol a,b").unwrap().plan();
    let plan = plan.unwrap();
    let expected = [vec![None, None], vec![Some(1000), Some(1000)], vec![Some(1000), Some(250)]];
    assert_eq!(rates(&plan), expected);
    assert_eq!((sizes(&plan), plan.protocols), (vec![64, 4096], vec!["a".to_owned(), "b".to_owned()]));
}

#[test]
fn loss_is_of_every_link_or_of_each_its_own() {
    let plan = parse("stream --links 2 --loss 0,1,5:0").unwrap().plan().unwrap();
    let losses: Vec<&[f64]> = plan.environments.iter().map(|place| &place.losses[..]).collect();
    assert_eq!(losses, [[0.0, 0.0], [1.0, 1.0], [5.0, 0.0]]);
}

#[test]
fn delay_is_of_every_link_or_of_each_its_own_and_none_is_no_delay() {
    let plan = planned("stream --links 2 --delay 0,1.5,0:20");
    let delays: Vec<&[f64]> = plan.environments.iter().map(|place| &place.delays_ms[..]).collect();
    assert_eq!(delays, [&[][..], &[1.5, 1.5], &[0.0, 20.0]]);
    assert_eq!(planned("links --links 2 --delay 1:2").environments[0].delays_ms, [1.0]);
    assert!(refused("stream --delay 1:2").contains("2 values for 1 links"));
    assert!(refused("stream --delay=-1").contains("`-1`"));
    assert!(refused("stream --delay 2000").contains("2000"));
    assert!(refused("incast --senders 3 --delay 1").contains("here are 4"));
    assert!(refused("pingpong --placement intra --delay 1").contains("--delay"));
}

#[test]
fn nonsense_is_refused_in_one_line_that_names_it() {
    assert!(refused("stream --size 7").contains("--size 7"));
    assert!(refused("stream --size 99999999999").contains("--size"));
    assert!(refused("stream --loss 100").contains("--loss"));
    assert!(refused("stream --rate fast").contains("fast"));
    assert!(refused("stream --links 3 --rate 1:2").contains("2 values for 3 links"));
    assert!(refused("stream --links 2 --loss 1:2:3").contains("3 values for 2 links"));
    assert!(refused("failover --links 1").contains("--links 2"));
    assert!(refused("failover --size 31").contains("--size 31"));
    assert!(refused("failover --cuts 0").contains("cuts"));
    assert!(refused("failover --kind fire").contains("fire"));
    assert!(refused("idle --placement intra").contains("intra"));
    assert!(refused("stalled --send buffer").contains("--send buffer"));
    assert!(refused("stalled --bytes 0").contains("`0`"));
    assert!(refused("stalled --bytes 1T").contains("`1T`"));
    assert!(refused("stream --duration 0").contains("--duration"));
    assert!(refused("stream --duration nan").contains("--duration"));
    assert!(refused("stream --vs a").contains("A:B"));
    assert!(refused("pingpong --placement intra --links 2").contains("intra"));
    assert!(refused("nothing").contains("nothing"));
    assert!(refused("stream --links 0").contains("links"));
    assert!(refused("stream --repeat 0").contains("repeat"));
    assert!(refused("stream --tight 0").contains("--tight"));
    assert!(refused("failover --arrivals 1,2").contains("--arrivals"));
    assert!(refused("openloop --size 31").contains("--size 31"));
    assert!(refused("links --placement intra").contains("intra"));
    assert!(refused("lone --rate 1000,0").contains("--rate 0: lone empties token buckets"));
    assert!(refused("share --pairs 33").contains("33"));
    assert!(refused("datagram --offer fast").contains("fast"));
    assert!(refused("stream --socket-buffer-max 3G").contains("2G"));
}

#[test]
fn links_flap_only_if_that_is_asked_for_and_then_for_ten_seconds() {
    let plan = planned("failover").failover;
    assert_eq!((plan.kinds.as_slice(), plan.flapping_ns), (&[Kind::Carrier, Kind::Blackhole][..], None));
    assert!(!serde_json::to_string(&plan).unwrap().contains("flapping"), "older journals go on");
    let plan = planned("failover --kind carrier,flapping").failover;
    assert_eq!((plan.outage_ns, plan.flapping_ns), (300_000_000, Some(10_000_000_000)));
    let plan = planned("failover --kind flapping --outage 30").failover;
    assert_eq!(plan.flapping_ns, Some(30_000_000_000));
    assert!(refused("failover --kind flapping --outage 0.1").contains("--kind flapping --outage 0.1"));
    assert!(planned("failover --kind carrier --outage 0.1").failover.flapping_ns.is_none());
    assert!(refused("stream --kind flapping").starts_with("--kind changes nothing"));
    assert!(refused("failover --kind flap").contains("flapping"), "what is allowed is named");
}

#[test]
fn a_flag_that_would_change_nothing_is_refused_by_its_name() {
    for line in [
        "stream --bytes 1G",
        "stream --cuts 3",
        "rate --kind carrier",
        "pingpong --outage 1",
        "idle --pause 1",
        "stalled --arrivals 10",
        "stream --class urgent",
        "failover --duration 1",
        "rate --streams 2",
        "stream --pairs 2",
        "stream --direction same",
        "share --senders 2",
        "stream --offer 10",
        "stalled --tight 5",
        "stalled --warmup 1",
        "stalled --vs a:b",
        "idle --size 64",
        "idle --send slice",
        "lone --send slice",
        "stream --beside bulk",
        "pingpong --model",
        "pingpong --class urgent",
    ] {
        let flag = line.split_whitespace().nth(1).unwrap();
        let said = refused(line);
        assert!(said.starts_with(flag) && said.lines().count() == 1, "{line}: {said}");
    }
    assert!(matches!(
        parse("list --json").unwrap(),
        BenchArgs { command: Some(BenchCommand::List), json: true, .. }
    ));
    assert!(parse("list --links 2").is_err());
    assert!(parse("compare a.json").is_err() && parse("compare a.json b.json --json").is_ok());
    for wrong in ["-1", "nan", "1001", "much"] {
        assert!(parse(&format!("compare a b --threshold={wrong}")).unwrap_err().contains(wrong));
    }
    assert!(parse("").is_err());
}

#[test]
fn another_machine_is_named_by_its_host_and_needs_a_key() {
    let said = refused("stream --placement node7");
    assert!(said.contains("--placement node7 needs --key-file FILE"), "{said}");
    assert!(refused("stream --placement intra --key-file k").contains("--key-file changes nothing"));
    assert!(refused("stream --local 10.0.0.1").contains("--local changes nothing"));
    assert!(refused("stream --placement node7,node8 --key-file k").contains("one other machine at a time"));
    assert!(refused("stream --placement node7:x").contains("neither intra nor inter"));
    assert!(refused("stream --placement node7 --key-file /no/such/key").contains("--make-key"));
    assert!(parse("serve --listen 10.0.0.2").unwrap_err().contains("--key-file"));
    assert!(parse("serve --make-key f --once").is_err());
    let served = parse("serve --listen 10.0.0.2:9 --key-file k --address 10.0.0.2,10.0.1.2 --once").unwrap();
    let Some(BenchCommand::Serve(serve)) = served.command else { panic!("serve") };
    assert!(serve.once && serve.address.len() == 2 && serve.listen.as_deref() == Some("10.0.0.2:9"));
}

#[test]
fn a_plan_that_is_written_does_not_show_its_key() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("polyrail-plan-key-{}", std::process::id()));
    std::fs::write(&path, "a-key-that-nobody-else-has").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let plan = parse(&format!("stream --placement node7 --key-file {}", path.display())).unwrap().plan();
    std::fs::remove_file(&path).unwrap();
    let written: serde_json::Value = serde_json::to_value(plan.unwrap()).unwrap();
    assert_eq!(written["host"], serde_json::json!({ "name": "node7:7432", "local": [] }));
}
