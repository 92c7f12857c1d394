//! `vm`

pub(super) mod build;
pub(super) mod connect;
pub(super) mod console;
pub(super) mod create;
pub(super) mod delete;
pub(super) mod describe;
pub(super) mod events;
mod exec;
pub(super) mod get;
pub(super) mod list;
pub(super) mod logs;
mod machines;
pub(super) mod scale;
mod size;
pub(super) mod ssh;
mod table;
pub(super) mod wait;
mod waiting;
