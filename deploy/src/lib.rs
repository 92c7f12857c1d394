//! What an installation consists of. [`Values`] are what may be chosen, [`objects`] makes of them the objects in the order in which
//! they are to be applied; [`chart`] writes the same as a Helm chart and as a kustomization.
//!
//! For: `neonctl install`, `upgrade` and `uninstall`. Owns: `deploy/manifests` and everything that is generated of it. May not: read,
//! write or connect; the files are embedded when it is compiled. The chart is made by the function that makes the objects, with places
//! of Helm in the position of values, so that the two cannot come apart. Tested by properties over all values, and by a test that
//! compares what is committed.

pub mod chart;
mod inventory;
pub mod monitoring;
mod objects;
mod source;
mod values;

pub use inventory::{INVENTORY, Named, Record, inventory};
pub use objects::{
    Facts, Release, WORKLOADS, copies_root_disks, is_workload, objects, rank, release, runner_image,
};
pub use source::everything;
pub use values::choice::Choice;
pub use values::{
    Accelerator, Agent, BackupHooks, Component, CpuScaling, DiskCache, Encryption, Image, LogFormat, Network,
    Overlay, PullPolicy, Reference, Resources, RootDisk, Runner, Scheduler, Service, Toleration, Values,
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file of ours cannot be read; a test reads them all.
    #[error("the manifest {0} cannot be read: {1}")]
    Manifest(&'static str, String),
    #[error("there is no value {path}{}", near(.nearest.as_deref()))]
    Unknown {
        /// With dots.
        path: String,
        nearest: Option<String>,
    },
    /// A value that cannot be used.
    #[error("{path}: {why}")]
    Invalid {
        /// With dots.
        path: String,
        why: String,
    },
    #[error("the values are not YAML of one object: {0}")]
    Yaml(String),
}

fn near(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

impl Error {
    pub(crate) fn invalid(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), why: why.into() }
    }
}
