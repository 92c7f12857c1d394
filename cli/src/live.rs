//! The live view of nodes, VMs and migrations: one model, shown by `top` on a terminal and by `dashboard` in a browser.
//!
//! Pure: no clock, no I/O. [`model::Fleet`] takes in what was observed, [`ui::Ui`] the keys, and [`view`] draws both into a
//! buffer of cells. The watches and requests that feed it are in `commands/live`. Texts from outside are cleaned before they
//! reach the model.

pub(crate) mod input;
pub(crate) mod json;
pub(crate) mod keys;
pub(crate) mod model;
pub(crate) mod series;
pub(crate) mod size;
pub(crate) mod stream;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod view;

use std::cmp::Ordering;

use input::Key;
use model::{Fleet, Vm};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Page {
    #[default]
    Overview,
    Vm(Key),
    Stream,
    Help,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Ui {
    pub(crate) page: Page,
    pub(crate) sort: Sort,
    pub(crate) reversed: bool,
    pub(crate) filter: String,
    pub(crate) editing: bool,
    /// The selected VM; none: the first one.
    pub(crate) selected: Option<Key>,
    /// Lines above the first one that is shown, on pages of text.
    pub(crate) scroll: usize,
}

impl Ui {
    pub(crate) fn rows<'a>(&self, fleet: &'a Fleet) -> Vec<(&'a Key, &'a Vm)> {
        rows(fleet, self.sort, self.reversed, &self.filter)
    }

    /// Position of the selected VM among the rows: the first one if it is not there.
    pub(crate) fn position(&self, rows: &[(&Key, &Vm)]) -> usize {
        let selected = self.selected.as_ref();
        rows.iter().position(|(key, _)| Some(*key) == selected).unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// CPUs in use, largest first.
    #[default]
    Cpu,
    Memory,
    Size,
    Name,
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

pub(crate) fn rows<'a>(fleet: &'a Fleet, sort: Sort, reversed: bool, filter: &str) -> Vec<(&'a Key, &'a Vm)> {
    let mut rows: Vec<_> = fleet.vms.iter().filter(|(key, vm)| fits(key, vm, filter)).collect();
    rows.sort_by(|one, other| {
        let order = sort.compare(*one, *other);
        if reversed { order.reverse() } else { order }
    });
    rows
}
