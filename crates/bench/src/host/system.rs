//! How the system is set up, as far as figures depend on it. What cannot be read is absent.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// Idle states, memory, scheduling, clock and network settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct System {
    /// What a core does that has nothing to do: leaving it is part of each wake-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_idle: Option<CpuIdle>,
    /// Nodes of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_nodes: Option<usize>,
    /// Whether cores are threads that share one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smt: Option<bool>,
    /// Whether the scheduler weighs sessions and not processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autogroup: Option<bool>,
    /// The kernel's options about mitigations and cores kept free; its other options are nobody's business.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel_options: Vec<String>,
    /// What time is read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clocksource: Option<String>,
    /// Size of a page, in bytes.
    pub page_bytes: usize,
    /// Who gets huge pages: `always`, `madvise` or `never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transparent_hugepages: Option<String>,
    /// The sysctls that size socket buffers, in bytes: one number, or least, default and most.
    pub socket_buffers: BTreeMap<String, Vec<u64>>,
    /// Queueing discipline of devices that are given none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_qdisc: Option<String>,
    /// Versions of what testbeds and protocols are made with.
    pub tools: BTreeMap<String, String>,
}

/// Idle states of a core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuIdle {
    /// The driver.
    pub driver: String,
    /// What chooses among the states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// The states of the first core, the lightest first.
    pub states: Vec<IdleState>,
}

/// One idle state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleState {
    /// Its name.
    pub name: String,
    /// Time to leave it, in us, as the driver says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// Whether it is switched off.
    pub disabled: bool,
}

const CPU: &str = "/sys/devices/system/cpu";
const BUFFER_SYSCTLS: [&str; 6] = [
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];
/// Options of the kernel that change what its calls cost or which cores it leaves alone.
const OPTIONS: [&str; 3] = ["mitigations=", "isolcpus=", "nohz_full="];

impl System {
    /// Looks at this machine.
    pub(super) fn here() -> Self {
        let switch = |path: &str| read(path).map(|text| text == "1");
        Self {
            cpu_idle: cpu_idle(),
            numa_nodes: numbered("/sys/devices/system/node", "node").filter(|&count| count > 0),
            smt: switch(&format!("{CPU}/smt/active")),
            autogroup: switch("/proc/sys/kernel/sched_autogroup_enabled"),
            kernel_options: kernel_options(&read("/proc/cmdline").unwrap_or_default()),
            clocksource: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            page_bytes: rustix::param::page_size(),
            transparent_hugepages: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| chosen(&text).map(str::to_owned)),
            socket_buffers: BUFFER_SYSCTLS
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), sysctl(name)?)))
                .collect(),
            default_qdisc: read("/proc/sys/net/core/default_qdisc"),
            tools: tools(),
        }
    }
}

fn cpu_idle() -> Option<CpuIdle> {
    let driver = read(&format!("{CPU}/cpuidle/current_driver"))?;
    let state = |number: usize| {
        let field = |name: &str| read(&format!("{CPU}/cpu0/cpuidle/state{number}/{name}"));
        Some(IdleState {
            name: field("name")?,
            latency_us: field("latency").and_then(|text| text.parse().ok()),
            disabled: field("disable").is_some_and(|text| text != "0"),
        })
    };
    let governor = ["current_governor", "current_governor_ro"]
        .iter()
        .find_map(|name| read(&format!("{CPU}/cpuidle/{name}")));
    Some(CpuIdle { driver, governor, states: (0..).map_while(state).collect() })
}

/// How many entries of a folder are called `prefix` and a number.
fn numbered(folder: &str, prefix: &str) -> Option<usize> {
    let is_one = |name: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.parse::<u32>().is_ok());
    let entries = fs::read_dir(folder).ok()?;
    Some(entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_one)).count())
}

fn kernel_options(command_line: &str) -> Vec<String> {
    let is_told = |word: &&str| OPTIONS.iter().any(|option| word.starts_with(option));
    command_line.split_whitespace().filter(is_told).map(str::to_owned).collect()
}

/// The word in brackets: the kernel lists what there is to choose from.
fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

fn sysctl(name: &str) -> Option<Vec<u64>> {
    let text = read(&format!("/proc/sys/{}", name.replace('.', "/")))?;
    text.split_whitespace().map(|word| word.parse().ok()).collect()
}

fn tools() -> BTreeMap<String, String> {
    let mut tools = BTreeMap::new();
    for program in ["ip", "tc"] {
        if let Some(version) = output(Command::new(program).arg("-V")).as_deref().and_then(iproute_version) {
            tools.insert(program.to_owned(), version.to_owned());
        }
    }
    #[cfg(feature = "zmq")]
    {
        let (major, minor, patch) = zmq::version();
        tools.insert("libzmq".to_owned(), format!("{major}.{minor}.{patch}"));
    }
    tools
}

/// `iproute2-6.1.0` of `ip utility, iproute2-6.1.0, libbpf 1.1.2`.
fn iproute_version(text: &str) -> Option<&str> {
    text.split([',', ' ', '\n']).find(|word| word.starts_with("iproute2-"))
}

/// What a command writes to its standard output, whether it ends well or not; none if it does not run.
pub(super) fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_command_line_only_what_bears_on_figures_is_recorded() {
        let line =
            "console=ttyS0 mitigations=auto,nosmt root=/dev/sda password=x isolcpus=1 nohz_full=1-3 quiet";
        assert_eq!(kernel_options(line), ["mitigations=auto,nosmt", "isolcpus=1", "nohz_full=1-3"]);
        assert!(kernel_options("quiet").is_empty());
    }

    #[test]
    fn the_choice_is_the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("none"), None);
    }

    #[test]
    fn a_version_is_found_in_what_the_tool_says_of_itself() {
        assert_eq!(iproute_version("ip utility, iproute2-6.1.0, libbpf 1.1.2\n"), Some("iproute2-6.1.0"));
        assert_eq!(iproute_version("no such thing"), None);
    }

    #[test]
    fn what_is_not_there_is_absent_and_what_every_linux_has_is_there() {
        assert_eq!(read("/proc/no/such/file"), None);
        assert_eq!(sysctl("net.core.no_such_thing"), None);
        assert_eq!(numbered("/no/such/folder", "node"), None);
        assert_eq!(output(&mut Command::new("polyrail-no-such-program")), None);
        let system = System::here();
        assert!(system.page_bytes >= 4096 && system.socket_buffers["net.ipv4.tcp_rmem"].len() == 3);
    }
}
