//! Facts that decide whether a host can receive a VM, each with its rule: one table for the target's runner, the
//! controller, the scheduler and clients.
//!
//! ```
//! use neonvm_types::runner_protocol::{HostFacts, MachineInfo, facts};
//!
//! let vm = MachineInfo { machine_type: "pc-q35-10.0".into(), ..MachineInfo::default() };
//! let host = HostFacts { qemu_version: "7.2.22".into(), ..HostFacts::default() };
//! let why = facts::obstacle(&vm, &host).map(|obstacle| obstacle.to_string());
//! assert_eq!(why.as_deref(), Some("has QEMU 7.2.22, and the VM's machine type pc-q35-10.0 needs 10.0"));
//! ```

use std::collections::BTreeSet;
use std::fmt;

use super::machine::{HostFacts, MachineInfo};

/// Names of features that a message has; it counts the others.
const NAMED: usize = 8;

/// A fact about a VM and about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// What runs the guest's code.
    Accelerator,
    /// Version in the machine type; of a host that of its QEMU.
    MachineType,
    /// Revision of the devices.
    Devices,
    /// Manufacturer that the guest's CPU names.
    CpuVendor,
    /// Features of the guest's CPU.
    CpuFeatures,
    /// Tap device, or QEMU's own network stack.
    Network,
    /// Packets of a tap device pass through the kernel.
    Vhost,
    /// Version of QEMU, apart from the machine types that it has.
    QemuVersion,
    /// Version of the host's kernel.
    Kernel,
    /// Version of the host's cgroups.
    Cgroup,
}

/// What the value of a host may be, given that of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The same.
    Equal,
    /// At least as much: the VM uses no more than it has, whatever else the host offers.
    AtLeast,
    /// Anything: the guest does not notice.
    Any,
}

/// All facts with their rules, and the reason of each.
pub const RULES: [(Fact, Rule); 10] = [
    // A host with KVM also emulates. A guest is not moved from one to the other: its CPU would be another one.
    (Fact::Accelerator, Rule::AtLeast),
    // QEMU has the machine types of older versions, not those of newer ones.
    (Fact::MachineType, Rule::AtLeast),
    // Runners make the devices of older revisions for VMs that have them.
    (Fact::Devices, Rule::AtLeast),
    // Kernels select workarounds and instructions by it when they boot. Emulation names the same one everywhere.
    (Fact::CpuVendor, Rule::Equal),
    // A guest detects features when it boots and its programs when they start: none may vanish. The target's runner hides
    // those that are new, so that the VM can also be migrated back.
    (Fact::CpuFeatures, Rule::AtLeast),
    // Offloads of a tap device are features of the guest's network device, and QEMU's own stack has none of them.
    (Fact::Network, Rule::Equal),
    // Both hand over the same state of the queues; features that only one of the two has are off from revision 1 of the
    // devices on.
    (Fact::Vhost, Rule::Any),
    // The machine type fixes what the guest sees, and the two runners negotiate how memory is sent.
    (Fact::QemuVersion, Rule::Any),
    // Its features reach the guest through its CPU and its network device only.
    (Fact::Kernel, Rule::Any),
    // Limits hold QEMU's threads; the guest does not see them.
    (Fact::Cgroup, Rule::Any),
];

/// A value of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    /// Not reported: nothing is refused because of it.
    Unknown,
    /// A word.
    Word(String),
    /// A version, or a revision as its first number.
    Level(u32, u32),
    /// Several words.
    Words(BTreeSet<String>),
}

impl Value {
    fn word(text: &str) -> Self {
        if text.is_empty() { Self::Unknown } else { Self::Word(text.to_owned()) }
    }

    fn words(words: &BTreeSet<String>) -> Self {
        if words.is_empty() { Self::Unknown } else { Self::Words(words.clone()) }
    }

    /// The first two numbers of a version such as `7.2.22`.
    fn version(text: &str) -> Self {
        let mut numbers = text.split('.').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Self::Level(major, minor),
            _ => Self::Unknown,
        }
    }

    fn suits(&self, here: &Self, rule: Rule) -> bool {
        match (rule, self, here) {
            (Rule::Any, _, _) | (_, Self::Unknown, _) | (_, _, Self::Unknown) => true,
            (Rule::Equal, there, here) => there == here,
            (Rule::AtLeast, Self::Level(a, b), Self::Level(c, d)) => (a, b) <= (c, d),
            (Rule::AtLeast, Self::Words(there), Self::Words(here)) => there.is_subset(here),
            (Rule::AtLeast, there, here) => there == here,
        }
    }
}

