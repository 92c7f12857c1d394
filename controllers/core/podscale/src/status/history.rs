//! The last changes of an object.

use jiff::SignedDuration;
use neonvm_api::pod_autoscaler::ScalingDecision;

/// Most changes that are kept.
pub const MOST_HISTORY: usize = 5;
/// The same outcome again within this time is the same entry.
const REPEAT: SignedDuration = SignedDuration::from_secs(5);

/// Adds a change. The oldest goes when there are too many. One that says the same as the last within five seconds is the
/// same, and so is a failure that repeats, however late: a target that cannot be written must not wash out what happened
/// before. A failure that repeats is counted in `status.lastFailure`.
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
