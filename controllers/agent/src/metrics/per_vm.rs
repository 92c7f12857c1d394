//! Metrics of each VM of the node.

use neonvm_api::names::label;
use neonvm_api::{VirtualMachine, VmInfo};
use neonvm_kit::metrics::{Kind, Page, double};
use neonvm_types::agent_inspect::VmInspect;
use neonvm_types::guest::DiskUse;
use neonvm_types::{Bytes, NamespacedName};

use crate::disks::DiskUses;

struct Row<'a> {
    /// Namespace, name, endpoint and project.
    labels: [(&'static str, &'a str); 4],
    cpu: Vec<(&'static str, f64)>,
    memory: Vec<(&'static str, f64)>,
    restarts: f64,
    has_extra_ip: bool,
    /// What metrics call for, in compute units: in total, and by each metric alone.
    desired_units: Vec<(&'static str, f64)>,
    disks: Vec<DiskUse>,
}

fn labels(vm: &VirtualMachine) -> [(&'static str, &str); 4] {
    let meta = &vm.metadata;
    let label = |key: &str| meta.labels.as_ref().and_then(|all| all.get(key)).map_or("", String::as_str);
    [
        ("vm_namespace", meta.namespace.as_deref().unwrap_or("")),
        ("vm_name", meta.name.as_deref().unwrap_or("")),
        ("endpoint_id", label(label::ENDPOINT_ID)),
        ("project_id", label(label::PROJECT_ID)),
    ]
}

fn name(vm: &VirtualMachine) -> NamespacedName {
    let meta = &vm.metadata;
    NamespacedName::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn row<'a>(vm: &'a VirtualMachine, views: &[VmInspect], disks: &DiskUses) -> Row<'a> {
    let guest = &vm.spec.guest;
    let slot = guest.slot_size().unwrap_or(Bytes::ZERO);
    let slots = |count: u16| double(slot.saturating_mul(u32::from(count)).get());
    let mut cpu = vec![
        ("spec_min", guest.cpus.min.as_f64()),
        ("spec_use", guest.cpus.r#use.as_f64()),
        ("spec_max", guest.cpus.max.as_f64()),
    ];
    let mut memory = vec![
        ("spec_min", slots(guest.memory_slots.min)),
        ("spec_use", slots(guest.memory_slots.r#use)),
        ("spec_max", slots(guest.memory_slots.max)),
    ];
    if let Ok(info) = VmInfo::from_vm(vm) {
        for (name, bound) in [("autoscaling_min", info.min()), ("autoscaling_max", info.max())] {
            cpu.push((name, bound.vcpus.as_f64()));
            memory.push((name, double(bound.mem.get())));
        }
    }
    let status = vm.status.clone().unwrap_or_default();
    if let Some(cpus) = status.cpus {
        cpu.push(("status_use", cpus.as_f64()));
    }
    if let Some(size) = status.memory_size.and_then(|size| Bytes::try_from(size).ok()) {
        memory.push(("status_use", double(size.get())));
    }
    let own = |view: &&VmInspect| {
        Some(&view.name) == vm.metadata.name.as_ref()
            && Some(&view.namespace) == vm.metadata.namespace.as_ref()
    };
    let view = views.iter().find(own);
    let total = view.and_then(|view| {
        let unit = view.compute_unit.vcpus.as_f64();
        Some(view.goal?.vcpus.as_f64() / unit).filter(|_| unit > 0.0)
    });
    let parts = view.and_then(|view| view.goal_parts).unwrap_or_default();
    let desired = [("total", total), ("cpu", parts.cpu), ("mem", parts.mem), ("lfc", parts.lfc)];
    Row {
        labels: labels(vm),
        cpu,
        memory,
        restarts: status.restart_count.into(),
        has_extra_ip: !status.extra_net_ip.is_empty(),
        desired_units: desired.into_iter().filter_map(|(of, units)| Some((of, units?))).collect(),
        disks: disks.of(&name(vm)),
    }
}

/// A page about all VMs; `views` are those that are scaled. A compute unit counts `multiplier`.
pub(crate) fn per_vm<'a>(
    vms: impl Iterator<Item = &'a VirtualMachine>,
    views: &[VmInspect],
    multiplier: f64,
    disks: &DiskUses,
) -> Page {
    let rows: Vec<Row<'a>> = vms.map(|vm| row(vm, views, disks)).collect();
    let mut page = Page::new();
    for (name, help, values) in [
        (
            "autoscaling_vm_cpu_cores",
            "Cores of a VM.",
            (|row: &Row<'_>| row.cpu.clone()) as fn(&Row<'_>) -> Vec<(&'static str, f64)>,
        ),
        ("autoscaling_vm_memory_bytes", "Memory of a VM.", |row| row.memory.clone()),
    ] {
        page.family(name, Kind::Gauge, help);
        for row in &rows {
            let [namespace, name, endpoint, project] = row.labels;
            for (which, value) in values(row) {
                page.sample(&[namespace, name, endpoint, project, ("value", which)], value);
            }
        }
    }
    page.family("autoscaling_vm_restart_count", Kind::Gauge, "Restarts of a VM.");
    for row in &rows {
        page.sample(&row.labels, row.restarts);
    }
    page.family("autoscaling_vm_desired_cu", Kind::Gauge, "Compute units that metrics call for.");
    for row in &rows {
        for (component, units) in &row.desired_units {
            let [namespace, name, endpoint, project] = row.labels;
            let labels = [namespace, name, endpoint, project, ("component", *component)];
            page.sample(&labels, units * multiplier);
        }
    }
    page.family(
        "autoscaling_vm_extra_ip",
        Kind::Gauge,
        "Whether a VM has an address on the overlay network.",
    );
    for row in &rows {
        page.sample(&row.labels, f64::from(u8::from(row.has_extra_ip)));
    }
    of_disks(&rows, &mut page);
    page
}

/// A value of a disk; none if the guest does not report it.
type OfDisk = fn(&DiskUse) -> Option<u64>;

/// How full the disks are. The root file system is the disk `/`.
fn of_disks(rows: &[Row<'_>], page: &mut Page) {
    let families: [(&'static str, &str, OfDisk); 5] = [
        ("neonvm_vm_disk_size_bytes", "Size of the file system of a disk of a VM.", |disk| Some(disk.total)),
        ("neonvm_vm_disk_used_bytes", "Bytes of it in use.", |disk| Some(disk.used)),
        (
            "neonvm_vm_disk_available_bytes",
            "Bytes of it that programs other than root's can still use.",
            |disk| Some(disk.available),
        ),
        ("neonvm_vm_disk_inodes", "Inodes of the file system of a disk of a VM.", |disk| {
            Some(disk.inodes).filter(|inodes| *inodes > 0)
        }),
        ("neonvm_vm_disk_inodes_used", "Inodes of it in use.", |disk| {
            Some(disk.inodes_used).filter(|_| disk.inodes > 0)
        }),
    ];
    for (name, help, value) in families {
        page.family(name, Kind::Gauge, help);
        for row in rows {
            let [namespace, vm, endpoint, project] = row.labels;
            for disk in &row.disks {
                if let Some(value) = value(disk) {
                    page.sample(&[namespace, vm, endpoint, project, ("disk", &disk.name)], double(value));
                }
            }
        }
    }
}
