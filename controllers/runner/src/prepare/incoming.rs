//! What is different for a VM that comes from another runner: it must be the same as there, and its disks are empty
//! until it comes, or copies of those that are not written.

use std::sync::Arc;

use neonvm_api::runner_pod::Receive;
use neonvm_hypervisor::accelerator::Request;
use neonvm_hypervisor::disks;
use neonvm_hypervisor::plan::{DiskImage, DiskPlan, MachinePlan};
use neonvm_types::runner_protocol::MachineInfo;

use super::{Error, blocking, plan_disk, root_disk};
use crate::config::PodFiles;
use crate::migration::volumes::Source;
use crate::options::{NetworkMode, Options};
use crate::runtime;

fn unlike(what: &str, there: &str, here: &str) -> Error {
    Error::Receive(format!("its {what} is {there}, and here it would be {here}"))
}

/// The accelerator it has had so far. Another one is not used.
pub(super) fn accelerator(options: &Options, machine: &MachineInfo) -> Result<Request, Error> {
    let network = match options.network {
        NetworkMode::Tap => "tap",
        NetworkMode::User => "user",
    };
    if machine.network != network {
        return Err(unlike("network", &machine.network, network));
    }
    match (machine.accelerator.as_str(), options.accelerator) {
        ("tcg", _) => Ok(Request::Tcg),
        ("kvm", Request::Tcg) => Err(unlike("accelerator", "kvm", "tcg")),
        ("kvm", _) => Ok(Request::Kvm),
        (other, _) => Err(Error::Receive(format!("its accelerator {other:?} is not known"))),
    }
}

/// Refuses a plan that is not equal to the VM.
pub(super) fn check(plan: &MachinePlan, machine: &MachineInfo) -> Result<(), Error> {
    let accelerator = plan.accelerator.as_str();
    if accelerator != machine.accelerator {
        return Err(unlike("accelerator", &machine.accelerator, accelerator));
    }
    let model = plan.accelerator.cpu_model();
    if model != machine.cpu_model {
        return Err(unlike("CPU model", &machine.cpu_model, model));
    }
    Ok(())
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
        } else if runtime::is_volume_of_files(disk) {
            let path = pod.image(&format!("{}.iso", disk.name));
            source.fetch(&disk.name, &path).await.map_err(failed(&disk.name))?;
            all.push(plan_disk(&disk.name, DiskImage::Raw(path), true, false));
        }
    }
    Ok(all)
}
