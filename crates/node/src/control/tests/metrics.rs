//! The page of metrics.

use super::*;
use std::collections::BTreeSet;

/// The page of alpha.
fn page(world: &mut World) -> String {
    world.ask(0, "metrics", None)["metrics"].as_str().expect("a page").to_owned()
}

/// The sample that begins so.
fn sample(page: &str, begins: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(begins));
    let line = line.unwrap_or_else(|| panic!("no {begins} in {page}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn every_sample_of_the_page_has_a_family_that_is_explained_once() {
    let mut world = World::met();
    let (server, mut client) = (world.client(1), world.client(0));
    client.send(Destination::Port(server.address()), Class::Normal, None, &[7; 300]).unwrap();
    world.run(20);
    let page = page(&mut world);
    let mut explained = BTreeSet::new();
    let mut family = "";
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(explained.insert(name) && text.ends_with('.'), "{line}");
            assert!(name.starts_with("polyrail_"), "{line}");
            family = name;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let counter = if family.ends_with("_total") { "counter" } else { "gauge" };
            assert_eq!(kind, format!("{family} {counter}"));
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            assert_eq!(name, family, "{line}");
            assert!(line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap().is_finite(), "{line}");
        }
    }
    assert!(page.ends_with('\n') && explained.len() > 50, "{}", explained.len());
}

#[test]
fn the_page_has_links_by_peer_ports_by_program_and_drops_by_reason() {
    let mut world = World::met();
    let (server, mut client) = (world.client(1), world.client(0));
    client.send(Destination::Port(server.address()), Class::Normal, None, &[7; 300]).unwrap();
    world.run(20);
    world.forge(b"\x10hort");
    let page = page(&mut world);
    let link = "peer=\"beta\",peer_id=\"0000000000000002\",link=\"0\",bearer=";
    for state in ["up", "down"] {
        let begins = format!("polyrail_link_state{{{link}");
        let state = format!("state=\"{state}\"}}");
        assert!(page.lines().any(|line| line.starts_with(&begins) && line.contains(&state)), "{page}");
    }
    assert!(sample(&page, &format!("polyrail_link_sent_bytes_total{{{link}")) > 0.0);
    let rtt_s = sample(&page, &format!("polyrail_link_rtt_seconds{{{link}"));
    assert!(rtt_s > 0.0 && rtt_s < 1.0, "{rtt_s}");
    let port = format!("port=\"{}\",program=\"(node)\"", client.address().port);
    assert_eq!(sample(&page, &format!("polyrail_port_sent_messages_total{{{port}")), 1.0);
    assert_eq!(sample(&page, &format!("polyrail_port_sent_bytes_total{{{port}")), 300.0);
    assert_eq!(sample(&page, "polyrail_drops_total{reason=\"malformed\"}"), 1.0);
    assert_eq!(sample(&page, "polyrail_malformed_packets_total{fault=\"truncated\"}"), 1.0);
    assert_eq!(sample(&page, "polyrail_node_info{name=\"alpha\",node=\"0000000000000001\""), 1.0);
    assert_eq!(sample(&page, "polyrail_peers "), 1.0);
}
