//! What the process has cost so far.

use std::io;

use crate::call::check;

/// Whose cost to ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// All threads of this process.
    Process,
    /// The calling thread.
    Thread,
    /// Children that have ended and been waited for.
    Children,
}

/// Processor time and involuntary pauses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuUsage {
    /// Time in the program itself.
    pub user_ns: u64,
    /// Time in the kernel on its behalf.
    pub system_ns: u64,
    /// Times it went to sleep by itself.
    pub sleeps: u64,
    /// Times it was stopped for somebody else.
    pub preemptions: u64,
}

/// The cost so far.
pub fn cpu_usage(whose: Whose) -> io::Result<CpuUsage> {
    let who = match whose {
        Whose::Process => libc::RUSAGE_SELF,
        Whose::Thread => libc::RUSAGE_THREAD,
        Whose::Children => libc::RUSAGE_CHILDREN,
    };
    // SAFETY: the structure is plain integers; zeros are a valid value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer.
    check(unsafe { libc::getrusage(who, &raw mut usage) })?;
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    Ok(CpuUsage {
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        sleeps: usage.ru_nvcsw as u64,
        preemptions: usage.ru_nivcsw as u64,
    })
}

/// Bytes of memory that this process occupies now.
pub fn resident_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: Option<u64> = text.split_whitespace().nth(1).and_then(|field| field.parse().ok());
    // SAFETY: the call takes no pointers.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.map(|count| count * page_bytes as u64).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_time_of_the_thread_and_of_the_process() {
        let (process, thread) = (cpu_usage(Whose::Process).unwrap(), cpu_usage(Whose::Thread).unwrap());
        let total = |usage: CpuUsage| usage.user_ns + usage.system_ns;
        while total(cpu_usage(Whose::Thread).unwrap()) <= total(thread) {
            std::hint::black_box([0u8; 4096]);
        }
        while total(cpu_usage(Whose::Process).unwrap()) <= total(process) {
            std::hint::black_box([0u8; 4096]);
        }
        cpu_usage(Whose::Children).unwrap();
    }

    #[test]
    fn touched_memory_is_resident() {
        let before = resident_bytes().unwrap();
        assert!(before > 0);
        let block = std::hint::black_box(vec![1u8; 32 << 20]);
        assert!(resident_bytes().unwrap() >= before + (16 << 20));
        drop(block);
    }
}
