//! Open MPI and MPICH: one driver, compiled by each, brought up on both nodes by its own launcher.

use std::path::PathBuf;

use super::{Cast, Facts, Peer, Place, Ready, Scene, Told, driver, drivers, place};
use crate::errand::Errand;
use crate::run::Sample;
use crate::workload::Workload;

/// One implementation of MPI.
pub(super) struct Mpi {
    facts: Facts,
    program: &'static str,
    launcher: &'static str,
    install: &'static str,
    /// Arguments of the launcher before the program's, given the path of what stands in for ssh.
    arguments: fn(&Scene, &str) -> Vec<String>,
    environment: fn(&Scene) -> Vec<(String, String)>,
}

/// What stands in for ssh between the nodes.
const SHELL: &str = "peer-rsh";

static OPENMPI: Mpi = Mpi {
    facts: Facts { name: "openmpi", reliable: true, striped: true },
    program: "peer-openmpi",
    launcher: "mpiexec.openmpi",
    install: "apt-get install openmpi-bin libopenmpi-dev && make peers",
    arguments: openmpi,
    environment: |_| Vec::new(),
};

static MPICH: Mpi = Mpi {
    facts: Facts { name: "mpich", reliable: true, striped: true },
    program: "peer-mpich",
    launcher: "mpiexec.mpich",
    install: "apt-get install mpich libmpich-dev && make peers",
    arguments: mpich,
    environment: |scene| match scene.placement {
        Place::Intra => Vec::new(),
        // Without this it takes nodes of one kernel for one node.
        Place::Inter => [("MPIR_CVAR_NOLOCAL".to_owned(), "1".to_owned())]
            .into_iter()
            .chain(drivers::ucx(scene))
            .collect(),
    },
};

pub(super) static ALL: [&Mpi; 2] = [&OPENMPI, &MPICH];

impl Peer for Mpi {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn program(&self) -> Result<PathBuf, String> {
        place::installed(self.launcher, self.install)?;
        place::driver(self.program, self.install)
    }

    fn supports(&self, workload: Workload, _: Place, _: usize) -> Result<(), String> {
        drivers::supports(workload)
    }

    fn cast(&self, program: PathBuf, scene: &Scene) -> Cast {
        let shell = program.with_file_name(SHELL);
        let mut args = (self.arguments)(scene, &shell.to_string_lossy());
        args.push(program.to_string_lossy().into_owned());
        args.extend(driver::arguments(None, scene));
        let mut environment = (self.environment)(scene);
        environment.push(("TMPDIR".to_owned(), "/dev/shm".to_owned()));
        environment.push(("POLYRAIL_PEER_NODES".to_owned(), nodes(scene)));
        // Each side pins itself: the launcher and its helpers must not crowd one core.
        let errand = Errand { program: self.launcher.into(), args, environment, core: None, file: None };
        Cast::One { errand, done: Ready::Says(driver::DONE) }
    }

    fn sample(&self, _: &Scene, told: &Told) -> Result<Sample, String> {
        driver::sample(told)
    }
}

/// Which namespace has which address.
fn nodes(scene: &Scene) -> String {
    let entry =
        |seat: &super::Seat| seat.namespace.as_ref().map(|namespace| format!("{}={namespace}", seat.address));
    [&scene.sender, &scene.receiver].into_iter().filter_map(entry).collect::<Vec<_>>().join(" ")
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn openmpi(scene: &Scene, shell: &str) -> Vec<String> {
    let common = "--allow-run-as-root --bind-to none --mca mpi_yield_when_idle 0 --mca pml ob1 -n 2";
    let (sender, receiver) = (scene.sender.address, scene.receiver.address);
    words(&match scene.placement {
        Place::Intra => format!("{common} --host localhost:2 --mca btl self,vader"),
        Place::Inter => format!(
            "{common} --host {sender}:1,{receiver}:1 --map-by node --mca plm_rsh_agent {shell} \
             --mca orte_keep_fqdn_hostnames 1 --mca oob_tcp_if_include {} --mca btl self,tcp \
             --mca btl_tcp_if_include {}",
            scene.devices.first().map_or("lo", String::as_str),
            scene.devices.join(",")
        ),
    })
}

fn mpich(scene: &Scene, shell: &str) -> Vec<String> {
    let (sender, receiver) = (scene.sender.address, scene.receiver.address);
    words(&match scene.placement {
        Place::Intra => "-n 2".to_owned(),
        Place::Inter => {
            format!("-launcher ssh -launcher-exec {shell} -hosts {sender},{receiver} -n 2")
        }
    })
}
