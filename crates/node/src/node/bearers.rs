//! How a node opens its bearers, at its start and later.

use super::select::selected;
use crate::clock::now_ns;
use crate::config::Config;
use crate::engine::Engine;
use crate::error::StartError;
use polyrail_bearer::Bearer as _;
use polyrail_bearer::{ShmBearer, UdpBearer, UdpConfig};
use polyrail_proto::limits;
use polyrail_sys::interface;
use std::io;
use std::net::IpAddr;

/// Most bearers on interfaces: of all, one is the node's way to itself, and one that to others of its machine.
pub(crate) const OUTSIDE_MAX: usize = limits::BEARERS_MAX - 2;

/// Opens a UDP bearer on each interface that the rules select, and one by shared memory: what the operator should know of that.
pub(crate) fn open_all(engine: &mut Engine, config: &Config) -> Result<Vec<String>, StartError> {
    let system = |what: &str| {
        let what = what.to_owned();
        move |source| StartError::System { what, source }
    };
    let all = interface::list().map_err(system("interfaces"))?;
    let chosen = selected(&config.interfaces, &all)?;
    engine.set_interfaces(config.interfaces.clone());
    let mut warnings = Vec::new();
    if let Some(more) = chosen.len().checked_sub(OUTSIDE_MAX).filter(|more| *more > 0) {
        warnings.push(format!("{more} interfaces are not used: a node has at most {OUTSIDE_MAX}"));
    }
    for (interface, address) in chosen.into_iter().take(OUTSIDE_MAX) {
        let bearer = open(config, &interface.name, address)
            .map_err(|source| StartError::System { what: format!("{} {address}", interface.name), source })?;
        warnings.extend(advice(config, &interface.name, &bearer));
        engine.add_bearer(now_ns(), Box::new(bearer));
    }
    if config.shared_memory {
        match ShmBearer::open(machine(engine)) {
            Ok(bearer) => drop(engine.add_bearer(now_ns(), Box::new(bearer))),
            // Others of this machine are reached by its network then.
            Err(error) => {
                warnings.push(format!("no shared memory with other nodes of this machine: {error}"))
            }
        }
    }
    Ok(warnings)
}

/// What those have in common who share memory: the machine, and the cluster.
fn machine(engine: &Engine) -> u64 {
    let config = engine.core().config();
    config.host ^ config.cluster.rotate_left(32)
}

/// Opens a bearer on one of an interface's addresses, as the settings want it.
pub(crate) fn open(config: &Config, interface: &str, address: IpAddr) -> io::Result<UdpBearer> {
    UdpBearer::open(UdpConfig {
        port: config.port,
        beacon_port: if config.discovery { config.beacon_port } else { 0 },
        express: config.express_frames,
        dscp: config.dscp.control.number(),
        socket_buffer_bytes_max: config.socket_buffer_max.map(|b| b.min(u32::MAX as usize) as u32),
        ..UdpConfig::new(interface, address)
    })
}

fn advice(config: &Config, interface: &str, bearer: &UdpBearer) -> Vec<String> {
    let mut advice = Vec::new();
    if bearer.port_taken() {
        let (wanted, used) = (config.port, bearer.local().address);
        advice.push(format!(
            "{interface}: UDP port {wanted} is taken; using {used} (peers learn it by beacons only)"
        ));
    }
    advice.extend(bearer.buffer_warning());
    if let Some(error) = bearer.beacon_error() {
        advice.push(format!("{interface}: no beacons: {error}; name peers by hand"));
    }
    advice
}
