use super::*;

fn scene(workload: Workload, placement: Place) -> Scene {
    let seat = |last: u8, core| Seat {
        address: IpAddr::from([10, 60, 0, last]),
        core: Some(core),
        namespace: (placement == Place::Inter).then(|| format!("bed-{last}")),
    };
    Scene {
        workload,
        placement,
        size: 64,
        wait: WaitMode::Spin,
        read: ReadKind::Place,
        warmup_ns: 300_000_000,
        duration_ns: 1_500_000_000,
        sender: seat(1, 0),
        receiver: seat(2, 1),
        devices: vec!["l0".to_owned(), "l1".to_owned()],
        port: 4_711,
    }
}

fn line(errand: &Errand) -> String {
    errand.args.join(" ")
}

#[test]
fn names_are_unique_and_none_is_one_of_our_protocols() {
    let mut names: Vec<&str> = all().iter().map(|peer| peer.facts().name).collect();
    names.extend(crate::protocol::all().iter().map(|protocol| protocol.name()));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(find("iperf3").is_some() && find("nothing").is_none());
}

#[test]
fn what_is_missing_says_how_to_get_it() {
    for peer in all() {
        if let Err(reason) = peer.program() {
            assert!(reason.contains("apt-get install") || reason.contains("make"), "{reason}");
            assert_eq!(reason.lines().count(), 1);
        }
    }
}

#[test]
fn iperf3_is_told_our_conditions_in_whole_seconds() {
    let scene = scene(Workload::Stream, Place::Inter);
    let Cast::Two { receiver, sender, ready, ends_itself } = iperf3::Iperf3.cast("iperf3".into(), &scene)
    else {
        panic!("two programs")
    };
    assert_eq!(line(&receiver), "-J -i 0 -p 4711 -s -1 -B 10.60.0.2");
    assert_eq!(line(&sender), "-J -i 0 -p 4711 -c 10.60.0.2 -C cubic -l 64 -t 2 -O 1");
    assert_eq!((receiver.core, sender.core), (Some(1), Some(0)));
    assert_eq!((ready, ends_itself), (Ready::ListensTcp, true));
}

#[test]
fn a_driver_is_told_that_its_receiver_copies() {
    let line = |scene: &Scene| driver::arguments(Some(crate::control::Role::Receiver), scene).join(" ");
    let lent = scene(Workload::Stream, Place::Intra);
    assert!(!line(&lent).contains("--read"));
    assert!(line(&Scene { read: ReadKind::Copy, ..lent }).contains("--read copy"));
}

#[test]
fn iperf3_is_believed_as_its_receiver_counts() {
    let words = |text: &str| Words { lines: text.lines().map(str::to_owned).collect(), ..Words::default() };
    let told = Told {
        sender: words(include_str!("iperf3_client.json")),
        receiver: words(include_str!("iperf3_server.json")),
    };
    let scene = Scene { size: 131_072, ..scene(Workload::Stream, Place::Inter) };
    let sample = iperf3::Iperf3.sample(&scene, &told).unwrap();
    assert_eq!((sample.receiver.bytes, sample.receiver.window_ns), (3_955_490_922, 1_001_198_000));
    assert_eq!(sample.sender.bytes, 3_951_820_800);
    let share = sample.receiver.cpu_ns as f64 / sample.receiver.window_ns as f64;
    assert!((share - 0.6147).abs() < 1e-3, "{share}");
    assert!(sample.remarks[0].starts_with("iperf 3.12"), "{:?}", sample.remarks);
    let failed = Told { sender: words("{\"error\":\"unable to connect\"}"), ..Told::default() };
    assert_eq!(iperf3::Iperf3.sample(&scene, &failed).unwrap_err(), "iperf3: unable to connect");
}

#[test]
fn sockperf_waits_as_asked_and_runs_long_enough_for_its_own_warm_up() {
    let spinning = scene(Workload::PingPong, Place::Inter);
    let Cast::Two { receiver, sender, .. } = sockperf::TCP.cast("sockperf".into(), &spinning) else {
        panic!("two programs")
    };
    assert_eq!(line(&receiver), "server -i 10.60.0.2 -p 4711 --tcp --nonblocked");
    assert!(
        line(&sender).starts_with("ping-pong -i 10.60.0.2 -p 4711 --tcp --nonblocked -m 64 -t 2 --mps max")
    );
    let blocking = Scene { wait: WaitMode::Block, ..spinning };
    let Cast::Two { receiver, ready, .. } = sockperf::UDP.cast("sockperf".into(), &blocking) else {
        panic!("two programs")
    };
    assert_eq!((line(&receiver).as_str(), ready), ("server -i 10.60.0.2 -p 4711", Ready::BoundUdp));
}

#[test]
fn mpi_is_brought_up_on_both_nodes_and_kept_off_shared_memory_between_them() {
    let inter = scene(Workload::Stream, Place::Inter);
    for peer in mpi::ALL {
        let Cast::One { errand, .. } = peer.cast("/x/peer".into(), &inter) else { panic!("one launcher") };
        let value =
            |name: &str| errand.environment.iter().find(|(key, _)| key == name).map(|(_, v)| v.as_str());
        assert_eq!(value("POLYRAIL_PEER_NODES"), Some("10.60.0.1=bed-1 10.60.0.2=bed-2"));
        let line = line(&errand);
        assert!(line.contains("/x/peer-rsh") && line.contains("/x/peer both stream --size 64"), "{line}");
        assert!(line.contains("btl self,tcp") || value("UCX_TLS") == Some("tcp,self"), "{line}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    let refused = |name: &str, workload, placement, size| {
        find(name).unwrap().supports(workload, placement, size).unwrap_err()
    };
    assert!(refused("iperf3", Workload::PingPong, Place::Inter, 64).contains("see stream"));
    assert!(refused("sockperf-udp", Workload::Stream, Place::Inter, 64).contains("see pingpong"));
    assert!(refused("sockperf-udp", Workload::PingPong, Place::Inter, 13).contains("14"));
    assert!(refused("iceoryx2", Workload::Stream, Place::Inter, 64).contains("intra"));
}
