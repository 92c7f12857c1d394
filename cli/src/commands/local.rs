//! `local`

pub(super) mod down;
pub(super) mod keep;
mod kept;
pub(super) mod logs;
mod network;
pub(super) mod show;
mod start;
pub(super) mod up;

use serde_json::{Value, json};

pub(super) use start::neond;

use crate::instance::{Instance, State};
use crate::report::API_VERSION;

fn value(instance: &Instance) -> Value {
    let state = instance.state();
    let mut value = json!({
        "apiVersion": API_VERSION,
        "kind": "LocalCluster",
        "name": instance.name,
        "status": word(&state),
        "server": instance.server(),
        "kubeconfig": instance.kubeconfig(),
        "directory": instance.directory,
    });
    if let (State::Running(process), Some(value)) = (state, value.as_object_mut()) {
        value.insert("pid".into(), json!(process.pid));
        value.insert("since".into(), json!(process.since));
    }
    value
}

fn word(state: &State) -> &'static str {
    match state {
        State::Running(_) => "running",
        State::Ended(_) => "ended",
        State::Stopped => "stopped",
    }
}

/// What the services could not do about this host's firewall, a line each.
fn firewall(instance: &Instance) -> Vec<String> {
    let text = std::fs::read_to_string(instance.directory.join("firewall.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}
