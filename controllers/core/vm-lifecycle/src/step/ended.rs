//! The VM has ended: the reason is written before its pod is deleted; then it is restarted if its policy requires it.

use neonvm_api::virtual_machine::{LastExit, Phase, RestartPolicy};
use neonvm_types::Timestamp;
use neonvm_types::runner_protocol::{Exit, ExitReason, ProcessExit};

use super::{Pass, pause, pod_name, power, size, suspend};
use crate::condition::{self, AVAILABLE, CRASH_LOOP, Finding};
use crate::crash_loop;
use crate::outcome::NoteReason;

/// Writes down how the VM ended. Its pod stays until that is on record.
pub(super) fn finish(pass: &mut Pass<'_>, exit: &Exit, pod: &str) {
    let good = exit.is_success();
    let reason = exit.reason.as_str();
    let lost = suspend::forget(pass, exit.reason);
    crash_loop::record(&mut pass.status, exit.reason, pass.now, pass.vm.metadata.generation, pass.settings);
    pass.status.phase = Some(if good { Phase::Succeeded } else { Phase::Failed });
    pass.status.last_exit = Some(LastExit {
        reason: reason.to_owned(),
        message: format!("{}{lost}", exit.message),
        exit_code: exit.workload.and_then(ProcessExit::exit_code),
        pod_name: pod.to_owned(),
        time: pass.now,
        console: exit.console.clone(),
    });
    pass.status.pod_ip = String::new();
    pass.status.node = String::new();
    pass.status.machine = None;
    pass.status.workload = None;
    size::forget(pass);
    pause::forget(pass);
    let message = format!("{reason}: {}{lost}", exit.message);
    if good {
        pass.note(NoteReason::Succeeded, message.clone());
        pass.set(AVAILABLE, &Finding::no("Stopped", message));
    } else {
        let event = match exit.reason {
            ExitReason::Preempted => NoteReason::Preempted,
            ExitReason::Evicted => NoteReason::Evicted,
            _ => NoteReason::Failed,
        };
        pass.note(event, message.clone());
        pass.set(AVAILABLE, &Finding::no("Failed", message));
    }
}

/// The pod is being deleted and has not ended: nothing may take its place.
pub(super) fn stopping(pass: &mut Pass<'_>, until: Timestamp) {
    if let Some(pod) = pass.observed.pod.as_ref().filter(|pod| pod.lost) {
        let message = format!(
            "node {} is not reached, and the VM starts elsewhere when pod {} is known to have ended: when the node is back, or deleted",
            pod.node, pod.name
        );
        pass.has_passed(until, pass.settings.stuck_after);
        pass.set(AVAILABLE, &Finding::unknown("NodeLost", message));
    } else if !pass.has_passed(until, pass.settings.stuck_after) {
        pass.set(AVAILABLE, &Finding::no("Stopped", "the guest is shutting down"));
    } else {
        pass.set(AVAILABLE, &Finding::unknown("RunnerUnreachable", stuck(pass)));
    }
}

/// The message about a pod that does not terminate.
pub(super) fn stuck(pass: &Pass<'_>) -> String {
    let overdue = |pod: &&crate::PodView| {
        pod.is_live()
            && pod.deleting.is_some_and(|until| {
                pass.now.unix() >= until.unix().saturating_add(pass.settings.stuck_after)
            })
    };
    let pods = pass.observed.pod.iter().chain(&pass.observed.orphans);
    pods.into_iter().find(overdue).map_or_else(String::new, |pod| {
        format!(
            "pod {} should have ended by now; if its node {} is lost, delete the node, or the pod by force once the node is surely off",
            pod.name, pod.node
        )
    })
}

pub(super) fn step(pass: &mut Pass<'_>) {
    let recorded = pass.before.last_exit.as_ref().map(|last| last.pod_name.as_str());
    if let Some(pod) = &pass.observed.pod {
        match &pod.ended {
            None => {
                // It was thought to be gone and is not, or the object is older than it. It must end before anything else.
                if pod.deleting.is_none() && pass.observed.fresh {
                    pass.delete_pod(&pod.name, Some(&pod.uid));
                } else if let Some(until) = pod.deleting {
                    pass.has_passed(until, pass.settings.stuck_after);
                } else {
                    pass.refresh();
                }
                return;
            }
            Some(exit) if recorded != Some(pod.name.as_str()) => {
                finish(pass, exit, &pod.name);
                return;
            }
            Some(_) => {}
        }
    }
    if power::stops(pass) {
        power::stopped(pass);
        return;
    }
    if !restarts(pass) {
        if pass.observed.pod.is_none() && !pass.before.pod_name.is_empty() {
            if pass.observed.fresh {
                pass.status.pod_name = String::new();
            } else {
                pass.refresh();
            }
        }
        return;
    }
    if !pass.observed.fresh {
        pass.refresh();
        return;
    }
    restart(pass);
}

fn restart(pass: &mut Pass<'_>) {
    if !pass.before.pod_name.is_empty() {
        let name = pass.before.pod_name.clone();
        let uid = pass.observed.pod.as_ref().map(|pod| pod.uid.as_str());
        // Without its secret a pod that some earlier controller still makes cannot run.
        pass.delete_pod(&name, uid);
    }
    pass.status.phase = Some(Phase::Pending);
    pass.status.pod_name = String::new();
    if power::is_requested(pass) {
        pass.note(NoteReason::Restarted, "start on request");
        condition::remove(&mut pass.status, CRASH_LOOP);
    } else {
        pass.status.restart_count = pass.before.restart_count.saturating_add(1);
        let reason =
            pass.before.last_exit.as_ref().map_or("it ended", |last| last.reason.as_str()).to_owned();
        pass.note(NoteReason::Restarted, format!("start {} after {reason}", pass.status.restart_count));
    }
    pod_name::choose_name(pass);
}

fn restarts(pass: &Pass<'_>) -> bool {
    if power::is_requested(pass) {
        return true;
    }
    if crash_loop::given_up(&pass.status, pass.vm.metadata.generation) {
        return false;
    }
    match pass.vm.spec.restart_policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => {
            // A reboot is requested from inside the guest and does not end the VM.
            let rebooted = ExitReason::Rebooted.as_str();
            pass.before.phase == Some(Phase::Failed)
                || pass.before.last_exit.as_ref().is_some_and(|last| last.reason == rebooted)
        }
        RestartPolicy::Never => false,
    }
}
