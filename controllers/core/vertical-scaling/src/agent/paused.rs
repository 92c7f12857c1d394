//! A paused VM: the guest's CPUs stand still on request, so nothing is expected of it, and its size stays.
//!
//! From the moment at which the object shows the request until it shows that the guest runs again, the monitor's connection counts as
//! closed, metrics are not missed, and nothing is changed: no larger or smaller size from the scheduler, no patch. The size that the
//! VM has is reported to the scheduler at the usual interval, so that its permit stays; that of a suspended VM is given back, except for what its
//! runner takes. When the guest runs again, the time for its
//! first metrics and for its monitor begins then; its last metrics are old, so that it does not shrink by them.

use std::time::Duration;

use crate::agent::{
    note::{Cause, Note},
    state::State,
};

impl State {
    /// Takes in whether the VM is paused; `before`: whether it was.
    pub(super) fn pause_seen(&mut self, now: Duration, before: bool, note: &mut Note) {
        let paused = self.vm.paused;
        if paused == before {
            return;
        }
        // What is under way gets no reply, and the shell connects again.
        self.monitor.reset(now);
        self.monitor.suspended = false;
        if paused {
            note.causes.push(Cause::Paused);
            return;
        }
        note.causes.push(Cause::Resumed);
        self.found_at = now;
        self.known.error.clear();
        self.machine.differs_since = None;
        self.machine.mark(now);
    }
}
