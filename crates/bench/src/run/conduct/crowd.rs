//! One server and several clients, all at once.

use std::sync::atomic::AtomicBool;

use super::{Part, run_max};
use crate::control::{Order, SideReport};
use crate::pss::CrowdMemory;
use crate::run::pair::{DRAIN_MAX, Pair, Sample, Which};
use crate::workload::crowd_together;

/// Measures once: all are connected before any begins. `watch` hears of the server's progress.
pub(in crate::run) fn crowd(
    server: Part,
    clients: Vec<Part>,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&SideReport),
) -> Sample {
    let mut pair = Pair::new(stop, watch);
    let mut memory = None;
    let error = run(&mut pair, server, clients, &mut memory).err();
    Sample { sender: crowd_together(&pair.reports()), crowd_memory: memory, error, ..pair.sample() }
}

fn run(
    pair: &mut Pair,
    server: Part,
    clients: Vec<Part>,
    memory: &mut Option<CrowdMemory>,
) -> Result<(), String> {
    let (run_max, count) = (run_max(&server.1), clients.len());
    let address = pair.listening(server)?;
    for client in clients {
        pair.connecting(client, address.clone())?;
    }
    pair.ready()?;
    pair.go()?;
    let mut expected = Vec::new();
    for number in 0..count {
        pair.wait(Which::SenderOf(number), run_max)?;
        expected.push(pair.report(Which::SenderOf(number))?.sent);
    }
    pair.tell(Which::Receiver, &Order::Drain { expected })?;
    pair.wait(Which::Receiver, DRAIN_MAX)?;
    // While all are still connected, and what they have used of their memory is still theirs.
    let pids = (0..count).map(|number| pair.pid(Which::SenderOf(number))).collect::<Result<Vec<_>, _>>()?;
    let taken = CrowdMemory::of(&pids, pair.pid(Which::Receiver)?);
    *memory = Some(taken.map_err(|error| format!("/proc: {error}"))?);
    pair.quit();
    Ok(())
}
