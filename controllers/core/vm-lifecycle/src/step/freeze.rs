//! Freezes of file systems that the guest has ended, because no client did within their time.

use super::Pass;
use crate::outcome::NoteReason;

/// The number before is in the status until the new one is written there: that is the one time when the event is sent. A new runner begins
/// with none.
pub(super) fn step(pass: &mut Pass<'_>) {
    let Some(runner) = pass.observed.runner.current() else { return };
    let (before, now) = (pass.before.freezes_expired, runner.freezes_expired);
    if now > before {
        let text = "nobody has thawed the VM's file systems within the time of their freeze: the guest has; what was copied \
                    since may not be consistent";
        pass.note(NoteReason::FreezeExpired, text);
    }
    pass.status.freezes_expired = now;
}
