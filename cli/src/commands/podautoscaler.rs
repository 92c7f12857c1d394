//! `podautoscaler`

pub(super) mod describe;
pub(super) mod events;
pub(super) mod explain;
mod level;
pub(super) mod pause;
mod show;
pub(super) mod table;
pub(super) mod wait;

use neonvm_api::PodAutoscaler;

/// The problem of an object that does not scale its target; `None` if there is none.
pub(super) fn trouble(object: &serde_json::Value) -> Option<String> {
    use show::Word::{Blind, Conflict, Failed, Invalid};
    let object: PodAutoscaler = serde_json::from_value(object.clone()).ok()?;
    let word = show::Word::from_object(&object);
    matches!(word, Invalid | Conflict | Failed | Blind)
        .then(|| format!("{}: {}", word.text(), show::message(&object)))
}
