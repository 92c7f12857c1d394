//! Kubernetes API semantics as pure code: objects, versions, watches, patches, schemas, admission and access rules.
//!
//! Nothing here reads a clock, touches a file or opens a socket: the shell (`neonvm-apiserver`) hands in the time and
//! the entropy, persists what a commit changed, and carries bytes.
//!
//! State: `engine` over [`store`] and [`kinds`]. Path of a request: [`request`] → `pipeline` → `route` (access rules) → `query_list`/[`watch`] for reads, or `write` →
//! [`admission`] → [`store`] for changes. `follow` updates derived state within the change, `restart` derives it from the objects on disk;
//! `background` runs tasks after both.

pub mod access;
pub mod admission;
pub mod answer;
pub mod apply;
pub mod builtin;

mod background;
pub mod context;
mod convert;
mod convert_hpa;
pub mod crd;
mod discovery;
mod documents;
pub mod engine;
pub mod field;
mod fields;
mod follow;
mod form;
mod head;
pub mod kinds;
pub mod media;
mod object;
pub mod options;
mod ownership;
pub mod patch;
mod pending_write;
mod pipeline;
mod plugin;
pub mod plugins;
mod proto;
mod query_list;
mod render;
pub mod request;
mod restart;
mod route;
pub mod schema;
pub mod selector;
mod services;
mod signing;
pub mod status;
pub mod store;
mod strategy;
mod table;
mod task;
pub mod watch;
mod write;

pub use discovery::VERSION;
