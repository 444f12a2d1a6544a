//! The sending node: the file as bulk, beside it an open-loop flow of small messages.
//!
//! A bulk message is its number and a piece of the file; a small message is its number and the moment when it was
//! due, filled up. A message with nothing but its number is the last of its flow. Open loop: a message that could
//! not go out in time keeps the moment when it was due, so that every delay shows in full.

use super::allowance::Allowance;
use super::role::{self, BULK, BULK_BYTES, Event, PATIENCE, TICK_BYTES, TICK_SPACING, TICKS};
use crate::failure::Failure;
use polyrail::{Node, Port};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

/// Sends the file as fast as `allowance` lets it.
pub fn play(path: &Path, allowance: Allowance) -> Result<(), Failure> {
    let node = role::node("a")?;
    role::with_news(&node, || send(&node, path, allowance))?;
    Ok(node.leave(PATIENCE)?)
}

fn send(node: &Node, path: &Path, allowance: Allowance) -> Result<(), Failure> {
    let bulk = node.port()?;
    let ticks = node.port()?;
    bulk.wait_for(BULK, Some(PATIENCE))?;
    ticks.wait_for(TICKS, Some(PATIENCE))?;
    let (stop, stopped) = channel::<()>();
    let ticker = std::thread::spawn(move || tick(&ticks, &stopped));
    send_file(&bulk, path, allowance)?;
    drop(stop);
    ticker.join().map_err(|_| Failure::failed("the open-loop flow broke down"))?
}

fn send_file(port: &Port, path: &Path, mut allowance: Allowance) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    let mut file = File::open(path).map_err(unreadable)?;
    let mut message = Vec::with_capacity(BULK_BYTES);
    let mut sent_bytes = 0;
    for number in 0u64.. {
        allowance.wait_for_turn(sent_bytes);
        message.clear();
        message.extend(number.to_le_bytes());
        let length =
            (&mut file).take((BULK_BYTES - 8) as u64).read_to_end(&mut message).map_err(unreadable)?;
        if length == 0 {
            allowance.wait_for_end();
        }
        port.send_timeout(BULK, &message, PATIENCE)?;
        if length == 0 {
            break;
        }
        sent_bytes += length as u64;
    }
    port.flush(Some(PATIENCE))?;
    role::tell(&Event::Acknowledged);
    Ok(())
}

fn tick(port: &Port, stopped: &Receiver<()>) -> Result<(), Failure> {
    let spacing_us = TICK_SPACING.as_micros() as u64;
    let begun_us = role::now_us();
    let mut message = [0; TICK_BYTES];
    let mut number = 0u64;
    while stopped.try_recv() != Err(TryRecvError::Disconnected) {
        let due_us = begun_us + number * spacing_us;
        std::thread::sleep(Duration::from_micros(due_us.saturating_sub(role::now_us())));
        message[..8].copy_from_slice(&number.to_le_bytes());
        message[8..16].copy_from_slice(&due_us.to_le_bytes());
        port.send_timeout(TICKS, &message, PATIENCE)?;
        number += 1;
    }
    port.send_timeout(TICKS, &number.to_le_bytes(), PATIENCE)?;
    Ok(port.flush(Some(PATIENCE))?)
}
