use super::*;
use std::net::IpAddr;

fn error(text: &str) -> String {
    Config::from_toml(text).expect_err(text).to_string()
}

fn dscp(number: u8) -> Dscp {
    Dscp::new(number).unwrap()
}

fn addresses() -> Vec<IpAddr> {
    vec!["10.1.2.3".parse().unwrap(), "fe80::1".parse().unwrap()]
}

const EXAMPLE: &str = include_str!("../../../../docs/polyrail.toml");

#[test]
fn the_example_file_is_the_defaults() {
    assert_eq!(Config::from_toml(EXAMPLE), Ok(Config::new().insecure()));
}

#[test]
fn the_example_file_names_keys_that_exist_when_uncommented() {
    let all = EXAMPLE.replace("\n# name =", "\nname =").replace("\n# id =", "\nid =");
    let all = all.replace("\n# socket_buffer_max =", "\nsocket_buffer_max =");
    let all = all
        .replace("\n# control =", "\ncontrol =")
        .replace("\n# attach =", "\nattach =")
        .replace("\n# exclude =", "\nexclude =");
    let all = ["memory_bytes_max =", "ports =", "names =", "memory_bytes =", "[user.1000]", "1000-1999 ="]
        .iter()
        .fold(all, |all, key| all.replace(&format!("\n# {key}"), &format!("\n{key}")));
    let limits = |ports, names, memory_bytes| UserLimits {
        ports: Some(ports),
        names: Some(names),
        memory_bytes: Some(memory_bytes),
    };
    let expected = Config::new()
        .insecure()
        .name("alpha")
        .id(NodeId(0xc0ffee01))
        .socket_buffer_max(212_992)
        .control("/run/polyrail/alpha.sock")
        .attach("/run/polyrail/alpha.attach")
        .interfaces_excluded(INTERFACES_EXCLUDED)
        .memory_bytes_max(8 << 30)
        .users(limits(8_192, 32_767, 4 << 30))
        .user(1_000, limits(16, 100, 256 << 20))
        .right(1_000..=1_999, [1_000, 1_001]);
    assert_eq!(Config::from_toml(&all), Ok(expected));
}

#[test]
fn every_key_reaches_its_setting() {
    let text = r#"
        security = "none"
        cluster = "x"
        port = 1000
        beacon_port = 1001
        peers = ["b", "c:9"]
        discovery = false
        express_frames = false
        shared_memory = false
        wait = "spin"
        adaptive_spin_us = 7
        profile = "throughput"
        policy = "round-robin"
        message_bytes_max = 99
        tolerance_ms = 1500
        keepalive_ms = 20
        keepalive_idle_ms = 2000
        integrity = "full"
        progress = "manual"
        interfaces = { include = ["l0", "l1"], standby = ["l1"] }
        dscp = { control = "cs6", urgent = "EF", normal = 18, bulk = "1" }
        class_policy = { urgent = "redundant" }
        memory = { tx_arena_bytes = 1048576, rx_arena_bytes = 2097152, submission_entries = 64, completion_entries = 128 }
    "#;
    let expected = Config::new()
        .insecure()
        .cluster("x")
        .port(1000)
        .beacon_port(1001)
        .peers(["b", "c:9"])
        .discovery(false)
        .express_frames(false)
        .shared_memory(false)
        .wait(Wait::Spin)
        .adaptive_spin(Duration::from_micros(7))
        .profile(Profile::Throughput)
        .policy(Policy::RoundRobin)
        .class_policy(Class::Urgent, Policy::Redundant)
        .message_bytes_max(99)
        .tolerance(Duration::from_millis(1500))
        .keepalive(Duration::from_millis(20))
        .keepalive_idle(Duration::from_secs(2))
        .integrity(Integrity::Full)
        .progress(Progress::Manual)
        .interfaces(["l0", "l1"])
        .interfaces_standby(["l1"])
        .dscp(ClassDscps { control: dscp(48), urgent: dscp(46), normal: dscp(18), bulk: dscp(1) })
        .memory(Memory {
            tx_arena_bytes: 1 << 20,
            rx_arena_bytes: 2 << 20,
            submission_entries: 64,
            completion_entries: 128,
        });
    assert_eq!(Config::from_toml(text), Ok(expected));
}

