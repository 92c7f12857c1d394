//! From a container image to a booted disk: the real programs, a real registry, a real kernel, a real database.

mod agent;
mod guest;
mod pg16;
mod refusals;
pub(crate) mod registry;
mod workloads;
