//! The network devices that a measurement went over, seen from the sender's node. What cannot be read is absent.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::system::output;
use crate::args::Placement;

/// One device of one environment, which its rates and losses name as in a row of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeviceRow {
    pub(crate) placement: Placement,
    pub(crate) rate_mbit: Vec<Option<u32>>,
    pub(crate) loss_percent: Vec<f64>,
    #[serde(flatten)]
    pub(crate) device: Device,
}

/// What is recorded of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Device {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    /// As the driver says, in Mbit/s; a veth's is made up.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed_mbit: Option<u64>,
    /// In bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u64>,
    /// Whether each offload is on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    offloads: BTreeMap<String, bool>,
    /// Queueing disciplines, a line each as `tc` says them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    qdisc: Vec<String>,
    /// The device's interrupts and the cores they may go to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    interrupts: Vec<Interrupt>,
}

/// One interrupt of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Interrupt {
    number: u32,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<String>,
}

/// What `ethtool -k` calls the offloads that matter, and what they are called here.
const OFFLOADS: [(&str, &str); 6] = [
    ("tcp-segmentation-offload", "tso"),
    ("generic-segmentation-offload", "gso"),
    ("generic-receive-offload", "gro"),
    ("tx-udp-segmentation", "udp_gso"),
    ("tx-checksumming", "tx_checksum"),
    ("rx-checksumming", "rx_checksum"),
];

impl Device {
    /// Looks at a device; `command` runs a program where the device is.
    pub(crate) fn look(name: &str, command: impl Fn(&str) -> Command) -> Self {
        let run = |program: &str, args: &[&str]| output(command(program).args(args)).unwrap_or_default();
        let link = format!("/sys/class/net/{name}");
        let number =
            |file: &str| run("cat", &[&format!("{link}/{file}")]).trim().parse().ok().filter(|&n| n > 0);
        // A device of its own bus: interrupts are named by that where the driver does not name them by the interface.
        let bus_device = run("readlink", &[&format!("{link}/device")]);
        let names = [Some(name), bus_device.trim().rsplit('/').next().filter(|name| !name.is_empty())];
        let names: Vec<&str> = names.into_iter().flatten().collect();
        let qdisc = run("tc", &["qdisc", "show", "dev", name]);
        Self {
            name: name.to_owned(),
            driver: driver(&run("ethtool", &["-i", name])),
            speed_mbit: number("speed"),
            mtu: number("mtu"),
            offloads: offloads(&run("ethtool", &["-k", name])),
            qdisc: qdisc.lines().map(|line| line.trim().to_owned()).filter(|l| !l.is_empty()).collect(),
            interrupts: interrupts(&fs::read_to_string("/proc/interrupts").unwrap_or_default(), &names),
        }
    }

    /// Queueing disciplines and offloads in one line, without the device's name.
    pub(crate) fn summary(&self) -> String {
        let without_name = |line: &String| {
            let line = line.strip_prefix("qdisc ").unwrap_or(line);
            // Handles and counts of references are numbers that mean nothing outside.
            let words = line.split(' ').filter(|word| !word.ends_with(':') && *word != "root");
            let mut kept: Vec<&str> = words.collect();
            if let Some(at) = kept.iter().position(|word| *word == "refcnt") {
                kept.drain(at..(at + 2).min(kept.len()));
            }
            kept.join(" ")
        };
        let qdisc: Vec<String> = self.qdisc.iter().map(without_name).collect();
        let qdisc = if qdisc.is_empty() { "unknown".to_owned() } else { qdisc.join(" and ") };
        let named = |on: bool| {
            let names = self.offloads.iter().filter(|(_, is_on)| **is_on == on);
            names.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
        };
        let told =
            |word: &str, names: String| if names.is_empty() { names } else { format!("; {word} {names}") };
        format!("qdisc {qdisc}{}{}", told("on:", named(true)), told("off:", named(false)))
    }
}

fn driver(ethtool: &str) -> Option<String> {
    ethtool.lines().find_map(|line| line.strip_prefix("driver:")).map(|name| name.trim().to_owned())
}

