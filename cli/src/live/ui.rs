//! What the person chose: page, order, filter, selection.

use super::input::Key;
use super::model::{Fleet, Vm};
use super::order::{self, Sort};

/// What fills the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Page {
    /// Nodes, VMs, migrations, and what happened.
    #[default]
    Overview,
    /// One VM, and why it has the size it has.
    Vm(Key),
    /// What happened, on the whole screen.
    Stream,
    /// Keys, signs and problems.
    Help,
}

/// The state of the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ui {
    /// What fills the screen.
    pub(crate) page: Page,
    /// Order of VMs.
    pub(crate) sort: Sort,
    /// Whether the order is reversed.
    pub(crate) reversed: bool,
    /// Only VMs that fit are shown.
    pub(crate) filter: String,
    /// Whether keys change the filter.
    pub(crate) editing: bool,
    /// The selected VM; none: the first one.
    pub(crate) selected: Option<Key>,
    /// Lines above the first one that is shown, on pages of text.
    pub(crate) scroll: usize,
}

impl Ui {
    /// The VMs in their order.
    pub(crate) fn rows<'a>(&self, fleet: &'a Fleet) -> Vec<(&'a Key, &'a Vm)> {
        order::rows(fleet, self.sort, self.reversed, &self.filter)
    }

    /// Position of the selected VM among the rows: the first one if it is not there.
    pub(crate) fn position(&self, rows: &[(&Key, &Vm)]) -> usize {
        let selected = self.selected.as_ref();
        rows.iter().position(|(key, _)| Some(*key) == selected).unwrap_or(0)
    }
}
