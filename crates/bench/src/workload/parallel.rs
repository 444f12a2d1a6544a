//! Several pipes of one process, side by side.

use std::io;
use std::sync::atomic::AtomicU64;

use super::{Surroundings, incast, play};
use crate::control::{Job, Role, SideReport};
use crate::protocol::Pipe;

/// Plays one side over each pipe in a thread of its own; `drains` says for each when nothing more will come.
pub(crate) fn play_parallel(
    job: &Job,
    pipes: &mut [Box<dyn Pipe>],
    reliable: bool,
    drains: &[AtomicU64],
    around: Surroundings,
) -> io::Result<SideReport> {
    let Surroundings { resume, progress, .. } = around;
    let reports = std::thread::scope(|scope| {
        let mut pipes = pipes.iter_mut().zip(drains);
        let first = pipes.next();
        let further: Vec<_> = pipes
            .map(|(pipe, drain)| {
                scope.spawn(move || {
                    let around = Surroundings { drain, resume, progress: &mut |_| {} };
                    play(job, pipe.as_mut(), reliable, around)
                })
            })
            .collect();
        let first = first.map(|(pipe, drain)| {
            play(job, pipe.as_mut(), reliable, Surroundings { drain, resume, progress })
        });
        let further = further
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a stream panicked"))));
        first.into_iter().chain(further).collect::<io::Result<Vec<SideReport>>>()
    })?;
    Ok(together(&reports))
}

/// All streams in one report. Their windows are of nearly the same length but not the same, so each counts by its rate.
fn together(reports: &[SideReport]) -> SideReport {
    let window_ns = reports.iter().map(|report| report.window_ns).max().unwrap_or(0);
    let sum = |value: fn(&SideReport) -> u64| -> u64 {
        let scaled = |report: &SideReport| match report.window_ns {
            0 => 0,
            own => (u128::from(value(report)) * u128::from(window_ns) / u128::from(own)) as u64,
        };
        reports.iter().map(scaled).sum()
    };
    SideReport {
        window_ns,
        messages: sum(|report| report.messages),
        bytes: sum(|report| report.bytes),
        // That of the whole process, which every stream has read.
        cpu_ns: reports.iter().map(|report| report.cpu_ns).max().unwrap_or(0),
        // The machine's, likewise.
        machine_busy_ns: reports.iter().filter_map(|report| report.machine_busy_ns).max(),
        sent: reports.iter().map(|report| report.sent).sum(),
        sent_by_flow: reports.iter().map(|report| report.sent).collect(),
        counts: reports.iter().fold(Default::default(), |sum, report| report.counts.plus(sum)),
        ..SideReport::default()
    }
}

/// Plays one side of `incast`: the receiver asks over all pipes, a sender answers over its only one.
pub(crate) fn play_incast(
    job: &Job,
    pipes: &mut [Box<dyn Pipe>],
    around: Surroundings,
) -> io::Result<SideReport> {
    match (job.role, pipes) {
        (Role::Receiver, pipes) => incast::ask(job, pipes, around),
        (Role::Sender, [pipe]) => incast::answer(job, pipe.as_mut()),
        (Role::Sender, _) => Err(io::Error::other("a sender of incast has one pipe")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_with_windows_of_their_own_add_up_by_rate() {
        let report = |window_ns, bytes, sent| SideReport { window_ns, bytes, sent, ..SideReport::default() };
        let both = together(&[report(1_000, 500, 3), report(2_000, 3_000, 4)]);
        assert_eq!((both.window_ns, both.bytes, both.sent), (2_000, 4_000, 7));
        assert_eq!(both.sent_each(), [3, 4]);
        assert_eq!(together(&[SideReport::default()]).bytes, 0);
    }
}
