//! The live view of nodes, VMs and migrations: one model, shown by `top` on a terminal and by `dashboard` in a browser.
//!
//! Pure: no clock, no I/O. [`model::Fleet`] takes in what was observed, [`ui::Ui`] the keys, and [`view`] draws both into a
//! buffer of cells. The watches and requests that feed it are in `commands/live`. Texts from outside are cleaned before they
//! reach the model.

pub(crate) mod input;
pub(crate) mod json;
pub(crate) mod keys;
pub(crate) mod model;
pub(crate) mod order;
pub(crate) mod series;
pub(crate) mod size;
pub(crate) mod stream;
pub(crate) mod ui;
pub(crate) mod view;

#[cfg(test)]
pub(crate) mod tests;
