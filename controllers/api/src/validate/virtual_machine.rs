//! `VirtualMachine`: sizes, disks, ports, what may change.

mod limits;

use std::collections::BTreeSet;

use neonvm_types::guest::DAEMON_PORT;
use neonvm_types::{Bytes, Quantity};

use crate::{
    FieldError, GuestPath, VirtualMachine, VirtualMachineSpec, VmInfo,
    field_error::Faults,
    names::{RESERVED_DISK_NAMES, RESERVED_DOMAINS, annotation},
    validate::{is_dns_label, is_dns_subdomain},
    virtual_machine::{ClaimTemplate, Disk, GuestSettings, PortProtocol, SUSPEND_AFTER, Tls, is_cpu_model},
    vm_info::VmInfoError,
    while_off::FIELDS,
};

/// Slot sizes are multiples of this, for the sake of memory plugging in the guest.
const SLOT_GRANULARITY: Bytes = Bytes::mib(8);
/// No kernel that the project builds or fetches boots with less.
const LEAST_MEMORY: Bytes = Bytes::mib(64);
/// Longest disk name.
const DISK_NAME: usize = 32;
/// Longest name of an empty disk: the length of a file system label.
const LABEL: usize = 16;
/// Longest value of a Kubernetes label, which carries the VM's name.
const MACHINE_NAME: usize = 63;
const WHILE_OFF: &str = "cannot change while the VM has a pod; stop the VM first (neonctl vm stop), or change it at its next start (neonctl vm set)";

/// All faults of a new machine.
#[must_use]
pub fn virtual_machine_create(vm: &VirtualMachine) -> Vec<FieldError> {
    let mut faults = Faults::default();
    let spec = &vm.spec;
    cpu_bounds(spec, &mut faults);
    slot_size(spec, &mut faults);
    slot_bounds(spec, &mut faults);
    least_memory(spec, &mut faults);
    disks(&spec.disks, &spec.volume_claim_templates, &mut faults);
    limits::disk_limits(spec, &mut faults);
    claim_templates(vm, &mut faults);
    ports(spec, &mut faults);
    environment(spec, &mut faults);
    port_clashes(spec, &mut faults);
    if let Some(tls) = &spec.tls {
        tls_certificate(tls, &mut faults);
        tls_mount(tls, &spec.disks, &mut faults);
    }
    cpu_model(spec, &mut faults);
    priority_class(spec, &mut faults);
    idle(spec, &mut faults);
    amounts(spec, &mut faults);
    let name = vm.metadata.name.as_deref().unwrap_or_default();
    faults.require(
        name.len() <= MACHINE_NAME,
        "metadata.name",
        format!("must not be longer than {MACHINE_NAME} characters, because it becomes the value of a label"),
    );
    faults.finish()
}

/// All faults of a change. What was checked at creation and cannot change is not checked again.
#[must_use]
pub fn virtual_machine_update(old: &VirtualMachine, new: &VirtualMachine) -> Vec<FieldError> {
    let mut faults = Faults::default();
    set_once(&old.spec, &new.spec, &mut faults);
    if has_pod(old) {
        while_off(&old.spec, &new.spec, &mut faults);
    } else {
        slot_size(&new.spec, &mut faults);
        disks(&new.spec.disks, &new.spec.volume_claim_templates, &mut faults);
        claim_templates(new, &mut faults);
        environment(&new.spec, &mut faults);
    }
    limits::disk_limits(&new.spec, &mut faults);
    cpu_bounds(&new.spec, &mut faults);
    slot_bounds(&new.spec, &mut faults);
    port_clashes(&new.spec, &mut faults);
    cpu_model(&new.spec, &mut faults);
    priority_class(&new.spec, &mut faults);
    idle(&new.spec, &mut faults);
    if let (tls, Some(new_tls)) = (&old.spec.tls, &new.spec.tls)
        && tls.as_ref() != Some(new_tls)
    {
        tls_certificate(new_tls, &mut faults);
        tls_mount(new_tls, &new.spec.disks, &mut faults);
    }
    amounts(&new.spec, &mut faults);
    faults.finish()
}

