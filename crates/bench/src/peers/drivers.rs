//! The peers whose two sides are drivers of our own, each started by itself.

use std::path::PathBuf;

use super::{Cast, Facts, Peer, Place, Ready, Scene, Told, driver, place};
use crate::control::Role;
use crate::errand::Errand;
use crate::run::Sample;
use crate::workload::Workload;

/// A peer with a driver.
pub(super) struct Driven {
    facts: Facts,
    program: &'static str,
    install: &'static str,
    /// Whether it leaves its machine.
    leaves: bool,
    /// The largest message it takes.
    bytes_max: usize,
    /// What it reads from its environment.
    environment: fn(&Scene) -> Vec<(String, String)>,
}

/// As large as any message that is measured.
const ANY_SIZE: usize = usize::MAX;

const NONE: Driven = Driven {
    facts: Facts { name: "", reliable: true, striped: false },
    program: "",
    install: "",
    leaves: true,
    bytes_max: ANY_SIZE,
    environment: |_| Vec::new(),
};

pub(super) static ALL: [Driven; 6] = [
    Driven {
        facts: Facts { name: "ucx", striped: true, ..NONE.facts },
        program: "peer-ucx",
        install: "apt-get install libucx-dev && make peers",
        environment: ucx,
        ..NONE
    },
    Driven {
        facts: Facts { name: "libfabric", ..NONE.facts },
        program: "peer-libfabric",
        install: "apt-get install libfabric-dev && make peers",
        ..NONE
    },
    Driven {
        facts: Facts { name: "aeron", ..NONE.facts },
        program: "peer-aeron",
        install: "apt-get install cmake libbsd-dev uuid-dev zlib1g-dev && make -C peers aeron",
        // A sixteenth of a term of 16 MiB, and room for a header.
        bytes_max: 1 << 20,
        ..NONE
    },
    Driven {
        facts: Facts { name: "iceoryx2", ..NONE.facts },
        program: "peer-iceoryx2",
        install: "make -C peers iceoryx2",
        leaves: false,
        ..NONE
    },
    Driven {
        facts: Facts { name: "nng", ..NONE.facts },
        program: "peer-nng",
        install: "apt-get install libnng-dev && make peers",
        ..NONE
    },
    Driven {
        facts: Facts { name: "zenoh", ..NONE.facts },
        program: "peer-zenoh",
        install: "make -C peers zenoh",
        ..NONE
    },
];

impl Peer for Driven {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn program(&self) -> Result<PathBuf, String> {
        place::driver(self.program, self.install)
    }

    fn supports(&self, workload: Workload, placement: Place, size: usize) -> Result<(), String> {
        supports(workload)?;
        if placement == Place::Inter && !self.leaves {
            return Err("does not leave its machine: see --placement intra".to_owned());
        }
        if size > self.bytes_max {
            return Err(format!("takes messages of up to {} bytes here", self.bytes_max));
        }
        Ok(())
    }

    fn cast(&self, program: PathBuf, scene: &Scene) -> Cast {
        let errand = |role| Errand {
            program: program.clone(),
            args: driver::arguments(Some(role), scene),
            environment: (self.environment)(scene),
            // Its threads stay free; the measuring one pins itself, as ours does.
            ..Errand::default()
        };
        Cast::Two {
            receiver: errand(Role::Receiver),
            ready: Ready::Says(driver::READY),
            ends_itself: true,
            sender: errand(Role::Sender),
        }
    }

    fn sample(&self, _: &Scene, told: &Told) -> Result<Sample, String> {
        driver::sample(told)
    }
}

/// What any driver can do.
pub(super) fn supports(workload: Workload) -> Result<(), String> {
    match workload {
        Workload::Stream | Workload::Rate | Workload::PingPong => Ok(()),
        other => Err(format!("has no driver for {}", other.name())),
    }
}

/// Shared memory within a machine; TCP over every link between nodes. Left to itself, UCX uses shared memory between
/// namespaces, too.
pub(super) fn ucx(scene: &Scene) -> Vec<(String, String)> {
    let entry = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    match scene.placement {
        Place::Intra => vec![entry("UCX_TLS", "posix,self")],
        Place::Inter => {
            let rails = scene.devices.len().to_string();
            vec![
                entry("UCX_TLS", "tcp,self"),
                entry("UCX_NET_DEVICES", &scene.devices.join(",")),
                entry("UCX_MAX_RNDV_RAILS", &rails),
                entry("UCX_MAX_EAGER_RAILS", &rails),
            ]
        }
    }
}
