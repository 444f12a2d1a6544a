//! Several measurements under one name: one report of all.

use super::{Run, select, stop_on_signals};
use crate::args::{NamedArgs, Plan};
use crate::report::Report;

/// Measures all of it. What goes wrong is part of the report.
pub(super) fn measure(args: &NamedArgs) -> Report {
    let plans = args
        .measurements()
        .and_then(|all| all.iter().map(|one| one.plan()).collect::<Result<Vec<Plan>, String>>());
    let checked = plans.and_then(|plans| {
        let protocols = plans.iter().map(select).collect::<Result<Vec<_>, _>>()?;
        Ok((plans, protocols))
    });
    let (plans, protocols) = match checked {
        Ok(checked) => checked,
        Err(error) => return Report::refused(error),
    };
    let stop = match stop_on_signals() {
        Ok(stop) => stop,
        Err(error) => return Report::failed(format!("signals: {error}")),
    };
    let mut report = Report::new();
    report.set_plans(&plans);
    for (plan, protocols) in plans.iter().zip(protocols) {
        let stop = stop.clone();
        let mut run = Run { report, plan, protocols, peers: Vec::new(), stop, far: None, journal: None };
        let ended = run.environments();
        report = run.report;
        if let Err(error) = ended {
            report.set_error(error);
            break;
        }
    }
    report.show_model();
    report.conclude(plans.first().map_or(&[], |plan| &plan.versus));
    report
}
