//! Metrics of each VM of the node.

use std::fmt::Write as _;

use neonvm_api::names::label;
use neonvm_api::{VirtualMachine, VmInfo};
use neonvm_types::Bytes;
use neonvm_types::agent_inspect::VmInspect;

use super::escaped;

fn labels(vm: &VirtualMachine) -> String {
    let meta = &vm.metadata;
    let label = |key: &str| meta.labels.as_ref().and_then(|all| all.get(key)).map_or("", String::as_str);
    format!(
        "vm_namespace=\"{}\",vm_name=\"{}\",endpoint_id=\"{}\",project_id=\"{}\"",
        escaped(meta.namespace.as_deref().unwrap_or("")),
        escaped(meta.name.as_deref().unwrap_or("")),
        escaped(label(label::ENDPOINT_ID)),
        escaped(label(label::PROJECT_ID)),
    )
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus values are doubles")]
fn double(bytes: Bytes) -> f64 {
    bytes.get() as f64
}

/// The text about all VMs; `views` are those that are scaled.
pub(crate) fn per_vm<'a>(vms: impl Iterator<Item = &'a VirtualMachine>, views: &[VmInspect]) -> String {
    let mut out = String::from(
        "# TYPE autoscaling_vm_cpu_cores gauge\n# TYPE autoscaling_vm_memory_bytes gauge\n\
         # TYPE autoscaling_vm_restart_count gauge\n# TYPE autoscaling_vm_desired_cu gauge\n\
         # TYPE autoscaling_vm_extra_ip gauge\n",
    );
    for vm in vms {
        let labels = labels(vm);
        let guest = &vm.spec.guest;
        let slot = guest.slot_size().unwrap_or(Bytes::ZERO);
        let slots = |count: u16| double(slot.saturating_mul(u32::from(count)));
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
                memory.push((name, double(bound.mem)));
            }
        }
        let status = vm.status.clone().unwrap_or_default();
        if let Some(cpus) = status.cpus {
            cpu.push(("status_use", cpus.as_f64()));
        }
        if let Some(size) = status.memory_size.and_then(|size| Bytes::try_from(size).ok()) {
            memory.push(("status_use", double(size)));
        }
        for (family, values) in [("autoscaling_vm_cpu_cores", cpu), ("autoscaling_vm_memory_bytes", memory)] {
            for (name, value) in values {
                let _ = writeln!(out, "{family}{{{labels},value=\"{name}\"}} {value}");
            }
        }
        let _ = writeln!(out, "autoscaling_vm_restart_count{{{labels}}} {}", status.restart_count);
        let _ = writeln!(
            out,
            "autoscaling_vm_extra_ip{{{labels}}} {}",
            u8::from(!status.extra_net_ip.is_empty())
        );
        let own = |view: &&VmInspect| {
            Some(&view.name) == vm.metadata.name.as_ref()
                && Some(&view.namespace) == vm.metadata.namespace.as_ref()
        };
        if let Some(goal) = views.iter().find(own).and_then(|view| Some((view.goal?, view.compute_unit)))
            && goal.1.vcpus.as_f64() > 0.0
        {
            let units = goal.0.vcpus.as_f64() / goal.1.vcpus.as_f64();
            let _ = writeln!(out, "autoscaling_vm_desired_cu{{{labels},component=\"total\"}} {units}");
        }
    }
    out
}
