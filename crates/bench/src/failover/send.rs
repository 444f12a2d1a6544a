//! The sending side of two flows: messages at a fixed rate, and bulk.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Scene, last_words};
use crate::check::compose;
use crate::clock::{machine_ns, now_ns};
use crate::control::{Event, Job, Order, SideReport};
use crate::pace::{Pace, wait_until};
use crate::protocol::Pipe;

/// How long a message half sent may take to be finished once the end was ordered.
const FINISH_NS: u64 = 3_000_000_000;

/// Sends both flows until it is told to stop; answers questions meanwhile.
pub(super) fn send(
    scene: Scene,
    scheduled: &mut dyn Pipe,
    bulk: &mut dyn Pipe,
) -> Result<SideReport, String> {
    let Scene { job, beside, orders, say } = scene;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flows = [
            scope.spawn(|| at_a_rate(scheduled, job, Pace::per_second(beside.arrivals_per_s), &ended)),
            scope.spawn(|| as_fast_as_it_goes(bulk, beside.bulk.size, &ended)),
        ];
        while flows.iter().all(|flow| !flow.is_finished()) {
            match orders.recv_timeout(Duration::from_millis(50)) {
                Ok(Order::Carried) => {
                    say(&Event::Carried { at_ns: machine_ns(), bytes: carried(&job.setup.devices) });
                }
                Ok(Order::Stop) => break,
                _ => {}
            }
        }
        // A flow that failed ends the other one too.
        ended.store(true, Ordering::Relaxed);
        let mut sent = [0; 2];
        for (flow, sent) in flows.into_iter().zip(&mut sent) {
            let result = flow.join().map_err(|panic| last_words(panic.as_ref()))?;
            *sent = result.map_err(|error| format!("{}: {error}", job.protocol))?;
        }
        Ok(SideReport { sent: sent[0], flows_sent: Some(sent), ..SideReport::default() })
    })
}

/// Sends message after message when it is due; what the protocol holds up is sent as soon as that ends, with the time
/// at which it was due. Gives how many were sent.
fn at_a_rate(pipe: &mut dyn Pipe, job: &Job, pace: Pace, ended: &AtomicBool) -> io::Result<u64> {
    let mut message = vec![0; job.setup.size];
    let start_ns = machine_ns();
    for number in 0_u64.. {
        let due_ns = pace.due_ns(start_ns, number);
        wait_until(due_ns, job.setup.wait, u64::MAX);
        if ended.load(Ordering::Relaxed) {
            return Ok(number);
        }
        compose(&mut message, number, [due_ns, machine_ns()]);
        if !hand_over(pipe, &message, ended)? {
            return Ok(number);
        }
    }
    unreachable!("the numbers last for centuries")
}

fn as_fast_as_it_goes(pipe: &mut dyn Pipe, size: usize, ended: &AtomicBool) -> io::Result<u64> {
    let mut message = vec![0; size];
    for number in 0_u64.. {
        if ended.load(Ordering::Relaxed) {
            return Ok(number);
        }
        compose(&mut message, number, [0; 2]);
        if !hand_over(pipe, &message, ended)? {
            return Ok(number);
        }
    }
    unreachable!("the numbers last for centuries")
}

/// Tries until the message is taken whole; false if the end was ordered and it still was not.
fn hand_over(pipe: &mut dyn Pipe, message: &[u8], ended: &AtomicBool) -> io::Result<bool> {
    let mut ended_ns = None;
    while !pipe.send(message)? {
        if ended.load(Ordering::Relaxed) {
            let since_ns = *ended_ns.get_or_insert_with(now_ns);
            if now_ns() - since_ns > FINISH_NS {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Bytes that left over each device; 0 where that cannot be read.
fn carried(devices: &[String]) -> Vec<u64> {
    let read = |device: &String| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{device}/statistics/tx_bytes"));
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    devices.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing for a number of tries each time, and keeps what it took.
    struct Sluggish {
        tries: u32,
        refusals: u32,
        taken: Vec<Vec<u8>>,
    }

    impl Pipe for Sluggish {
        fn send(&mut self, message: &[u8]) -> io::Result<bool> {
            self.tries += 1;
            if self.tries.is_multiple_of(self.refusals) {
                self.taken.push(message.to_vec());
                return Ok(true);
            }
            Ok(false)
        }

        fn recv(&mut self, _sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
            Ok(0)
        }
    }

    #[test]
    fn a_message_held_up_keeps_the_time_at_which_it_was_due() {
        let setup = crate::workload::setup_for_tests(64);
        let job = crate::workload::job_for_tests(setup);
        let mut pipe = Sluggish { tries: 0, refusals: 3, taken: Vec::new() };
        let ended = AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let flow = scope.spawn(|| at_a_rate(&mut pipe, &job, Pace::per_second(100_000), &ended));
            let start_ns = now_ns();
            while now_ns() - start_ns < 5_000_000 {
                std::thread::yield_now();
            }
            ended.store(true, Ordering::Relaxed);
            flow.join().unwrap().unwrap()
        });
        assert_eq!(sent, pipe.taken.len() as u64);
        let due: Vec<u64> = pipe.taken.iter().map(|m| crate::check::times_ns(m).unwrap()[0]).collect();
        assert!(due.windows(2).all(|pair| pair[1] - pair[0] == 10_000), "the schedule does not wait");
    }
}
