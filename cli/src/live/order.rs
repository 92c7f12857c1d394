//! Which VMs are shown, and in which order.

use std::cmp::Ordering;

use super::input::Key;
use super::model::{Fleet, Vm};

/// What VMs are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// CPUs in use, largest first.
    #[default]
    Cpu,
    /// Memory in use, largest first.
    Memory,
    /// Size, largest first.
    Size,
    Name,
    /// Node, then name.
    Node,
}

impl Sort {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Size => "size",
            Self::Name => "name",
            Self::Node => "node",
        }
    }

    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Cpu => Self::Memory,
            Self::Memory => Self::Size,
            Self::Size => Self::Name,
            Self::Name => Self::Node,
            Self::Node => Self::Cpu,
        }
    }

    fn compare(self, one: (&Key, &Vm), other: (&Key, &Vm)) -> Ordering {
        let largest =
            |one: Option<f64>, other: Option<f64>| other.unwrap_or(-1.0).total_cmp(&one.unwrap_or(-1.0));
        let (a, b) = (one.1, other.1);
        let first = match self {
            Self::Cpu => largest(a.load.cpu, b.load.cpu),
            Self::Memory => b.load.memory.cmp(&a.load.memory),
            Self::Size => (b.facts.size.vcpus, b.facts.size.mem).cmp(&(a.facts.size.vcpus, a.facts.size.mem)),
            Self::Name => Ordering::Equal,
            Self::Node => a.facts.node.cmp(&b.facts.node),
        };
        first.then_with(|| one.0.cmp(other.0))
    }
}

/// Whether a VM fits the filter: each of its words is part of its name, namespace, node, phase or state.
fn fits(key: &Key, vm: &Vm, filter: &str) -> bool {
    let text = format!("{}/{} {} {} {}", key.namespace, key.name, vm.facts.node, vm.facts.phase, vm.state());
    let text = text.to_lowercase();
    filter.to_lowercase().split_whitespace().all(|word| text.contains(word))
}

/// The VMs that fit the filter, sorted.
pub(crate) fn rows<'a>(fleet: &'a Fleet, sort: Sort, reversed: bool, filter: &str) -> Vec<(&'a Key, &'a Vm)> {
    let mut rows: Vec<_> = fleet.vms.iter().filter(|(key, vm)| fits(key, vm, filter)).collect();
    rows.sort_by(|one, other| {
        let order = sort.compare(*one, *other);
        if reversed { order.reverse() } else { order }
    });
    rows
}
