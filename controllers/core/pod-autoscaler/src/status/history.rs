//! The last changes of an object.

use jiff::SignedDuration;
use neonvm_api::pod_autoscaler::ScalingDecision;

/// Most changes that are kept.
pub const MOST_HISTORY: usize = 5;
/// The same outcome again within this time is the same entry.
const REPEAT: SignedDuration = SignedDuration::from_secs(5);

/// Adds a change; removes the oldest if there are too many. A change equal to the last one within five seconds is not added,
/// nor is a repeated failure, however late: a target that cannot be written must not displace the history. A repeated
/// failure is counted in `status.lastFailure`.
pub fn push_history(history: &mut Vec<ScalingDecision>, entry: ScalingDecision) {
    if let Some(last) = history.last() {
        let same =
            (last.new_scale, last.success, &last.error) == (entry.new_scale, entry.success, &entry.error);
        let soon = entry.timestamp.0.duration_since(last.timestamp.0) <= REPEAT;
        if same && (soon || !entry.success) {
            return;
        }
    }
    history.push(entry);
    let extra = history.len().saturating_sub(MOST_HISTORY);
    history.drain(..extra);
}
