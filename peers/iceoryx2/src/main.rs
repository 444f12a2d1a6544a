//! iceoryx2: publish-subscribe both ways between two processes of one machine. The payload is copied in from the
//! application's memory, as our protocols are given it, and read where it lies; whoever waits asks again and again.

#[path = "../../driver.rs"]
mod driver;

use std::fmt::Display;
use std::hint::spin_loop;
use std::time::{Duration, Instant};

use driver::{About, Job, Link, main as play, ready};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

/// Messages that wait on the way.
const QUEUE: usize = 256;
/// Shorter than any message.
const HELLO: &[u8] = b"hello";
/// Longest time for the other side to appear.
const APPEAR_MAX: Duration = Duration::from_secs(20);

struct Pair {
    // The order is that of their end.
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    _node: Node<ipc::Service>,
    message: Vec<u8>,
}

fn main() {
    play("iceoryx2", open)
}

fn told(what: &'static str) -> impl Fn(&dyn Display) -> String {
    move |error| format!("{what}: {error}")
}

fn open(job: &Job) -> Result<(Pair, About), String> {
    set_log_level(LogLevel::Error);
    // Its files go where its memory is, so that both end together.
    let mut config = Config::default();
    let root = Path::new(b"/dev/shm/iceoryx2").map_err(|error| format!("files: {error:?}"))?;
    config.global.set_root_path(&root);
    let node = NodeBuilder::new().config(&config).create::<ipc::Service>();
    let node = node.map_err(|error| told("node")(&error))?;
    let service = |way: &str| -> Result<_, String> {
        let name = format!("polyrail-peer-{}-{way}", job.port);
        let name = ServiceName::new(&name).map_err(|error| told("name")(&error))?;
        let builder = node.service_builder(&name).publish_subscribe::<[u8]>();
        let builder = builder.enable_safe_overflow(false).history_size(0).subscriber_max_buffer_size(QUEUE);
        let builder = builder.subscriber_max_borrowed_samples(2).max_publishers(1).max_subscribers(1);
        builder.open_or_create().map_err(|error| told("service")(&error))
    };
    let (forth, back) = (service("forth")?, service("back")?);
    let (out, into) = if job.sender { (&forth, &back) } else { (&back, &forth) };
    let publisher = out.publisher_builder().initial_max_slice_len(job.size).max_loaned_samples(2);
    let publisher = publisher.backpressure_strategy(BackpressureStrategy::RetryUntilDelivered);
    let publisher = publisher.create().map_err(|error| told("publisher")(&error))?;
    let subscriber = into.subscriber_builder().buffer_size(QUEUE).create();
    let subscriber = subscriber.map_err(|error| told("subscriber")(&error))?;
    if !job.sender {
        ready();
    }
    // What is published before the other side subscribes is for nobody.
    let start = Instant::now();
    while out.dynamic_config().number_of_subscribers() == 0
        || into.dynamic_config().number_of_publishers() == 0
    {
        if start.elapsed() > APPEAR_MAX {
            return Err("the other side did not appear".to_owned());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let message = vec![0x5A; job.size];
    let pair = Pair { publisher, subscriber, _node: node, message };
    pair.greet(job.sender, start)?;
    let about = About {
        name: "iceoryx2",
        version: "0.10.0",
        over: "shared memory (publish-subscribe), copied in, read in place",
        waits: "spin",
    };
    Ok((pair, about))
}

impl Pair {
    fn publish(&self, bytes: &[u8]) -> Result<(), String> {
        let sample = self.publisher.loan_slice_uninit(bytes.len()).map_err(|error| told("loan")(&error))?;
        sample.write_from_slice(bytes).send().map_err(|error| told("send")(&error))?;
        Ok(())
    }

    /// Both sides see each other before they are joined, and what is published until then is for nobody. The receiver
    /// greets until it is answered; greetings that are left over are passed over later.
    fn greet(&self, sender: bool, start: Instant) -> Result<(), String> {
        while start.elapsed() < APPEAR_MAX {
            if !sender {
                self.publish(HELLO)?;
            }
            if self.subscriber.receive().map_err(|error| told("receive")(&error))?.is_some() {
                return if sender { self.publish(HELLO) } else { Ok(()) };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err("the other side did not answer".to_owned())
    }
}

impl Link for Pair {
    fn send(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<(), String> {
        fill(&mut self.message);
        self.publish(&self.message)
    }

    fn recv<T>(&mut self, take: impl FnOnce(&[u8]) -> T) -> Result<T, String> {
        loop {
            match self.subscriber.receive().map_err(|error| told("receive")(&error))? {
                Some(sample) if sample.payload().len() > HELLO.len() => return Ok(take(sample.payload())),
                _ => {}
            }
            spin_loop();
        }
    }

    fn close(self) -> Result<(), String> {
        // What was sent must still be there for the other side to read.
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    }
}
