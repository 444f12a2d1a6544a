//! The machine that a report was made on: figures without it mean nothing.

mod devices;
mod system;

use std::fs;

use serde::{Deserialize, Serialize};

use crate::process::core_count;

pub(crate) use devices::{Device, DeviceRow};
pub(crate) use system::System;

/// What is recorded of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Name and release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub cpu: String,
    /// Cores that may be used.
    pub cores: usize,
    /// Frequency governor of the first core, if there is one.
    pub governor: Option<String>,
    /// Whether it is a virtual machine, as the processor says.
    pub hypervisor: bool,
    /// Whether its cores are emulated by a program: then times and rates say nothing, only ratios do.
    #[serde(default, skip_serializing_if = "is_false")]
    pub emulated: bool,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// The system's default congestion control.
    pub congestion_control: String,
    /// Load of the last minute when the run began.
    pub load_1min: f64,
    /// Version of this program.
    pub version: String,
    /// Whether this program was built with optimisation: without, a protocol inside it cannot be judged.
    pub optimized: bool,
    /// How the system is set up.
    #[serde(flatten)]
    pub(crate) system: System,
}
impl Host {
    /// Looks at this machine.
    pub fn here() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':'))
                .map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        let memory = read("/proc/meminfo");
        let memory_kib = memory.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0_u64);
        let cpu = field("model name");
        Self {
            emulated: is_emulated(&cpu),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease")),
            cpu,
            cores: core_count(),
            governor: Some(governor).filter(|text| !text.is_empty()),
            hypervisor: field("flags").split_whitespace().any(|flag| flag == "hypervisor"),
            memory_mib: memory_kib / 1024,
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            load_1min: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or(0.0),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            optimized: !cfg!(debug_assertions),
            system: System::here(),
        }
    }
}

impl Host {
    /// What differs from `other` and lets figures differ: a name, and what either has.
    pub(crate) fn differences(&self, other: &Self) -> Vec<(&'static str, String, String)> {
        let about = |host: &Self| {
            let governor = host.governor.clone().unwrap_or_else(|| "none".to_owned());
            [
                ("kernel", host.kernel.clone()),
                ("cpu", host.cpu.clone()),
                ("cores", host.cores.to_string()),
                ("governor", governor),
                ("congestion control", host.congestion_control.clone()),
                ("version", host.version.clone()),
                ("optimized", host.optimized.to_string()),
            ]
        };
        let pairs = about(self).into_iter().zip(about(other));
        let differing = pairs.filter(|((_, here), (_, there))| here != there);
        differing.map(|((name, here), (_, there))| (name, here, there)).collect()
    }
}

/// QEMU without hardware help calls its processors so.
fn is_emulated(cpu: &str) -> bool {
    cpu.contains("QEMU TCG")
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_false(value: &bool) -> bool {
    !*value
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or(String::new(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kernel_differs_and_another_load_does_not() {
        let host = Host::here();
        let other = Host { kernel: "Linux 9".to_owned(), load_1min: 99.0, memory_mib: 1, ..host.clone() };
        assert_eq!(host.differences(&other), [("kernel", host.kernel.clone(), "Linux 9".to_owned())]);
    }

    #[test]
    fn a_machine_is_told_to_be_emulated_only_where_it_is() {
        assert!(is_emulated("QEMU TCG CPU version 2.5+"));
        let host = Host { emulated: false, ..Host::here() };
        let written = |host: &Host| serde_json::to_value(host).unwrap();
        assert!(written(&host).get("emulated").is_none());
        let emulated = Host { emulated: true, ..host };
        assert_eq!(serde_json::from_value::<Host>(written(&emulated)).unwrap(), emulated);
    }

    #[test]
    fn the_machine_has_a_kernel_cores_and_memory() {
        let host = Host::here();
        assert!(host.kernel.len() > "Linux ".len() && host.cores > 0 && host.memory_mib > 0, "{host:?}");
    }
}