fn offloads(ethtool: &str) -> BTreeMap<String, bool> {
    let state = |long: &str| {
        let line = ethtool.lines().find_map(|line| line.trim().strip_prefix(long)?.strip_prefix(':'))?;
        // `on [fixed]` is on, too.
        match line.split_whitespace().next()? {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        }
    };
    OFFLOADS.iter().filter_map(|(long, short)| Some(((*short).to_owned(), state(long)?))).collect()
}

/// The interrupts whose names begin with one of `names`, as a whole word.
fn interrupts(text: &str, names: &[&str]) -> Vec<Interrupt> {
    let is_of = |action: &str| {
        names.iter().any(|name| {
            let rest = action.strip_prefix(name);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
        })
    };
    let interrupt = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let name = rest.split([' ', ',']).find(|word| is_of(word))?.to_owned();
        let cores = fs::read_to_string(format!("/proc/irq/{number}/smp_affinity_list")).ok();
        Some(Interrupt { number, name, cores: cores.map(|text| text.trim().to_owned()) })
    };
    text.lines().filter_map(interrupt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERRUPTS: &str = "           CPU0       CPU1
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
900000001:   0      15210  PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
900000002:   0         10  PCI-MSIX-0000:00:04.0   1-edge      virtio20-input.0
900000003:   7          0  PCI-MSIX-0000:00:05.0   1-edge      eth0-TxRx-0, eth1
900000004:   7          0  PCI-MSIX-0000:00:06.0   1-edge      eth0
NMI:          0          0   Non-maskable interrupts
";

    #[test]
    fn interrupts_are_those_of_the_device_by_either_name_and_of_no_other() {
        let found = |names: &[&str]| {
            interrupts(INTERRUPTS, names).iter().map(|one| one.number - 900_000_000).collect::<Vec<u32>>()
        };
        assert_eq!(found(&["eth0", "virtio2"]), [1, 3, 4]);
        assert_eq!(found(&["virtio20"]), [2]);
        assert_eq!(found(&["eth1"]), [3]);
        assert!(found(&["eth", "l0"]).is_empty());
    }

    fn owned((name, is_on): (&str, bool)) -> (String, bool) {
        (name.to_owned(), is_on)
    }

    #[test]
    fn offloads_are_read_with_their_fixed_ones_and_unknown_ones_left_out() {
        let text = "Features for lo:\nrx-checksumming: on [fixed]\ntcp-segmentation-offload: off\n\
                    \ttx-udp-segmentation: on\ngeneric-receive-offload: odd\n";
        let found = offloads(text);
        assert_eq!(found, [("rx_checksum", true), ("tso", false), ("udp_gso", true)].map(owned).into());
        assert!(offloads("").is_empty());
    }

    #[test]
    fn a_summary_tells_queue_and_offloads_without_the_handles() {
        let device = Device {
            qdisc: vec!["qdisc tbf 8001: root refcnt 17 rate 1Gbit burst 128Kb lat 5ms".to_owned()],
            offloads: [("gso", true), ("tso", false)].map(owned).into(),
            ..Device::default()
        };
        assert_eq!(device.summary(), "qdisc tbf rate 1Gbit burst 128Kb lat 5ms; on: gso; off: tso");
        assert_eq!(Device::default().summary(), "qdisc unknown");
    }

    #[test]
    fn loopback_has_an_mtu_and_no_interrupt_and_a_device_that_is_not_there_has_nothing() {
        let here = |program: &str| Command::new(program);
        let lo = Device::look("lo", here);
        assert!(lo.mtu.is_some() && lo.speed_mbit.is_none() && lo.interrupts.is_empty(), "{lo:?}");
        let none = Device::look("no-such-device", here);
        assert_eq!(none, Device { name: "no-such-device".to_owned(), ..Device::default() });
        let unrunnable = Device::look("lo", |_| Command::new("polyrail-no-such-program"));
        assert_eq!(unrunnable.mtu, None);
    }
}
