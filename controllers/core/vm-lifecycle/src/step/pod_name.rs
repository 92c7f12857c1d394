//! The name of the next pod.

use super::{Pass, power};
use crate::condition::{AVAILABLE, Finding};
use crate::crash_loop;
use crate::outcome::NoteReason;

/// Gives the VM a new pod name, unless something forbids a start now. The pod is made when the name is written.
pub(super) fn choose_name(pass: &mut Pass<'_>) {
    if let Some(other) = pass.another_lives() {
        let message = format!("waits for the end of pod {other}");
        pass.set(AVAILABLE, &Finding::no("Pending", message));
        return;
    }
    if let Some(at) = crash_loop::next_start(&pass.status, pass.settings)
        && pass.now < at
    {
        pass.wake(Some(at));
        pass.set(AVAILABLE, &Finding::no("Pending", format!("starts again at {at}")));
        return;
    }
    // A VM that never had a phase never had a pod, and the write is refused if it got one meanwhile.
    if !pass.observed.fresh && pass.before.phase.is_some() {
        pass.refresh();
        return;
    }
    if power::amend(pass) {
        return;
    }
    power::on_start(pass);
    let name = format!("{}-{}", pass.name(), pass.observed.suffix);
    pass.set(AVAILABLE, &Finding::no("Pending", format!("pod {name} is being made")));
    pass.note(NoteReason::Created, format!("runner pod {name}"));
    pass.status.pod_name = name;
}