/// What is taken but does not work: fields kept for the sake of existing manifests, and annotations about scaling that
/// the agent will not be able to use.
#[must_use]
pub fn virtual_machine_warnings(vm: &VirtualMachine) -> Vec<FieldError> {
    let mut faults = Faults::default();
    faults.require(
        vm.spec.guest.root_disk.execute.is_empty(),
        "spec.guest.rootDisk.execute",
        "has no effect; use spec.guest.command",
    );
    let scaling = vm.metadata.annotations.as_ref().is_some_and(|annotations| {
        let of_scaling = [annotation::BOUNDS, annotation::CONFIG, annotation::HOLD, annotation::METRIC];
        of_scaling.iter().any(|key| annotations.contains_key(*key))
    });
    // An object without a namespace, as in a file not yet sent, cannot be checked.
    if scaling
        && let Err(error) = VmInfo::from_vm(vm)
        && !matches!(error, VmInfoError::MissingMetadata(_))
    {
        faults.push("metadata.annotations", format!("the VM will not be scaled: {error}"));
    }
    faults.finish()
}

fn cpu_model(spec: &VirtualMachineSpec, faults: &mut Faults) {
    faults.require(
        spec.cpu_model.is_empty() || is_cpu_model(&spec.cpu_model),
        "spec.cpuModel",
        "must have at most 64 letters, digits, '.', '_' and '-', such as EPYC-v1; list those of QEMU: qemu-system-x86_64 -cpu help",
    );
}

/// Whether a class of this name exists is checked by Kubernetes, when the pod is made.
fn priority_class(spec: &VirtualMachineSpec, faults: &mut Faults) {
    faults.require(
        spec.priority_class_name.is_empty() || is_dns_subdomain(&spec.priority_class_name),
        "spec.priorityClassName",
        "must be the name of a PriorityClass: lower-case letters, digits, '-' and '.', at most 253; list them: kubectl get priorityclasses",
    );
}

fn idle(spec: &VirtualMachineSpec, faults: &mut Faults) {
    let (least, most) = SUSPEND_AFTER;
    let after = spec.idle.as_ref().map(|idle| idle.suspend_after.to_std());
    faults.require(
        after.is_none_or(|after| after.is_some_and(|after| (least..=most).contains(&after))),
        "spec.idle.suspendAfter",
        "must be 10s to 720h; write for example 5m",
    );
}

