//! The pod is on its way.

use neonvm_api::virtual_machine::{Phase, VolumeStatus};

use super::{Pass, address, alive, ended, pod_name};
use crate::claims::{self, Readiness};
use crate::condition::{AVAILABLE, Finding};
use crate::observed::PodView;
use crate::outcome::Action;
use crate::pod;
use crate::tls::TlsOutcome;

pub(super) fn step(pass: &mut Pass<'_>, tls: &TlsOutcome) {
    if pass.before.pod_name.is_empty() {
        pod_name::choose_name(pass);
        return;
    }
    match &pass.observed.pod {
        None => create(pass, tls),
        Some(seen) => {
            if let Some(exit) = &seen.ended {
                ended::finish(pass, exit, &seen.name);
            } else if let Some(until) = seen.deleting {
                ended::stopping(pass, until);
            } else if is_outgrown(pass, seen) {
                replace(pass, seen);
            } else {
                alive::track(pass, seen);
                starting(pass);
            }
        }
    }
}

fn create(pass: &mut Pass<'_>, tls: &TlsOutcome) {
    if !pass.observed.fresh {
        pass.refresh();
        return;
    }
    if let Some(other) = pass.another_lives() {
        let message = format!("waits for the end of pod {other}");
        pass.set(AVAILABLE, &Finding::no("Pending", message));
        return;
    }
    let name = pass.before.pod_name.clone();
    if !tls.usable {
        let why = tls.waits_for.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        pass.set(AVAILABLE, &Finding::no("Pending", format!("waits for the certificate of the guest{why}")));
    } else if !address::is_ready(pass) {
        pass.set(AVAILABLE, &Finding::no("Pending", "waits for an address on the overlay network"));
    } else if let Err(error) = pod::plan(pass.vm, &name, pass.settings) {
        pass.set(AVAILABLE, &Finding::no("Failed", error.to_string()));
    } else if claims_are_there(pass) {
        pass.set(AVAILABLE, &Finding::no("Pending", format!("pod {name} is being made")));
        pass.actions.push(Action::CreatePod { name });
    }
}

/// Whether the VM has all claims of its disks. What they are is on record before the pod exists.
fn claims_are_there(pass: &mut Pass<'_>) -> bool {
    match claims::readiness(pass.vm, &pass.observed.claims) {
        Readiness::Ready(volumes) => {
            pass.status.volumes = volumes;
            true
        }
        Readiness::Missing(template) => {
            pass.set(
                AVAILABLE,
                &Finding::no("Pending", format!("the claim of disk {template} is being made")),
            );
            pass.actions.push(Action::CreateClaim { template });
            false
        }
        Readiness::Waits(why) => {
            pass.set(AVAILABLE, &Finding::no("Pending", why));
            false
        }
    }
}

/// Whether the pod waits for a node with requests that are no longer those of the VM: its runner would start at the size that the
/// pod was made for.
fn is_outgrown(pass: &Pass<'_>, seen: &PodView) -> bool {
    let Ok(guest) = pod::size::at_start(pass.vm) else { return false };
    let size = pod::size(pass.vm, guest, false, pass.settings);
    pass.settings.pod_size && seen.is_unschedulable() && seen.size.is_some_and(|made| made != size)
}

/// Makes the pod again, with the size of now.
fn replace(pass: &mut Pass<'_>, seen: &PodView) {
    // It may have found a node meanwhile.
    if !pass.observed.fresh {
        pass.refresh();
        return;
    }
    pass.set(
        AVAILABLE,
        &Finding::no("Pending", format!("pod {} is made again with another size", seen.name)),
    );
    pass.delete_pod(&seen.name, Some(&seen.uid));
}

/// The pod is there; the guest may be up.
fn starting(pass: &mut Pass<'_>) {
    if alive::guest_ready(pass) {
        pass.status.phase = Some(Phase::Running);
        alive::supervise(pass);
        return;
    }
    let Some(seen) = &pass.observed.pod else { return };
    let finding = if seen.running {
        Finding::no("Booting", "the guest is starting")
    } else if seen.node.is_empty() {
        let why = if seen.waiting.is_empty() { "waits for a node" } else { &seen.waiting };
        Finding::no("Pending", format!("{why}{}", volumes_named(why, &pass.status.volumes)))
    } else {
        let why = if seen.waiting.is_empty() { "the pod is starting" } else { &seen.waiting };
        Finding::no("Pending", why)
    };
    pass.set(AVAILABLE, &finding);
}

/// The claims of a VM, after a scheduler's reason that is about volumes and names none of them: that of Kubernetes counts nodes.
fn volumes_named(why: &str, volumes: &[VolumeStatus]) -> String {
    let is_named = volumes.iter().any(|volume| why.contains(&volume.claim_name));
    if volumes.is_empty() || is_named || !why.to_ascii_lowercase().contains("volume") {
        return String::new();
    }
    let claims: Vec<String> = volumes
        .iter()
        .map(|volume| format!("disk {} is on claim {}", volume.name, volume.claim_name))
        .collect();
    format!(
        "; {}: kubectl describe pvc shows its volume, and kubectl describe pv its nodes",
        claims.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_about_volumes_names_the_claims() {
        let volume = |name: &str| VolumeStatus {
            name: name.to_owned(),
            claim_name: format!("{name}-pg"),
            ..VolumeStatus::default()
        };
        let volumes = [volume("data"), volume("log")];
        // As Kubernetes 1.36, 1.31 and 1.24 word it.
        for why in [
            "Unschedulable: 0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity",
            "Unschedulable: 0/2 nodes are available: 2 node(s) had volume node affinity conflict",
            "Unschedulable: pod has unbound immediate PersistentVolumeClaims",
        ] {
            let named = volumes_named(why, &volumes);
            assert!(named.contains("disk data is on claim data-pg, disk log is on claim log-pg"), "{named}");
            assert_eq!(volumes_named(why, &[]), "");
        }
        for why in [
            "Unschedulable: claim data-pg is on the volume v",
            "Unschedulable: 0/2 nodes: 2 Insufficient memory",
            "",
        ] {
            assert_eq!(volumes_named(why, &volumes), "", "{why}");
        }
    }
}