fn of_vm(fact: Fact, vm: &MachineInfo) -> Value {
    match fact {
        Fact::Accelerator => Value::words(&one(&vm.accelerator)),
        Fact::MachineType => Value::version(vm.machine_type.rsplit('-').next().unwrap_or_default()),
        Fact::Devices => Value::Level(vm.devices, 0),
        // A model with a name has its vendor everywhere.
        Fact::CpuVendor if vm.cpu_model == "host" => Value::word(&vm.cpu_vendor),
        Fact::CpuVendor => Value::Unknown,
        Fact::CpuFeatures => Value::words(&vm.cpu_features),
        Fact::Network => Value::word(vm.network_mode()),
        Fact::Vhost | Fact::QemuVersion | Fact::Kernel | Fact::Cgroup => Value::Unknown,
    }
}

fn of_host(fact: Fact, host: &HostFacts, vm: &MachineInfo) -> Value {
    // What a CPU can have is known for the host's best accelerator only.
    let same = host.accelerator == vm.accelerator;
    match fact {
        Fact::Accelerator => {
            let mut words = one(&host.accelerator);
            if !words.is_empty() {
                words.insert("tcg".to_owned());
            }
            Value::words(&words)
        }
        Fact::MachineType => Value::version(&host.qemu_version),
        Fact::Devices => host.devices.map_or(Value::Unknown, |revision| Value::Level(revision, 0)),
        Fact::CpuVendor if same => Value::word(&host.cpu_vendor),
        Fact::CpuFeatures if same => Value::words(&host.cpu_features),
        Fact::CpuVendor | Fact::CpuFeatures => Value::Unknown,
        Fact::Network => Value::word(&host.network),
        Fact::Vhost | Fact::QemuVersion | Fact::Kernel | Fact::Cgroup => Value::Unknown,
    }
}

fn one(word: &str) -> BTreeSet<String> {
    if word.is_empty() { BTreeSet::new() } else { [word.to_owned()].into() }
}

/// Why a host cannot receive a VM. Its text continues a sentence that begins with the name of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The fact whose rule is broken.
    pub fact: Fact,
    text: String,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// The first fact that keeps a host from receiving a VM, in the order of [`RULES`].
#[must_use]
pub fn obstacle(vm: &MachineInfo, host: &HostFacts) -> Option<Obstacle> {
    let broken = |(fact, rule): &(Fact, Rule)| !of_vm(*fact, vm).suits(&of_host(*fact, host, vm), *rule);
    RULES
        .iter()
        .find(|row| broken(row))
        .map(|(fact, _)| Obstacle { fact: *fact, text: text(*fact, vm, host) })
}

fn text(fact: Fact, vm: &MachineInfo, host: &HostFacts) -> String {
    match fact {
        Fact::Accelerator => format!("has no {}, which runs the VM", vm.accelerator),
        Fact::MachineType => {
            let (kind, qemu) = (&vm.machine_type, &host.qemu_version);
            let needs = kind.rsplit('-').next().unwrap_or_default();
            format!("has QEMU {qemu}, and the VM's machine type {kind} needs {needs}")
        }
        Fact::Devices => {
            let has = host.devices.unwrap_or_default();
            format!(
                "has runners for devices up to revision {has}, and those of the VM are of revision {}",
                vm.devices
            )
        }
        Fact::CpuVendor => {
            format!("has a CPU of {}, and the VM's is of {}", host.cpu_vendor, vm.cpu_vendor)
        }
        Fact::CpuFeatures => {
            let missing: Vec<&str> =
                vm.cpu_features.difference(&host.cpu_features).map(String::as_str).collect();
            let more = missing.len().saturating_sub(NAMED);
            let named = missing.get(..NAMED).unwrap_or(&missing).join(", ");
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("lacks features of the VM's CPU {}: {named}{more}", vm.cpu_model)
        }
        Fact::Network => {
            format!("connects guests by {}, and the VM is connected by {}", host.network, vm.network_mode())
        }
        Fact::Vhost | Fact::QemuVersion | Fact::Kernel | Fact::Cgroup => String::new(),
    }
}

/// Features of a host's CPU that the VM's does not have. A target hides them: `None` if those of the VM are not known.
#[must_use]
pub fn surplus<'a>(vm: &'a MachineInfo, here: &'a BTreeSet<String>) -> Option<Vec<&'a str>> {
    if vm.cpu_features.is_empty() {
        return None;
    }
    Some(here.difference(&vm.cpu_features).map(String::as_str).collect())
}

#[cfg(test)]
mod tests;
