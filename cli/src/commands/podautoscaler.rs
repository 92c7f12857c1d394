//! `podautoscaler`

pub(super) mod describe;
mod events;
pub(super) mod explain;
pub(super) mod history;
mod level;
pub(super) mod list;
pub(super) mod pause;
mod show;
mod table;
pub(super) mod wait;

use kube::api::{Api, ListParams};
use neonvm_api::PodAutoscaler;

use super::vm::machines::{Machines, nearest};
use crate::error::{Code, Error, Result};

/// Pod autoscalers of a namespace.
fn api(place: &Machines) -> Api<PodAutoscaler> {
    Api::namespaced(place.connection.client(), &place.namespace)
}

fn name_of(object: &PodAutoscaler) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

/// The pod autoscaler of this name; else exit code 3, with the name that may have been meant.
async fn find(place: &Machines, name: &str) -> Result<PodAutoscaler> {
    let attempt = format!("cannot get pod autoscaler {name:?}");
    let api = api(place);
    if let Some(found) = place.connection.within(&attempt, api.get_opt(name)).await? {
        return Ok(found);
    }
    let namespace = &place.namespace;
    let error =
        Error::new(Code::NotFound, format!("pod autoscaler {name:?} not found in namespace {namespace:?}"));
    let names = match place.connection.within("", api.list_metadata(&ListParams::default())).await {
        Ok(list) => list.items.into_iter().filter_map(|item| item.metadata.name).collect(),
        Err(error) if error.code == Code::NotFound => return Err(undefined(error, &attempt)),
        Err(_) => Vec::new(),
    };
    Err(match nearest(name, &names) {
        Some(meant) => error.hint(format!("did you mean {meant:?}?")),
        None => error.hint(format!("list the pod autoscalers: neonctl podautoscaler list -n {namespace}")),
    })
}

/// The error of a list whose custom resource definition does not exist.
fn undefined(error: Error, attempt: &str) -> Error {
    if error.code != Code::NotFound {
        return error;
    }
    Error::new(Code::NotFound, attempt)
        .cause("this cluster has no definition of podautoscalers.autoscaling.aibrix.ai")
        .hint("see what else is missing: neonctl status")
}

/// The problem of an object that does not scale its target; `None` if there is none.
pub(super) fn trouble(object: &serde_json::Value) -> Option<String> {
    use show::Word::{Blind, Conflict, Failed, Invalid};
    let object: PodAutoscaler = serde_json::from_value(object.clone()).ok()?;
    let word = show::Word::of(&object);
    matches!(word, Invalid | Conflict | Failed | Blind)
        .then(|| format!("{}: {}", word.text(), show::message(&object)))
}
