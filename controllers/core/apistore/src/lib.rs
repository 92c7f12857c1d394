//! Kubernetes API semantics as pure code: objects, versions, watches, patches, schemas, admission and access rules.
//!
//! Nothing here reads a clock, touches a file or opens a socket: the shell (`neonvm-local`) hands in the time and
//! the entropy, persists what a commit changed, and carries bytes.

pub mod apply;
pub mod crd;
pub mod field;
pub mod patch;
pub mod schema;
pub mod status;
