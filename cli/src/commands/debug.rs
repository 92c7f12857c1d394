//! `debug`

pub(super) mod node_pressure;