#[test]
fn an_error_says_where_what_and_what_is_allowed() {
    assert_eq!(
        error("security = \"none\"\n\nport = 0\n"),
        "line 3: port: 0 is out of range; allowed: 1 to 65535"
    );
    assert_eq!(
        error("security = \"none\"\n[memory]\n# sizes\ncompletion_entries = 100\n"),
        "line 4: memory.completion_entries: 100; allowed: powers of two"
    );
    assert_eq!(
        error("security = \"none\"\nkeepalive_ms = 300"),
        "line 2: keepalive_ms: 300 is more than half of tolerance_ms; allowed: 1 to 250"
    );
    assert_eq!(
        error("id = \"+1\"\nsecurity = \"none\""),
        "line 1: id: \"+1\" is no identity; allowed: 1 to ffffffffffffffff, hexadecimal"
    );
}

#[test]
fn what_is_no_dscp_is_told_with_its_line_and_all_that_are() {
    for (wrong, told) in [
        ("\"fast\"", "\"fast\""),
        ("64", "64"),
        ("-1", "-1"),
        ("4.0", "4.0"),
        ("true", "true"),
        ("[8]", "[8]"),
    ] {
        assert_eq!(
            error(&format!("security = \"none\"\n[dscp]\nurgent = \"ef\"\nbulk = {wrong}\n")),
            format!(
                "line 4: dscp.bulk: {told} is no DSCP; allowed: 0 to 63, cs0 to cs7, \
                af11 af12 af13 af21 af22 af23 af31 af32 af33 af41 af42 af43, ef, le"
            )
        );
    }
    let unknown_class = error("dscp = { slow = 1 }");
    assert!(unknown_class.contains("unknown field `slow`, expected one of `control`"), "{unknown_class}");
}

#[test]
fn an_unknown_key_or_word_is_answered_with_the_known_ones() {
    let unknown_key = error("security = \"none\"\nprot = 7430");
    assert!(
        unknown_key.starts_with("line 2: unknown field `prot`, expected one of `security`"),
        "{unknown_key}"
    );
    let unknown_word = error("wait = \"sleep\"");
    assert!(
        unknown_word.starts_with("line 1: unknown variant `sleep`, expected one of `spin`"),
        "{unknown_word}"
    );
    assert!(error("port = 7_4_3_0_0_0").starts_with("line 1: invalid value"));
    assert!(error("a = 1\nb = = 2").starts_with("line 2: "));
}

#[test]
fn limits_and_rights_of_users_are_read_and_what_is_wrong_with_them_is_told_with_its_line() {
    let text = "memory_bytes_max = 1073741824\n[users]\nports = 3\n[user.7]\nnames = 2\nmemory_bytes = 0\n[rights]\n64 = []\n70-79 = [1, 2]\n";
    let few = UserLimits { ports: Some(3), ..UserLimits::default() };
    let own = UserLimits { names: Some(2), memory_bytes: Some(0), ..UserLimits::default() };
    let expected = Config::new()
        .memory_bytes_max(1 << 30)
        .users(few)
        .user(7, own)
        .right(64..=64, [])
        .right(70..=79, [1, 2]);
    assert_eq!(Config::from_toml(text), Ok(expected));
    let by_name = Config::from_toml("[user.root]\nports = 3\n[rights]\n64 = [\"root\", 7]\n");
    assert_eq!(by_name, Ok(Config::new().user(0, few).right(64..=64, [0, 7])));
    assert_eq!(own.or(few), UserLimits { ports: Some(3), ..own });
    for (wrong, told) in [
        ("memory_bytes_max = 1000", "line 1: memory_bytes_max: 1000 is out of range; allowed: 1048576 to "),
        (
            "[users]\nmemory_bytes = 7",
            "line 2: users.memory_bytes: 7 is too little; allowed: 0, or 1048576 and more",
        ),
        ("[user.9]\nports = 1\nmemory_bytes = 7", "line 3: user.9.memory_bytes: 7 is too little"),
        (
            "[user.no-such]\nports = 1",
            "line 1: user.no-such: there is no user \"no-such\" in /etc/passwd; allowed: a user's name",
        ),
        (
            "[user.0]\n[user.root]",
            "line 2: user.root: \"root\" is user 0, who has a table already; allowed: ",
        ),
        (
            "[user.7]\nport = 1",
            "line 2: unknown field `port`, expected one of `ports`, `names`, `memory_bytes`",
        ),
        ("[rights]\n64 = [1]\n+70 = []", "line 3: "),
        (
            "[rights]\n64 = [1]\n7x = []",
            "line 3: rights.7x: \"7x\" are no types; allowed: TYPE, or FIRST-LAST",
        ),
        ("[rights]\n80-70 = []", "line 2: rights.80-70: no types; allowed: TYPE"),
        (
            "[rights]\n70-79 = [1]\n79 = []",
            "line 3: rights.79: some of these types are in rights.70-79 too; allowed: each type once",
        ),
        (
            "[rights]\n64 = [-1]",
            "line 2: rights.64: -1 is no user; allowed: a user's name in /etc/passwd, or",
        ),
        ("[rights]\n64 = [1.5]", "line 2: rights.64: 1.5 is no user"),
        ("[rights]\n64 = [\"no-such\"]", "line 2: rights.64: there is no user \"no-such\" in /etc/passwd"),
    ] {
        let error = error(wrong);
        assert!(error.starts_with(told), "{error}");
    }
}

