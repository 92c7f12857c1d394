//! `vm`

pub(super) mod build;
pub(super) mod connect;
pub(super) mod console;
pub(super) mod create;
pub(super) mod decisions;
pub(super) mod delete;
pub(super) mod describe;
pub(super) mod events;
pub(in crate::commands) mod exec;
pub(super) mod list;
pub(super) mod logs;
pub(super) mod scale;
pub(in crate::commands) mod size;
pub(super) mod ssh;
pub(in crate::commands) mod table;
pub(super) mod wait;
pub(in crate::commands) mod waiting;
