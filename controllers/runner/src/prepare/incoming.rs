//! What is different for a VM that comes from another runner: it must be the same as there, and its disks are empty
//! until it comes, or copies of those that are not written.

use std::path::Path;
use std::sync::Arc;

use neonvm_api::runner_pod::{Receive, RunnerClaim};
use neonvm_api::virtual_machine::Disk;
use neonvm_hypervisor::accelerator::{Accelerator, Request};
use neonvm_hypervisor::disks;
use neonvm_hypervisor::plan::{DiskImage, DiskPlan};
use neonvm_types::runner_protocol::{DEVICES, HostFacts, MachineInfo, facts};

use super::{Error, blocking, claimed_disk, plan_disk, root_disk};
use crate::config::PodFiles;
use crate::migration::volumes::Source;
use crate::options::{NetworkMode, Options};
use crate::runtime;

fn unlike(what: &str, there: &str, here: &str) -> Error {
    Error::Receive(format!("its {what} is {there}, and here it would be {here}"))
}

/// The accelerator it has had so far. Another one is not used.
pub(super) fn accelerator(options: &Options, machine: &MachineInfo) -> Result<Request, Error> {
    let here = if options.accelerator == Request::Tcg { Accelerator::Tcg } else { Accelerator::Kvm };
    let host = HostFacts { accelerator: here.as_str().to_owned(), ..facts_of(options) };
    check(machine, &host)?;
    match machine.accelerator.as_str() {
        "tcg" => Ok(Request::Tcg),
        "kvm" => Ok(Request::Kvm),
        other => Err(Error::Receive(format!("its accelerator {other:?} is not known"))),
    }
}

/// What is known before anything is prepared.
pub(super) fn facts_of(options: &Options) -> HostFacts {
    let network = match options.network {
        NetworkMode::Tap => "tap",
        NetworkMode::User => "user",
    };
    HostFacts { network: network.to_owned(), devices: Some(DEVICES), ..HostFacts::default() }
}

/// Refuses a VM that cannot run on this host.
pub(super) fn check(machine: &MachineInfo, host: &HostFacts) -> Result<(), Error> {
    match facts::obstacle(machine, host) {
        None => Ok(()),
        Some(obstacle) => Err(Error::Receive(format!("this host {obstacle}"))),
    }
}

/// Whether its devices are of revision 1 or later: no feature of its network device depends on the host, and its memory device consists
/// of whole blocks of the guest's kernel.
pub(super) fn has_current_devices(receive: Option<&Receive>) -> bool {
    receive.is_none_or(|receive| receive.machine.devices > 0)
}

/// Whether its packets may pass through the kernel here. A guest of a runner up to 0.2.0 that ran without that may use
/// features which the kernel's end has not.
pub(super) fn may_have_vhost(receive: Option<&Receive>) -> bool {
    has_current_devices(receive) || receive.is_some_and(|receive| receive.machine.has_vhost())
}

/// In the same order as at the source.
pub(super) async fn disks(pod: &Arc<PodFiles>, receive: &Receive) -> Result<Vec<DiskPlan>, Error> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |why: String| Error::Receive(format!("{what}: {why}"))
    };
    let mut source = Source::open(pod, &receive.source).await.map_err(failed("its runner"))?;
    let root = blocking({
        let pod = Arc::clone(pod);
        move || root_disk(&pod)
    })
    .await?;
    if let DiskImage::Overlay { file, .. } = &root.image {
        let here = disks::overlay_size(file).map_err(Error::RootDisk)?;
        let there = source.size(&root.name).map_err(failed(&root.name))?;
        if here != there {
            return Err(unlike("root disk", &there.to_string(), &here.to_string()));
        }
    }
    let mut all = vec![root];
    let path = pod.image("runtime.iso");
    source.fetch("runtime", &path).await.map_err(failed("runtime volume"))?;
    all.push(plan_disk("runtime", DiskImage::Raw(path), true, false));
    if pod.config.spec.enable_ssh {
        let path = pod.image("ssh-authorized-keys.iso");
        source.fetch(runtime::SSH_LABEL, &path).await.map_err(failed(runtime::SSH_LABEL))?;
        all.push(plan_disk(runtime::SSH_LABEL, DiskImage::Raw(path), true, false));
    }
    if runtime::swap_size(&pod.config).is_some() {
        let path = pod.swap();
        source.make_empty(runtime::SWAP_LABEL, &path).map_err(failed(runtime::SWAP_LABEL))?;
        all.push(plan_disk(runtime::SWAP_LABEL, DiskImage::Raw(path), false, true));
    }
    for disk in &pod.config.spec.disks {
        if let Some(empty) = &disk.empty_disk {
            let path = pod.empty_disk(&disk.name);
            if disk.read_only {
                source.fetch(&disk.name, &path).await.map_err(failed(&disk.name))?;
            } else {
                source.make_empty(&disk.name, &path).map_err(failed(&disk.name))?;
            }
            all.push(plan_disk(&disk.name, DiskImage::Raw(path), disk.read_only, empty.discard));
        } else if let Some(claim) = pod.config.claims.get(&disk.name) {
            let path = pod.claim(&disk.name, claim);
            if !claim.shared {
                copied_volume(&source, disk, claim, &path).map_err(failed(&disk.name))?;
            }
            all.push(claimed_disk(disk, claim, path));
        } else if runtime::is_volume_of_files(disk) {
            let path = pod.image(&format!("{}.iso", disk.name));
            source.fetch(&disk.name, &path).await.map_err(failed(&disk.name))?;
            all.push(plan_disk(&disk.name, DiskImage::Raw(path), true, false));
        }
    }
    Ok(all)
}

