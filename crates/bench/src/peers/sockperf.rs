//! sockperf: ping-pong over TCP and UDP, every round trip from its own full log.

use std::path::PathBuf;

use super::{Cast, Facts, Peer, Place, Ready, Scene, Told, place};
use crate::check::CheckCounts;
use crate::control::SideReport;
use crate::errand::Errand;
use crate::run::Sample;
use crate::wait::WaitMode;
use crate::workload::{Histogram, Workload};

pub(super) struct Sockperf {
    facts: Facts,
    tcp: bool,
}

pub(super) static TCP: Sockperf =
    Sockperf { facts: Facts { name: "sockperf-tcp", reliable: true, striped: false }, tcp: true };

pub(super) static UDP: Sockperf =
    Sockperf { facts: Facts { name: "sockperf-udp", reliable: false, striped: false }, tcp: false };

/// Its own header is part of a message.
const MESSAGE_BYTES_MIN: usize = 14;
/// The largest message it takes.
const MESSAGE_BYTES_MAX: usize = 65_507;
/// It leaves out the first 0.4 s and the last 0.05 s of what it was told to run.
const LEFT_OUT_NS: u64 = 450_000_000;
/// Where the client writes its log: in memory of its node, gone with it.
const LOG: &str = "/dev/shm/sockperf.log";

impl Peer for Sockperf {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn program(&self) -> Result<PathBuf, String> {
        place::installed("sockperf", "apt-get install sockperf")
    }

    fn supports(&self, workload: Workload, _: Place, size: usize) -> Result<(), String> {
        match workload {
            Workload::PingPong if (MESSAGE_BYTES_MIN..=MESSAGE_BYTES_MAX).contains(&size) => Ok(()),
            Workload::PingPong => {
                Err(format!("takes messages of {MESSAGE_BYTES_MIN} to {MESSAGE_BYTES_MAX} bytes"))
            }
            _ => Err("measured here for its round trips: see pingpong".to_owned()),
        }
    }

    fn cast(&self, program: PathBuf, scene: &Scene) -> Cast {
        let (address, port) = (scene.receiver.address.to_string(), scene.port.to_string());
        let mut common = vec!["-i", &address, "-p", &port];
        common.extend(self.tcp.then_some("--tcp"));
        common.extend((scene.wait == WaitMode::Spin).then_some("--nonblocked"));
        let (size, seconds) = (scene.size.to_string(), seconds(scene).to_string());
        let ask = ["-m", &size, "-t", &seconds, "--mps", "max", "--full-rtt", "--full-log", LOG];
        let errand = |verb: &str, args: &[&str], core, file| Errand {
            program: program.clone(),
            args: [verb].iter().chain(&common).chain(args).map(|&arg| arg.to_owned()).collect(),
            core,
            file,
            ..Errand::default()
        };
        Cast::Two {
            receiver: errand("server", &[], scene.receiver.core, None),
            ready: if self.tcp { Ready::ListensTcp } else { Ready::BoundUdp },
            ends_itself: false,
            sender: errand("ping-pong", &ask, scene.sender.core, Some(LOG.into())),
        }
    }

    fn sample(&self, scene: &Scene, told: &Told) -> Result<Sample, String> {
        let log = told.sender.ending.file.as_deref().unwrap_or_default();
        let mut sender = read(log, scene.duration_ns)?;
        sender.counts = faults(&told.sender.lines.join("\n"))?;
        let version = told.sender.lines.iter().find_map(|line| line.split("== version ").nth(1));
        let version = version.and_then(|rest| rest.split(" ==").next()).unwrap_or("of unknown version");
        Ok(Sample {
            sender,
            waits: Some(waits(scene.wait)),
            remarks: vec![format!("sockperf {version}, warm-up 0.4 s: it has its own")],
            ..Sample::default()
        })
    }
}

/// It sleeps in recv, or does not at all.
fn waits(asked: WaitMode) -> WaitMode {
    if asked == WaitMode::Spin { WaitMode::Spin } else { WaitMode::Block }
}

/// What it must be told to run so that a whole window is left.
fn seconds(scene: &Scene) -> u64 {
    super::whole_seconds(scene.duration_ns + LEFT_OUT_NS)
}

