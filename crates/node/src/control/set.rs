//! `link set`: what the operator wants of a link. The only request that changes anything.

use super::find;
use super::{Refusal, rows};
use crate::engine::Engine;
use polyrail_proto::error::LinkSetError;
use polyrail_proto::wire::LinkStatus;
use serde_json::Value;

/// What is wanted, from the request's `status`.
pub(super) fn status_of(request: &Value) -> Result<LinkStatus, Refusal> {
    match request["status"].as_str() {
        Some("active") => Ok(LinkStatus::Active),
        Some("standby") => Ok(LinkStatus::Standby),
        Some("drain") => Ok(LinkStatus::Drain),
        _ => {
            let given = &request["status"];
            Err(Refusal::new("request", format!("\"status\" is {given}; allowed: active, standby, drain")))
        }
    }
}

/// Sets it, and tells what has become of the link.
pub(super) fn link(engine: &mut Engine, name: &str, status: LinkStatus) -> Result<Value, Refusal> {
    let (node, id) = find::link(engine, name)?;
    engine.set_link(node, id, status).map_err(|error| refusal(name, error))?;
    let session = engine.session_with(node);
    let link =
        session.and_then(|session| session.links.iter().find(|link| link.spec.id == id).zip(Some(session)));
    let (link, session) = link.ok_or_else(|| refusal(name, LinkSetError::NoLink(node, id)))?;
    Ok(rows::set_row(session, link))
}

fn refusal(name: &str, error: LinkSetError) -> Refusal {
    match error {
        LinkSetError::NoNode(_) | LinkSetError::NoLink(..) => {
            let message =
                format!("link {name:?} is gone, and with it what was wanted of it; see `polyrail link list`");
            Refusal::new("not_found", message)
        }
        LinkSetError::LastLink(..) => {
            let peer = name.rsplit_once('/').map_or(name, |(peer, _)| peer);
            let message = format!(
                "link {name:?} is the last one that takes messages to {peer:?}: without it they would wait. Set another of its \
                 links to active first (`polyrail link list` shows which are down, or drained), or this one to standby"
            );
            Refusal::new("last_link", message)
        }
        other => Refusal::new("failed", format!("link {name:?}: {other}")),
    }
}