/// The volume of a claim that gets a copy. Nothing can be copied to one that the guest does not write.
fn copied_volume(source: &Source, disk: &Disk, claim: &RunnerClaim, path: &Path) -> Result<(), String> {
    if disk.read_only {
        return Err(format!(
            "claim {} can be mounted by one node at a time, and the disk is read-only",
            claim.name
        ));
    }
    let size = source.size(&disk.name)?;
    disks::empty_copy(path, &claim.name, size).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use neonvm_types::runner_protocol::SizeRequest;

    use super::*;

    fn machine(json: &str) -> MachineInfo {
        serde_json::from_str(json).unwrap()
    }

    fn host(accelerator: &str, network: &str) -> HostFacts {
        HostFacts {
            accelerator: accelerator.into(),
            network: network.into(),
            qemu_version: "7.2.22".into(),
            devices: Some(DEVICES),
            ..HostFacts::default()
        }
    }

    #[test]
    fn a_vm_of_any_release_is_received_with_and_without_vhost() {
        for (vm, here) in [
            (
                r#"{"accelerator":"kvm","machineType":"pc-q35-7.2","cpuModel":"host","network":"tap, vhost"}"#,
                "tap",
            ),
            (r#"{"accelerator":"kvm","machineType":"pc-q35-7.2","cpuModel":"host","network":"tap"}"#, "tap"),
            (
                r#"{"accelerator":"kvm","machineType":"pc-q35-7.2","network":"tap","vhost":true,"devices":1}"#,
                "tap",
            ),
            (r#"{"accelerator":"tcg","machineType":"pc-q35-7.2","cpuModel":"max","network":"user"}"#, "user"),
        ] {
            assert!(check(&machine(vm), &host("kvm", here)).is_ok(), "{vm}");
        }
        let refused = |vm: &str| check(&machine(vm), &host("tcg", "tap")).unwrap_err().to_string();
        assert_eq!(
            refused(r#"{"accelerator":"tcg","network":"user"}"#),
            "the VM cannot be received: this host connects guests by tap, and the VM is connected by user"
        );
        assert_eq!(
            refused(r#"{"accelerator":"kvm","network":"tap"}"#),
            "the VM cannot be received: this host has no kvm, which runs the VM"
        );
        assert_eq!(
            refused(r#"{"machineType":"pc-q35-10.0"}"#),
            "the VM cannot be received: this host has QEMU 7.2.22, and the VM's machine type pc-q35-10.0 needs 10.0"
        );
    }

    #[test]
    fn the_network_device_stays_as_the_guest_knows_it() {
        let receive = |json: &str| Receive {
            migration: "m".into(),
            source: "s".into(),
            machine: machine(json),
            size: SizeRequest { cpu: neonvm_types::MilliCpu::new(1), memory: neonvm_types::Bytes::gib(1) },
            cpus: 1,
            disk_queues: None,
        };
        for (json, fixed, vhost) in [
            (r#"{"network":"tap"}"#, false, false),
            (r#"{"network":"tap, vhost"}"#, false, true),
            (r#"{"network":"tap","devices":1}"#, true, true),
            (r#"{"network":"tap","vhost":true,"devices":1}"#, true, true),
        ] {
            let receive = receive(json);
            assert_eq!(has_current_devices(Some(&receive)), fixed, "{json}");
            assert_eq!(may_have_vhost(Some(&receive)), vhost, "{json}");
        }
        assert!(has_current_devices(None) && may_have_vhost(None), "a new VM");
    }
}