/// The round trips that began within the first `length_ns`.
fn read(log: &str, length_ns: u64) -> Result<SideReport, String> {
    let head = "packet, txTime(sec), rxTime(sec), rtt(usec)";
    let (_, records) = log.split_once(head).ok_or("sockperf: its log has no list of round trips")?;
    let mut histogram = Histogram::new();
    let mut report = SideReport::default();
    let mut first_ns = None;
    for line in records.lines().map(str::trim).filter(|line| line.contains(',')) {
        let record = || {
            let mut fields = line.split(',').skip(1).map(str::trim);
            Some((nanoseconds(fields.next()?)?, nanoseconds(fields.next()?)?))
        };
        let (sent_ns, came_ns) = record().ok_or_else(|| format!("sockperf: no round trip: `{line}`"))?;
        let start_ns = *first_ns.get_or_insert(sent_ns);
        if sent_ns.saturating_sub(start_ns) >= length_ns {
            break;
        }
        // An answer that was lost has no time of arrival.
        if came_ns > sent_ns {
            histogram.record(came_ns - sent_ns);
            report.messages += 1;
            report.window_ns = came_ns - start_ns;
        }
    }
    if report.messages == 0 {
        return Err("sockperf: not one round trip in its log".to_owned());
    }
    Ok(SideReport { rtt_ns: histogram.buckets(), ..report })
}

/// `2.413719667` as nanoseconds, without rounding.
fn nanoseconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    let part = part.get(..9).filter(|_| part.len() == 9)?;
    Some(whole.parse::<u64>().ok()? * 1_000_000_000 + part.parse::<u64>().ok()?)
}

/// Its own count of what went wrong.
fn faults(text: &str) -> Result<CheckCounts, String> {
    let line = text.lines().find(|line| line.contains("# dropped messages"));
    let line = line.ok_or("sockperf: said nothing of lost messages")?;
    let count = |name: &str| -> Option<u64> {
        let rest = line.split_once(name)?.1.split_once('=')?.1;
        rest.split(';').next()?.trim().parse().ok()
    };
    let read = || {
        Some(CheckCounts {
            lost: count("dropped messages")?,
            duplicated: count("duplicated messages")?,
            reordered: count("out-of-order messages")?,
            ..CheckCounts::default()
        })
    };
    read().ok_or_else(|| format!("sockperf: counts not understood: `{line}`"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const LOG: &str = "------------------------------\npacket, txTime(sec), rxTime(sec), rtt(usec)\n\
        0, 2.413719667, 2.413841453, 121.786\n1, 2.413841603, 2.413959723, 118.120\n\
        2, 2.963727797, 2.963772056, 44.259\n------------------------------\n";

    #[test]
    fn round_trips_are_read_from_the_log_up_to_the_window_end() {
        let report = read(LOG, 1_000_000_000).unwrap();
        assert_eq!((report.messages, report.window_ns), (3, 550_052_389));
        let p50 = Histogram::from_buckets(&report.rtt_ns).quantile_us(0.5).unwrap();
        assert!((p50 - 118.12).abs() < 0.1, "{p50}");
        assert_eq!(read(LOG, 100_000_000).unwrap().messages, 2);
    }

    #[test]
    fn a_log_that_makes_no_sense_is_refused() {
        assert!(read("", 1).unwrap_err().contains("no list"));
        let head = "packet, txTime(sec), rxTime(sec), rtt(usec)\n";
        assert!(read(head, 1).unwrap_err().contains("not one"));
        assert!(read(&format!("{head}0, 1.5, 2.5, 3\n"), 1).unwrap_err().contains("`0, 1.5"));
    }

    #[test]
    fn its_own_counts_of_faults_are_kept() {
        let text = "sockperf: # dropped messages = 3; # duplicated messages = 1; # out-of-order messages = 2";
        let counts = faults(text).unwrap();
        assert_eq!((counts.lost, counts.duplicated, counts.reordered), (3, 1, 2));
        assert!(faults("nothing").is_err());
        assert!(faults("# dropped messages = many").unwrap_err().contains("many"));
    }
}
