//! How a scenario is run.

use std::time::Duration;

use crate::{Bug, FaultSet};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Record {
    /// Nothing.
    #[default]
    None,
    Nodes,
    NodesAndVms(usize),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Everything random follows from it.
    pub seed: u64,
    /// Faults that happen. `None`: the seed chooses among those of the scenario.
    pub faults: Option<FaultSet>,
    /// A bug to plant; for tests.
    pub bug: Option<Bug>,
    pub record: Record,
    /// When the faults end, if before the scenario's duration.
    pub until: Option<Duration>,
}
