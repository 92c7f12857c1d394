//! `test`

pub(super) mod cluster;
