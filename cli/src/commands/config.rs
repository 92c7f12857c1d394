//! `config`

pub(super) mod path;
pub(super) mod service;
pub(super) mod set;
pub(super) mod unset;
pub(super) mod view;
