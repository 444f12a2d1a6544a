//! zenoh: a publisher and a subscriber each way between two peers, over TCP between nodes and a Unix socket within
//! one. Its own threads carry the messages.

#[path = "../../driver.rs"]
mod driver;

use std::time::{Duration, Instant};

use driver::{About, Job, Link, main as play, ready};
use zenoh::bytes::ZBytes;
use zenoh::handlers::FifoChannelHandler;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::{Config, Session, Wait};

/// Longest time for the other side to subscribe.
const APPEAR_MAX: Duration = Duration::from_secs(20);

struct Pair {
    publisher: Publisher<'static>,
    subscriber: Subscriber<FifoChannelHandler<Sample>>,
    session: Session,
    size: usize,
}

fn main() {
    play("zenoh", open)
}

fn config(job: &Job) -> Result<Config, String> {
    let endpoint = if job.intra {
        format!("[\"unixsock-stream//dev/shm/peer-zenoh-{}\"]", job.port)
    } else {
        format!("[\"tcp/{}:{}\"]", job.address, job.port)
    };
    let (listen, connect) = if job.sender { ("[]", endpoint.as_str()) } else { (endpoint.as_str(), "[]") };
    let mut config = Config::default();
    for (key, value) in [
        ("mode", "\"peer\""),
        ("scouting/multicast/enabled", "false"),
        ("scouting/gossip/enabled", "false"),
        ("listen/endpoints", listen),
        ("connect/endpoints", connect),
        // Between nodes, it would use memory that two machines do not share.
        ("transport/shared_memory/enabled", if job.intra { "true" } else { "false" }),
    ] {
        config.insert_json5(key, value).map_err(|error| format!("{key}: {error}"))?;
    }
    Ok(config)
}

fn open(job: &Job) -> Result<(Pair, About), String> {
    let session = zenoh::open(config(job)?).wait().map_err(|error| format!("session: {error}"))?;
    let (out, into) = if job.sender { ("forth", "back") } else { ("back", "forth") };
    let subscriber =
        session.declare_subscriber(into).wait().map_err(|error| format!("subscriber: {error}"))?;
    // Messages of a stream may travel together; an answer must not wait for others.
    let publisher = session
        .declare_publisher(out)
        .congestion_control(CongestionControl::Block)
        .express(job.pingpong)
        .wait()
        .map_err(|error| format!("publisher: {error}"))?;
    if !job.sender {
        ready();
    }
    let start = Instant::now();
    while !publisher.matching_status().wait().is_ok_and(|status| status.matching()) {
        if start.elapsed() > APPEAR_MAX {
            return Err("the other side did not appear".to_owned());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let over = if job.intra { "a Unix socket, large messages by shared memory" } else { "TCP" };
    let about = About { name: "zenoh", version: "1.10.2", over, waits: "block" };
    Ok((Pair { publisher, subscriber, session, size: job.size }, about))
}

impl Link for Pair {
    fn send(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<(), String> {
        let mut message = vec![0; self.size];
        fill(&mut message);
        self.publisher.put(ZBytes::from(message)).wait().map_err(|error| format!("put: {error}"))
    }

    fn recv<T>(&mut self, take: impl FnOnce(&[u8]) -> T) -> Result<T, String> {
        let sample = self.subscriber.recv().map_err(|error| format!("receive: {error}"))?;
        Ok(take(&sample.payload().to_bytes()))
    }

    fn close(self) -> Result<(), String> {
        // Closing discards what is still queued.
        std::thread::sleep(Duration::from_millis(300));
        self.session.close().wait().map_err(|error| format!("close: {error}"))
    }
}