#[test]
fn every_error_is_one_line() {
    for text in
        ["port =", "[[memory]]", "security = \"n\\none\"", "peers = [\n1\n]", "x\u{0}y = 1", "wait = 3"]
    {
        assert_eq!(error(text).lines().count(), 1, "{text:?}");
    }
}

#[test]
fn a_node_without_a_word_about_security_is_refused() {
    let silent = Config::from_toml("").unwrap();
    let refusal = silent.validate().unwrap_err().to_string();
    assert!(refusal.starts_with("security: not set; allowed: \"none\""), "{refusal}");
    assert_eq!(silent.insecure().validate(), Ok(()));
    assert!(Config::new().validate().is_err());
    assert_eq!(Config::new().insecure().validate(), Ok(()));
    assert!(error("security = \"unset\"").contains("expected `none`"));
}

#[test]
fn a_missing_file_is_named() {
    let e = Config::load("/nowhere/polyrail.toml").unwrap_err().to_string();
    assert!(e.starts_with("/nowhere/polyrail.toml: cannot be read: "), "{e}");
}

#[test]
fn a_file_error_names_file_and_line() {
    let path = std::env::temp_dir().join(format!("polyrail-config-{}.toml", std::process::id()));
    std::fs::write(&path, "security = \"none\"\ncluster = \"\"\n").unwrap();
    let e = Config::load(&path).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        e,
        format!("{}:2: cluster: \"\" is no name; allowed: 1 to 63 of a-z A-Z 0-9 . _ -", path.display())
    );
}

#[test]
fn peers_are_host_and_port() {
    let parse = |text| PeerName::parse(text, 7430).map(|p| (p.host, p.port));
    let ok = |host: &str, port| Ok((host.to_string(), port));
    assert_eq!(parse("alpha.example"), ok("alpha.example", 7430));
    assert_eq!(parse("10.0.0.1:99"), ok("10.0.0.1", 99));
    assert_eq!(parse("fe80::1%eth0"), ok("fe80::1%eth0", 7430));
    assert_eq!(parse("[fe80::1%eth0]:5"), ok("fe80::1%eth0", 5));
    assert_eq!(parse("[::1]"), ok("::1", 7430));
    for wrong in ["", ":1", "a:", "a:0", "a:65536", "a:b", "a b", "[a]:1", "[::1]x", "a:1:2", "[::1", "a/b"] {
        assert!(PeerName::parse(wrong, 7430).is_err(), "{wrong:?}");
    }
    let shown = |text| PeerName::parse(text, 1).unwrap().to_string();
    assert_eq!((shown("a"), shown("::1")), ("a:1".to_string(), "[::1]:1".to_string()));
}

