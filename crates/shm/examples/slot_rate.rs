//! What a ring of slots moves between two pinned threads: how long a message takes one way while both wait for each other,
//! and how many go through one way.
//!
//! `cargo run --release -p polyrail-shm --example slot_rate [REPETITIONS [CORE_FROM CORE_TO [SLOTS [LAP]]]]` prints minimum, median
//! and maximum, for a ring of 32,768 slots with laps of 1,024 at least if nothing else is said. Beside them a bare word that goes to and fro: less than that is not possible.

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

    use polyrail_shm::slot_ring::{BODY_BYTES, slot_ring_bytes};
    use polyrail_shm::sync::{AtomicU64, Ordering, cpu_relax};
    use polyrail_shm::{Label, Segment, SlotConsumer, SlotProducer};

    const ROUNDS: u64 = 200_000;
    const MESSAGES: u64 = 4_000_000;
    /// Slots of a ring, and of its laps at least.
    #[derive(Clone, Copy)]
    struct Shape {
        slots: u32,
        lap: u32,
    }

    /// What a core is told of another later than this (nanoseconds) has come from far: on virtual machines that changes by the
    /// minute, and figures of either kind say nothing of each other.
    const NEAR_NS_MAX: f64 = 120.0;

    pub fn run() -> io::Result<()> {
        let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
        let repetitions = numbers.first().copied().unwrap_or(5).max(1);
        let cores = [numbers.get(1).copied().unwrap_or(0), numbers.get(2).copied().unwrap_or(1)];
        let number = |at: usize, usual: u32| numbers.get(at).map_or(usual, |&number| number as u32);
        let shape = Shape { slots: number(3, 32_768), lap: number(4, 1_024) };
        let mut table = [const { Figures::new() }; 2];
        for _ in 0..repetitions {
            for bytes in [8, 48, 64, BODY_BYTES] {
                let word_ns = bare(cores);
                let figures = &mut table[usize::from(word_ns > NEAR_NS_MAX)];
                figures.add("bare word, ns one way".to_owned(), word_ns);
                figures.add(format!("{bytes} bytes, ns one way"), ping(bytes, cores, shape)?);
                figures.add(format!("{bytes} bytes, M messages/s"), stream(bytes, cores, shape)?);
            }
        }
        for (place, figures) in ["near", "far"].iter().zip(&mut table) {
            figures.print(place);
        }
        Ok(())
    }

    /// Values by name.
    struct Figures(Vec<(String, Vec<f64>)>);

    impl Figures {
        const fn new() -> Figures {
            Figures(Vec::new())
        }

        fn add(&mut self, name: String, value: f64) {
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(value),
                None => self.0.push((name, vec![value])),
            }
        }

        fn print(&mut self, place: &str) {
            for (name, values) in &mut self.0 {
                values.sort_by(f64::total_cmp);
                let (low, middle, high) = (values[0], values[values.len() / 2], values[values.len() - 1]);
                println!("{place:<4} {name:<24} {low:7.1} {middle:7.1} {high:7.1}  of {}", values.len());
            }
        }
    }

    /// Runs both, each on its core; seconds that the second took.
    fn both(cores: [usize; 2], first: impl FnOnce() + Send, second: impl FnOnce()) -> f64 {
        let pinned = Arc::new(Barrier::new(2));
        let other = Arc::clone(&pinned);
        thread::scope(|scope| {
            scope.spawn(move || {
                pin(cores[0]);
                other.wait();
                first();
            });
            pinned.wait();
            pin(cores[1]);
            let start = Instant::now();
            second();
            start.elapsed().as_secs_f64()
        })
    }

    fn bare(cores: [usize; 2]) -> f64 {
        #[repr(align(128))]
        struct Alone(AtomicU64);
        let word = Alone(AtomicU64::new(0));
        let word = &word;
        let turns = move |parity: u64| {
            for round in 0..ROUNDS {
                while word.0.load(Ordering::Acquire) != 2 * round + parity {
                    cpu_relax();
                }
                word.0.store(2 * round + parity + 1, Ordering::Release);
            }
        };
        both(cores, move || turns(0), move || turns(1)) * 1e9 / (2 * ROUNDS) as f64
    }

    fn ring(Shape { slots, lap }: Shape) -> io::Result<(SlotProducer, SlotConsumer)> {
        let segment = Segment::shared(slot_ring_bytes(slots) as usize)?;
        let ends = (SlotProducer::new(&segment, 0, slots), SlotConsumer::new(&segment, 0, slots));
        let (Some(mut producer), Some(consumer)) = ends else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        producer.set_lap_min(lap);
        Ok((producer, consumer))
    }

    fn send(producer: &mut SlotProducer, number: u64, body: &[u8]) {
        while producer.push(Label { note: body.len() as u32, meta: number }, body).is_err() {
            cpu_relax();
        }
    }

    fn receive(consumer: &mut SlotConsumer, number: u64, body: &mut [u8]) {
        let label = loop {
            if let Some(label) = consumer.peek() {
                break label;
            }
            cpu_relax();
        };
        let body = &mut body[..label.note as usize];
        consumer.read_body(body);
        consumer.advance();
        assert_eq!((label.meta, body[0], body[body.len() - 1]), (number, number as u8, number as u8));
    }

    fn ping(bytes: usize, cores: [usize; 2], shape: Shape) -> io::Result<f64> {
        let (mut to, mut from_first) = ring(shape)?;
        let (mut back, mut from_second) = ring(shape)?;
        let first = move || {
            let mut body = [0; BODY_BYTES];
            for round in 0..ROUNDS {
                receive(&mut from_first, round, &mut body);
                back.rest();
                send(&mut back, round, &body[..bytes]);
            }
        };
        let second = move || {
            let mut body = [0; BODY_BYTES];
            for round in 0..ROUNDS {
                body.fill(round as u8);
                to.rest();
                send(&mut to, round, &body[..bytes]);
                receive(&mut from_second, round, &mut body);
            }
        };
        Ok(both(cores, first, second) * 1e9 / (2 * ROUNDS) as f64)
    }

    fn stream(bytes: usize, cores: [usize; 2], shape: Shape) -> io::Result<f64> {
        let (mut producer, mut consumer) = ring(shape)?;
        let first = move || {
            let mut body = [0; BODY_BYTES];
            for number in 0..MESSAGES {
                (body[0], body[bytes - 1]) = (number as u8, number as u8);
                send(&mut producer, number, &body[..bytes]);
            }
        };
        let second = move || {
            let mut body = [0; BODY_BYTES];
            for number in 0..MESSAGES {
                receive(&mut consumer, number, &mut body);
            }
        };
        Ok(MESSAGES as f64 / both(cores, first, second) / 1e6)
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
