//! Volumes of the pod, and where the runner finds them.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, ImageVolumeSource, KeyToPath,
    PersistentVolumeClaimVolumeSource, ProjectedVolumeSource, SecretProjection, SecretVolumeSource, Volume,
    VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use neonvm_api::names::tls_secret_name;
use neonvm_api::runner_pod as place;
use neonvm_api::virtual_machine::{Disk, GuestSettings, ImagePullPolicy, VirtualMachineSpec};
use neonvm_api::{GuestPath, NoGuestPath, VirtualMachine};
use neonvm_types::Bytes;

use super::PlanError;
use crate::settings::RootDiskFrom;

/// Tables of a disk image and its directory, beyond the bytes of the guest: 1/128, at least 16 MiB. A directory filled to its
/// limit would have the VM evicted.
const OVERHEAD_SHARE: u64 = 128;
const OVERHEAD_LEAST: u64 = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) volumes: Vec<Volume>,
    pub(super) mounts: Vec<VolumeMount>,
}

impl Plan {
    fn add_image(&mut self, name: &str, reference: &str, path: &str, (pull, from): (&str, RootDiskFrom)) {
        let volume = match from {
            RootDiskFrom::ImageVolume => image(name, reference, pull),
            RootDiskFrom::Copy => empty_dir(name, None),
        };
        self.add(volume, path, true);
    }

    fn add(&mut self, volume: Volume, path: impl Into<String>, read_only: bool) {
        self.mounts.push(VolumeMount {
            name: volume.name.clone(),
            mount_path: path.into(),
            read_only: read_only.then_some(true),
            ..VolumeMount::default()
        });
        self.volumes.push(volume);
    }
}

/// All volumes of a pod.
pub(super) fn plan(vm: &VirtualMachine, pod: &str, from: RootDiskFrom) -> Result<Plan, PlanError> {
    let spec = &vm.spec;
    let name = vm.metadata.name.as_deref().ok_or(PlanError::Metadata("name"))?;
    let mut plan = Plan::default();
    let root = &spec.guest.root_disk;
    let root_size = size("spec.guest.rootDisk.size", root.size)?;
    let limit = (root_size != Bytes::ZERO).then(|| with_overhead(root_size));
    plan.add(empty_dir(place::IMAGES_VOLUME, limit), place::IMAGES_DIRECTORY, false);
    let how = (pull_policy(spec), from);
    plan.add_image(place::ROOT_DISK_VOLUME, &root.image, place::ROOT_DISK_DIRECTORY, how);
    if let Some(kernel) = &spec.guest.kernel_image {
        plan.add_image(place::KERNEL_VOLUME, kernel, place::KERNEL_DIRECTORY, how);
    }
    if from == RootDiskFrom::Copy {
        plan.volumes.push(empty_dir(place::COPY_VOLUME, Some(PROGRAM_LIMIT)));
    }
    plan.add(empty_dir(place::RUN_VOLUME, Some(RUN_LIMIT)), place::RUN_DIRECTORY, false);
    plan.add(config(pod), place::CONFIG_DIRECTORY, true);
    if spec.enable_ssh {
        let keys = super::ssh_secret(vm)?;
        let private = secret("ssh-privatekey", &keys, &[("ssh-privatekey", "id_ed25519", 0o600)], None);
        plan.add(private, place::SSH_PRIVATE_DIRECTORY, true);
        let public = secret("ssh-publickey", &keys, &[("ssh-publickey", "authorized_keys", 0o644)], None);
        plan.add(public, place::SSH_PUBLIC_DIRECTORY, true);
    }
    if let Some(swap) = spec.guest.settings.as_ref().and_then(GuestSettings::swap_disk).map(|swap| swap.size)
    {
        let limit = with_overhead(size("spec.guest.settings.swap", swap)?);
        plan.add(empty_dir(place::SWAP_VOLUME, Some(limit)), place::SWAP_DIRECTORY, false);
    }
    for disk in &spec.disks {
        add_disk(&mut plan, name, disk)?;
    }
    if let Some(tls) = &spec.tls {
        let path = guest_path("spec.tls.mountPath", &tls.mount_path)?;
        plan.add(secret("tls", &tls_secret_name(name), &[], None), place::mounted(&path), true);
    }
    Ok(plan)
}