#[test]
fn by_default_containers_and_loopback_are_left_out() {
    let rules = InterfaceRules::default();
    for (name, is_loopback, expected) in [
        ("eth0", false, true),
        ("lo", true, false),
        ("docker0", false, false),
        ("virbr1", false, false),
        ("veth12ab", false, false),
    ] {
        assert_eq!(rules.selects(name, &addresses(), is_loopback), expected, "{name}");
    }
    assert!(!rules.selects("eth0", &[], false), "no address");
}

#[test]
fn included_interfaces_are_names_patterns_or_networks() {
    let selects = |include: &str, name: &str, is_loopback| {
        Config::new().interfaces([include]).interfaces.selects(name, &addresses(), is_loopback)
    };
    assert!(selects("veth0", "veth0", false));
    assert!(selects("lo", "lo", true));
    assert!(!selects("l*", "lo", true));
    assert!(selects("v*h?", "veth0", false));
    assert!(selects("v*h[0-3]", "veth0", false));
    assert!(!selects("eth", "eth0", false));
    assert!(selects("10.1.0.0/16", "eth0", false));
    assert!(!selects("10.2.0.0/16", "eth0", false));
    assert!(selects("fe80::/10", "eth0", false));
    assert!(selects("0.0.0.0/0", "eth0", false));
}

#[test]
fn exclusion_beats_a_pattern_but_not_a_full_name() {
    let rules = Config::new().interfaces(["eth*", "ib0"]).interfaces_excluded(["eth1", "ib*"]).interfaces;
    let chosen = ["eth0", "eth1", "ib0", "ib1"].map(|name| rules.selects(name, &addresses(), false));
    assert_eq!(chosen, [true, false, true, false]);
}

#[test]
fn standby_is_told_by_name_pattern_or_network() {
    let is_standby = |rule: &str| {
        let rules = Config::new().interfaces_standby([rule]).interfaces;
        ["eth0", "wwan0"].map(|name| rules.is_standby(name, [10, 1, 2, 3].into()))
    };
    assert_eq!(is_standby("wwan0"), [false, true]);
    assert_eq!(is_standby("w*"), [false, true]);
    assert_eq!(is_standby("10.1.0.0/16"), [true, true]);
    assert_eq!(is_standby("10.2.0.0/16"), [false, false]);
    assert!(!Config::new().interfaces.is_standby("eth0", [10, 1, 2, 3].into()), "none by default");
}

#[test]
fn a_rule_with_a_mark_of_exclamation_excludes() {
    let chosen = |include: &[&str]| {
        let rules = Config::new().interfaces(include.iter().copied()).interfaces;
        ["eth0", "eth1", "docker0"].map(|name| rules.selects(name, &addresses(), false))
    };
    assert_eq!(chosen(&["!eth1"]), [true, false, false], "what is excluded by default stays so");
    assert_eq!(chosen(&["*", "!eth1"]), [true, false, true]);
    assert_eq!(chosen(&["!eth*", "*"]), [false, false, true], "whatever the order");
    assert_eq!(chosen(&["eth0", "!eth*"]), [true, false, false], "a full name is meant");
    assert_eq!(chosen(&["!10.1.0.0/16"]), [false; 3]);
    assert_eq!(chosen(&["!10.2.0.0/16"]), [true, true, false]);
}

#[test]
fn a_rule_that_names_no_interface_is_refused() {
    let wrong =
        ["", "!", "!!a", "a name", "10.0.0.0/33", "!::/129", "10.0.0/8", "much-too-long-name", "eth0:1"];
    for wrong in wrong {
        assert!(Config::new().insecure().interfaces([wrong]).validate().is_err(), "{wrong:?}");
        assert!(Config::new().insecure().interfaces_excluded([wrong]).validate().is_err(), "{wrong:?}");
        assert!(Config::new().insecure().interfaces_standby([wrong]).validate().is_err(), "{wrong:?}");
    }
    assert!(
        Config::new().insecure().interfaces_excluded(["!eth0"]).validate().is_err(),
        "it excludes already"
    );
}

#[test]
fn the_default_name_is_a_valid_name() {
    let name = Config::new().name_or_default();
    assert!(name.ends_with(&format!("-{}", std::process::id())), "{name}");
    assert_eq!(Config::new().insecure().name(name).validate(), Ok(()));
}
