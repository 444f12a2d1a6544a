//! How many 64-byte entries per second go through a ring one way, from one pinned thread to another.
//!
//! `cargo run --release -p polyrail-shm --example ring_rate [REPETITIONS [CORE_FROM CORE_TO]]` prints one line per way of
//! using the ring: million entries per second as minimum, median and maximum. Every entry is checked on arrival.

#[cfg(not(loom))]
fn main() -> std::io::Result<()> {
    rate::run()
}

#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
mod rate {
    use std::io;
    use std::sync::{Arc, Barrier};
    use std::thread;
    use std::time::Instant;

    use polyrail_shm::sync::cpu_relax;
    use polyrail_shm::{Backing, Client, Engine, QueuePair, Sizes};

    const ENTRIES: u64 = 20_000_000;

    struct Way {
        name: &'static str,
        staged: u64,
        batch: usize,
    }

    const WAYS: [Way; 3] = [
        Way { name: "push each, pop each", staged: 1, batch: 1 },
        Way { name: "push each, pop up to 64", staged: 1, batch: 64 },
        Way { name: "stage 16, pop up to 64", staged: 16, batch: 64 },
    ];

    pub fn run() -> io::Result<()> {
        let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
        let repetitions = numbers.first().copied().unwrap_or(5).max(1);
        let cores = (numbers.get(1).copied().unwrap_or(0), numbers.get(2).copied().unwrap_or(1));
        for way in &WAYS {
            let mut rates = (0..repetitions).map(|_| once(way, cores)).collect::<io::Result<Vec<f64>>>()?;
            rates.sort_by(f64::total_cmp);
            let (low, middle, high) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
            println!("{:<26} {low:7.1} {middle:7.1} {high:7.1} M entries/s", way.name);
        }
        Ok(())
    }

    /// Million entries per second of one run.
    fn once(way: &Way, cores: (usize, usize)) -> io::Result<f64> {
        let (client, engine) = QueuePair::create(Sizes::default(), Backing::Private)?;
        let (staged, batch) = (way.staged, way.batch);
        let both_pinned = Arc::new(Barrier::new(2));
        let filler_pinned = Arc::clone(&both_pinned);
        let filling = thread::spawn(move || {
            pin(cores.0);
            filler_pinned.wait();
            fill(client, staged);
        });
        // A new thread starts on this one's core: spinning there before it has moved away could keep it for ever.
        both_pinned.wait();
        pin(cores.1);
        let start = Instant::now();
        drain(engine, batch);
        let seconds = start.elapsed().as_secs_f64();
        filling.join().map_err(|_| io::Error::other("the filling thread panicked"))?;
        Ok(ENTRIES as f64 / seconds / 1e6)
    }

    fn fill(mut client: Client, staged: u64) {
        for number in 0..ENTRIES {
            while client.sq.stage(&[number; 8]).is_err() {
                client.sq.publish();
                cpu_relax();
            }
            if number % staged == staged - 1 {
                client.sq.publish();
            }
        }
        client.sq.publish();
    }

    fn drain(mut engine: Engine, batch: usize) {
        let mut next = 0;
        while next < ENTRIES {
            let taken = engine.sq.pop_batch(batch, |entry| {
                assert_eq!(entry, [next; 8]);
                next += 1;
            });
            if taken == 0 {
                cpu_relax();
            }
        }
    }

    /// Binds this thread to one core; without that right it stays where it is.
    fn pin(core: usize) {
        // SAFETY: an all-zero set is an empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        if core < libc::CPU_SETSIZE as usize {
            // SAFETY: the core number is within the set.
            unsafe { libc::CPU_SET(core, &mut set) };
        }
        // SAFETY: the set is a live local of the size given; thread 0 is the calling one.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    }
}