fn add_disk(plan: &mut Plan, vm: &str, disk: &Disk) -> Result<(), PlanError> {
    let name = place::disk_volume(&disk.name);
    let path =
        place::mounted(&guest_path(&format!("spec.disks[{}].mountPath", disk.name), &disk.mount_path)?);
    if let Some(empty) = &disk.empty_disk {
        let limit = with_overhead(size(&format!("spec.disks[{}].emptyDisk.size", disk.name), empty.size)?);
        let path = format!("{}/{}", place::DISKS_DIRECTORY, disk.name);
        plan.add(empty_dir(&name, Some(limit)), path, false);
    } else if let Some(claim_name) = disk.claim(vm) {
        let path = format!("{}/{}", place::DISKS_DIRECTORY, disk.name);
        let read_only = disk.read_only.then_some(true);
        let source = PersistentVolumeClaimVolumeSource { claim_name, read_only };
        let volume = Volume { name, persistent_volume_claim: Some(source), ..Volume::default() };
        plan.add(volume, path, disk.read_only);
    } else if let Some(source) = &disk.config_map {
        let source: ConfigMapVolumeSource = source.clone();
        plan.add(Volume { name, config_map: Some(source), ..Volume::default() }, path, disk.read_only);
    } else if let Some(source) = &disk.secret {
        let source: SecretVolumeSource = source.clone();
        plan.add(Volume { name, secret: Some(source), ..Volume::default() }, path, disk.read_only);
    }
    Ok(())
}

/// A path of the spec. Objects that were stored before the definition refused others may have any text.
fn guest_path(field: &str, path: &str) -> Result<GuestPath, PlanError> {
    path.parse()
        .map_err(|error: NoGuestPath| PlanError::Field { path: field.to_owned(), message: error.to_string() })
}

pub(super) fn pull_policy(spec: &VirtualMachineSpec) -> &'static str {
    match spec.guest.root_disk.image_pull_policy {
        ImagePullPolicy::Always => "Always",
        ImagePullPolicy::Never => "Never",
        ImagePullPolicy::IfNotPresent => "IfNotPresent",
    }
}

fn size(path: &str, quantity: neonvm_types::Quantity) -> Result<Bytes, PlanError> {
    Bytes::try_from(quantity)
        .map_err(|error| PlanError::Field { path: path.to_owned(), message: error.to_string() })
}

fn with_overhead(size: Bytes) -> Bytes {
    size.saturating_add(Bytes::new((size.get() / OVERHEAD_SHARE).max(OVERHEAD_LEAST)))
}

fn empty_dir(name: &str, limit: Option<Bytes>) -> Volume {
    let source = EmptyDirVolumeSource {
        medium: None,
        size_limit: limit.map(|limit| Quantity(limit.to_quantity().to_string())),
    };
    Volume { name: name.to_owned(), empty_dir: Some(source), ..Volume::default() }
}

fn image(name: &str, reference: &str, pull: &str) -> Volume {
    let source =
        ImageVolumeSource { pull_policy: Some(pull.to_owned()), reference: Some(reference.to_owned()) };
    Volume { name: name.to_owned(), image: Some(source), ..Volume::default() }
}

/// The configuration and, in a secret of its own because it changes, the certificate.
fn config(pod: &str) -> Volume {
    let part = |secret: String, keys: &[&str]| VolumeProjection {
        secret: Some(SecretProjection {
            name: secret,
            items: Some(keys.iter().map(|&key| item(key, key, 0o400)).collect()),
            optional: None,
        }),
        ..VolumeProjection::default()
    };
    let sources = vec![
        part(pod.to_owned(), &[place::CONFIG_FILE]),
        part(place::identity_secret(pod), &["tls.crt", "tls.key", "ca.crt"]),
    ];
    let projected = ProjectedVolumeSource { default_mode: Some(0o400), sources: Some(sources) };
    Volume { name: place::CONFIG_VOLUME.to_owned(), projected: Some(projected), ..Volume::default() }
}

fn item(key: &str, path: &str, mode: i32) -> KeyToPath {
    KeyToPath { key: key.to_owned(), path: path.to_owned(), mode: Some(mode) }
}

fn secret(name: &str, secret: &str, items: &[(&str, &str, i32)], mode: Option<i32>) -> Volume {
    let items: Vec<KeyToPath> = items.iter().map(|(key, path, mode)| item(key, path, *mode)).collect();
    let source = SecretVolumeSource {
        secret_name: Some(secret.to_owned()),
        items: (!items.is_empty()).then_some(items),
        default_mode: mode,
        optional: None,
    };
    Volume { name: name.to_owned(), secret: Some(source), ..Volume::default() }
}

/// Limit of the directory of sockets, which hold nothing.
const RUN_LIMIT: Bytes = Bytes::mib(16);
/// Limit of the directory with the program, which has less than 20 MiB.
pub(super) const PROGRAM_LIMIT: Bytes = Bytes::mib(64);
