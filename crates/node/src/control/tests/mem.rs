//! Memory and users, as the control socket tells them.

use super::*;
use crate::config::UserLimits;
use crate::engine::{Guest, Limits};

/// Alpha with a limit for each user.
fn limited(ports: usize) -> World {
    let mut world = World::new();
    let each = UserLimits { ports: Some(ports), ..UserLimits::default() };
    world.engines[0].set_limits(Limits { memory_bytes_max: 1 << 30, each, ..Limits::default() });
    world
}

#[test]
fn who_has_what_of_the_memory_is_told_by_kind_user_and_program() {
    let mut world = limited(2);
    let (own, guest) = (world.client(0), |uid| Guest::new(100 + uid, uid, "test".into()));
    for uid in [7, 7, 8] {
        world.engines[0].open_guest(SIZES, guest(uid)).unwrap();
    }
    assert!(world.engines[0].open_guest(SIZES, guest(7)).is_err());
    let shown = world.ask(0, "mem", None)["show"].clone();
    let sum = |group: &str| {
        let rows = shown[group].as_array().unwrap().iter();
        rows.map(|row| row["promised_bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let promised = shown["memory"]["promised_bytes"].as_u64().unwrap();
    assert!(
        promised > 4 * (SIZES.tx_bytes + SIZES.rx_bytes)
            && (sum("kinds"), sum("programs")) == (promised, promised)
    );
    // Something was touched, and most was not.
    let resident = shown["memory"]["resident_bytes"].as_u64().unwrap();
    assert!(resident > 0 && resident < promised / 4, "{shown}");
    let users = shown["users"].as_array().unwrap();
    assert_eq!(users.len(), 2, "{shown}");
    let told = |row: &Value| {
        ["uid", "ports", "ports_max", "refused_ports"].map(|member| row[member].as_u64().unwrap())
    };
    assert_eq!((told(&users[0]), told(&users[1])), ([7, 2, 2, 1], [8, 1, 2, 0]), "who has most comes first");
    assert_eq!(users[0]["limit_bytes"], 1 << 29, "half of what the node has");
    let programs = shown["programs"].as_array().unwrap();
    let (first, node) = (&programs[0], programs.iter().find(|row| row["program"] == "(node)").unwrap());
    assert_eq!((&first["pid"], &first["uid"]), (&json!(107), &json!(7)), "{shown}");
    assert_eq!((&node["uid"], &node["pool_bytes"]), (&Value::Null, &json!(0)));
    assert_eq!((&shown["refused"]["ports"], &shown["refused"]["names"]), (&json!(1), &json!(0)));
    assert_eq!(world.ask(0, "stats", None)["show"]["refused"]["ports"], 1);
    drop(own);
}

#[test]
fn the_page_of_metrics_has_memory_and_users() {
    let mut world = limited(1);
    for _ in 0..3 {
        let _ = world.engines[0].open_guest(SIZES, Guest::new(1, 7, "test".into()));
    }
    let page = world.ask(0, "metrics", None)["metrics"].as_str().unwrap().to_owned();
    for line in [
        "polyrail_memory_limit_bytes 1073741824",
        "polyrail_user_ports{uid=\"7\"} 1",
        "polyrail_user_ports_limit{uid=\"7\"} 1",
        "polyrail_user_memory_limit_bytes{uid=\"7\"} 536870912",
        "polyrail_user_refusals_total{uid=\"7\",reason=\"ports\"} 2",
        "polyrail_memory_promised_bytes{kind=\"rings\"} 0",
    ] {
        assert!(page.lines().any(|there| there == line), "{line}: {page}");
    }
}