fn cpu_bounds(spec: &VirtualMachineSpec, faults: &mut Faults) {
    let cpus = spec.guest.cpus;
    let field = "spec.guest.cpus.use";
    faults.require(
        cpus.r#use >= cpus.min,
        field,
        format!("{} is below min {}; raise use or lower min", cpus.r#use, cpus.min),
    );
    faults.require(
        cpus.r#use <= cpus.max,
        field,
        format!("{} is above max {}; lower use or raise max", cpus.r#use, cpus.max),
    );
    faults.require(
        cpus.min.milli() > 0,
        "spec.guest.cpus.min",
        "must be above 0; the smallest sensible value is 50m",
    );
    faults.require(
        cpus.min <= cpus.max,
        "spec.guest.cpus.min",
        format!("{} is above max {}; lower min or raise max", cpus.min, cpus.max),
    );
}

fn slot_size(spec: &VirtualMachineSpec, faults: &mut Faults) {
    let field = "spec.guest.memorySlotSize";
    match Bytes::try_from(spec.guest.memory_slot_size) {
        Err(error) => faults.push(field, error.to_string()),
        Ok(size) => {
            let exact = spec.guest.memory_slot_size == size.to_quantity();
            faults.require(
                size != Bytes::ZERO && exact && size.is_multiple_of(SLOT_GRANULARITY),
                field,
                format!(
                    "{} must be a multiple of {SLOT_GRANULARITY}; write for example 128Mi or 1Gi",
                    spec.guest.memory_slot_size
                ),
            );
            faults.require(
                size.checked_mul(u32::from(spec.guest.memory_slots.max)).is_some(),
                field,
                format!("{size} times memorySlots.max is out of range; lower one of them"),
            );
        }
    }
}

fn slot_bounds(spec: &VirtualMachineSpec, faults: &mut Faults) {
    let slots = spec.guest.memory_slots;
    let field = "spec.guest.memorySlots.use";
    faults.require(
        slots.r#use >= slots.min,
        field,
        format!("{} is below min {}; raise use or lower min", slots.r#use, slots.min),
    );
    faults.require(
        slots.r#use <= slots.max,
        field,
        format!("{} is above max {}; lower use or raise max", slots.r#use, slots.max),
    );
    faults.require(
        slots.min <= slots.max,
        "spec.guest.memorySlots.min",
        format!("{} is above max {}; lower min or raise max", slots.min, slots.max),
    );
    for (name, value) in [("min", slots.min), ("max", slots.max), ("use", slots.r#use)] {
        faults.require(
            (1..=512).contains(&value),
            format!("spec.guest.memorySlots.{name}"),
            format!("{value} must be between 1 and 512"),
        );
    }
}

/// A guest boots with its least memory.
fn least_memory(spec: &VirtualMachineSpec, faults: &mut Faults) {
    let slots = u32::from(spec.guest.memory_slots.min);
    let Some(slot) = spec.guest.slot_size().ok().filter(|slot| slot.is_multiple_of(SLOT_GRANULARITY)) else {
        return;
    };
    let memory = slot.saturating_mul(slots);
    faults.require(
        memory == Bytes::ZERO || memory >= LEAST_MEMORY,
        "spec.guest.memorySlots.min",
        format!(
            "{memory} of memory is too little for a kernel to boot; it must be at least {LEAST_MEMORY}, and a distribution's kernel \
             needs some 96Mi"
        ),
    );
}

/// The claims of the VM.
fn claim_templates(vm: &VirtualMachine, faults: &mut Faults) {
    let mut names = BTreeSet::new();
    let machine = vm.metadata.name.as_deref().unwrap_or_default();
    for (index, template) in vm.spec.volume_claim_templates.iter().enumerate() {
        let field = |name: &str| format!("spec.volumeClaimTemplates[{index}].{name}");
        let name = &template.metadata.name;
        faults.require(
            is_dns_label(name) && name.len() <= LABEL,
            field("metadata.name"),
            format!("{name:?} must be at most {LABEL} lower-case letters, digits and inner hyphens"),
        );
        faults.require(
            names.insert(name),
            field("metadata.name"),
            format!("{name} is there twice; rename one"),
        );
        let disk = vm.spec.disks.iter().find(|disk| disk.name == *name);
        faults.require(
            disk.is_some_and(|disk| disk.source_count() == 0),
            field("metadata.name"),
            format!(
                "there must be a disk {name} without another source; add it to spec.disks with a mountPath"
            ),
        );
        let length = name.len().saturating_add(machine.len()).saturating_add(1);
        faults.require(
            length <= 253,
            field("metadata.name"),
            format!("the claim {name}-{machine} has a longer name than Kubernetes allows; shorten one"),
        );
        let requests = template.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let size = requests.and_then(|requests| requests.get("storage"));
        let size = size.and_then(|size| size.0.parse::<Quantity>().ok());
        faults.require(
            size.is_some_and(|size| size.nanos() > 0 && Bytes::try_from(size).is_ok()),
            field("spec.resources.requests.storage"),
            "must be a size above 0; write for example 10Gi",
        );
        faults.require(
            template.spec.access_modes.as_ref().is_some_and(|modes| !modes.is_empty()),
            field("spec.accessModes"),
            "must have an entry; write for example [ReadWriteOnce]",
        );
    }
}

fn disks(disks: &[Disk], templates: &[ClaimTemplate], faults: &mut Faults) {
    let (mut names, mut mounts) = (BTreeSet::new(), BTreeSet::new());
    let templates: BTreeSet<&str> =
        templates.iter().map(|template| template.metadata.name.as_str()).collect();
    for (index, disk) in disks.iter().enumerate() {
        let field = |name: &str| format!("spec.disks[{index}].{name}");
        let name = &disk.name;
        if RESERVED_DISK_NAMES.contains(&name.as_str()) {
            faults.push(field("name"), format!("{name} is taken by the runner; choose another"));
        } else if name.len() > DISK_NAME {
            faults.push(field("name"), format!("must not be longer than {DISK_NAME} characters; shorten it"));
        } else if (disk.empty_disk.is_some() || disk.claim("").is_some()) && name.len() > LABEL {
            faults.push(
                field("name"),
                format!("must not be longer than {LABEL} characters for an emptyDisk or a claim; shorten it"),
            );
        } else {
            faults.require(
                is_dns_label(name),
                field("name"),
                format!("{name:?} must be lower-case letters, digits and inner hyphens"),
            );
        }
        faults.require(names.insert(name), field("name"), format!("{name} is there twice; rename one"));
        let sources = disk.source_count();
        faults.require(
            sources == 1 || sources == 0 && templates.contains(name.as_str()),
            format!("spec.disks[{index}]"),
            format!(
                "has {sources} sources; set exactly one of emptyDisk, configMap, secret, tmpfs and persistentVolumeClaim, or give an \
                 entry of spec.volumeClaimTemplates the name of the disk"
            ),
        );
        if let Some(claim) = &disk.persistent_volume_claim {
            faults.require(
                is_dns_subdomain(&claim.claim_name),
                field("persistentVolumeClaim.claimName"),
                "must be the name of a claim: lower-case letters, digits, '-' and '.', at most 253; list them: kubectl get pvc",
            );
        }
        match disk.mount_path.parse::<GuestPath>() {
            Ok(path) if mounts.contains(&path) => {
                faults.push(field("mountPath"), format!("{path} is there twice; mount one elsewhere"));
            }
            Ok(path) => drop(mounts.insert(path)),
            Err(error) => faults.push(field("mountPath"), error.to_string()),
        }
        let sizes = [
            ("emptyDisk.size", disk.empty_disk.map(|source| source.size)),
            ("tmpfs.size", disk.tmpfs.map(|source| source.size)),
        ];
        for (name, size) in sizes {
            if let Some(size) = size {
                faults.require(
                    size.nanos() > 0 && Bytes::try_from(size).is_ok(),
                    field(name),
                    format!("{size} must be above 0; write for example 1Gi"),
                );
            }
        }
    }
}

fn ports(spec: &VirtualMachineSpec, faults: &mut Faults) {
    let mut names = BTreeSet::new();
    for (index, port) in spec.guest.ports.iter().enumerate() {
        let field = |name: &str| format!("spec.guest.ports[{index}].{name}");
        faults.require(port.name != "qmp", field("name"), "qmp is taken by the runner; choose another");
        faults.require(
            port.name.is_empty() || names.insert(&port.name),
            field("name"),
            format!("{} is there twice; rename one or leave it out", port.name),
        );
        faults.require(port.port > 0, field("port"), "0 must be between 1 and 65535");
        faults.require(
            // One that is the runner's as well is reported as such.
            port.port != DAEMON_PORT || port.protocol != PortProtocol::Tcp || port.port == spec.runner_port,
            field("port"),
            format!(
                "{DAEMON_PORT} is the port of the guest program, which the runner alone calls; choose another"
            ),
        );
    }
}

fn environment(spec: &VirtualMachineSpec, faults: &mut Faults) {
    let mut names = BTreeSet::new();
    for (index, variable) in spec.guest.env.iter().enumerate() {
        let (field, name) = (format!("spec.guest.env[{index}].name"), &variable.name);
        faults.require(
            !name.is_empty() && !name.contains(['=', '\0', '\n']),
            &field,
            format!("{name:?} must not be empty and not contain = or line ends"),
        );
        faults.require(names.insert(name), field, format!("{name} is there twice; remove one"));
    }
}

fn port_clashes(spec: &VirtualMachineSpec, faults: &mut Faults) {
    let own = [("qmp", spec.qmp), ("qmpManual", spec.qmp_manual), ("runnerPort", spec.runner_port)];
    for (index, (name, port)) in own.iter().enumerate() {
        faults.require(*port > 0, format!("spec.{name}"), "0 must be between 1 and 65535");
        for (other, _) in own.iter().take(index).filter(|(_, taken)| taken == port) {
            faults.push(
                format!("spec.{name}"),
                format!("{port} is {other} too; leave both out to get the defaults"),
            );
        }
        let clashes = |(_, guest): &(usize, &crate::virtual_machine::Port)| {
            guest.port == *port && guest.protocol == PortProtocol::Tcp
        };
        for (index, _) in spec.guest.ports.iter().enumerate().filter(clashes) {
            faults.push(
                format!("spec.guest.ports[{index}].port"),
                format!("{port} is spec.{name}; choose another for one of them"),
            );
        }
    }
}

fn tls_mount(tls: &Tls, disks: &[Disk], faults: &mut Faults) {
    let field = "spec.tls.mountPath";
    match tls.mount_path.parse::<GuestPath>() {
        Ok(path) => {
            let same = |disk: &&Disk| disk.mount_path.parse().is_ok_and(|other: GuestPath| other == path);
            if let Some(disk) = disks.iter().find(same) {
                faults.push(field, format!("{path} is where the disk {} is; choose another", disk.name));
            }
        }
        Err(error) => faults.push(field, error.to_string()),
    }
}

fn tls_certificate(tls: &Tls, faults: &mut Faults) {
    // Without an issuer the controller's authority for VMs signs.
    faults.require(!tls.server_name.is_empty(), "spec.tls.serverName", "must be set, or leave out spec.tls");
    faults.require(
        !is_reserved(&tls.server_name),
        "spec.tls.serverName",
        format!(
            "{:?} is a name of the services of the cluster; choose one outside of {}",
            tls.server_name,
            reserved_domains()
        ),
    );
    let (expire, renew) = (tls.expire_after.nanos(), tls.renew_before.nanos());
    faults.require(expire >= 0, "spec.tls.expireAfter", "must not be negative");
    faults.require(renew >= 0, "spec.tls.renewBefore", "must not be negative");
    faults.require(
        expire == 0 || renew < expire,
        "spec.tls.renewBefore",
        format!("{} must be shorter than expireAfter {}", tls.renew_before, tls.expire_after),
    );
}

/// Whether a DNS name, or a wildcard, is or may be that of a service.
fn is_reserved(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let within =
        |domain: &str| name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    RESERVED_DOMAINS.iter().any(|domain| within(domain))
}

fn reserved_domains() -> String {
    RESERVED_DOMAINS.map(|domain| format!("*.{domain}")).join(" and ")
}

fn swap(settings: &GuestSettings, faults: &mut Faults) {
    let (plain, info) = (settings.swap, settings.swap_info.map(|info| info.size));
    for (field, size) in [("swap", plain), ("swapInfo.size", info)] {
        faults.require(
            size.is_none_or(|size| Bytes::try_from(size).is_ok()),
            format!("spec.guest.settings.{field}"),
            format!("{} must not be negative", size.unwrap_or_default()),
        );
    }
    faults.require(
        plain.is_none() || info.is_none(),
        "spec.guest.settings.swapInfo",
        "cannot be combined with swap; leave one of them out",
    );
}

fn amounts(spec: &VirtualMachineSpec, faults: &mut Faults) {
    let zero = Quantity::default();
    faults.require(
        Bytes::try_from(spec.guest.root_disk.size).is_ok(),
        "spec.guest.rootDisk.size",
        format!("{} must not be negative; 0 keeps the image's size", spec.guest.root_disk.size),
    );
    if let Some(settings) = &spec.guest.settings {
        swap(settings, faults);
    }
    let overcommit = spec.overcommit.unwrap_or_default();
    for (name, factor) in [("cpu", overcommit.cpu), ("memory", overcommit.memory)] {
        faults.require(
            factor.is_none_or(|factor| factor > zero),
            format!("spec.overcommit.{name}"),
            "must be above 0; 1 means no overcommit",
        );
    }
}

/// Whether a pod of the VM exists or is about to be made, by its status.
fn has_pod(vm: &VirtualMachine) -> bool {
    vm.status.as_ref().is_some_and(|status| !status.pod_name.is_empty())
}

/// What a pod is made of stays as long as it does.
fn while_off(old: &VirtualMachineSpec, new: &VirtualMachineSpec, faults: &mut Faults) {
    for field in &FIELDS {
        faults.require((field.is_same)(old, new), format!("spec.{}", field.path), WHILE_OFF);
    }
}

fn set_once(old: &VirtualMachineSpec, new: &VirtualMachineSpec, faults: &mut Faults) {
    for (field, same) in [
        (
            "spec.cpuScalingMode",
            old.cpu_scaling_mode.is_none() || old.cpu_scaling_mode == new.cpu_scaling_mode,
        ),
        (
            "spec.targetArchitecture",
            old.target_architecture.is_none() || old.target_architecture == new.target_architecture,
        ),
    ] {
        faults.require(same, field, "can be set once and not changed; put the old value back");
    }
}

#[cfg(test)]
mod tests;
