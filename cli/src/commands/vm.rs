//! `vm`

pub(super) mod build;
