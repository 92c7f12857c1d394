//! Kubernetes objects of the system: Rust types, schemas, defaults, normalisation and validation.
//!
//! For: controllers, the embedded API server's start-up, admission webhooks, the CLI.
//! Owns: field names and printed forms of `VirtualMachine`, `VirtualMachineMigration`, `MigrationPolicy`, `IPPool` and `PodAutoscaler`.
//! May not: talk to an API server, read a clock.
//!
//! Admission ([`admission::admit`]) is three pure steps: [`normalise()`] (spellings), [`apply_defaults`] (what is
//! absent), and a function of [`validate`] (what is wrong). The definitions of [`crds`] carry the same checks as CEL
//! rules, for clusters where no webhook is called.
//!
//! ```
//! use serde_json::json;
//!
//! let mut vm = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": "db"},
//!     "spec": {"guest": {"cpus": {"min": 0.25, "use": 2, "max": 1}, "memorySlots": {"min": 1, "use": 1, "max": 4},
//!         "rootDisk": {"image": "db:1"}}}});
//! let verdict = neonvm_api::admit("VirtualMachine", &mut vm, None);
//! assert_eq!(vm["spec"]["guest"]["cpus"]["min"], "250m", "normalised");
//! assert!(verdict.errors[0].to_string().starts_with("spec.guest.cpus.use"), "more than the maximum");
//! ```

#![warn(missing_docs)]

pub mod admission;
pub mod crd;
mod defaults;
pub mod duration;
mod field_error;
mod guest_path;
pub mod ip_pool;
pub mod lifetimes;
pub mod merge_patch;
pub mod migration;
pub mod migration_policy;
pub mod names;
pub mod next_start;
mod normalise;
pub mod overlay;
pub mod pod_annotation;
pub mod pod_autoscaler;
pub mod policy;
mod removed;
pub mod runner_pod;
pub mod scaling;
mod schema;
pub mod service_config;
pub mod validate;
pub mod virtual_machine;
pub mod vm_info;
mod while_off;

pub use admission::{Verdict, admit};
pub use crd::crds;
pub use defaults::apply_defaults;
pub use duration::GoDuration;
pub use field_error::FieldError;
pub use guest_path::{GuestPath, NoGuestPath};
pub use ip_pool::{IPPool, IPPoolSpec};
pub use migration::{VirtualMachineMigration, VirtualMachineMigrationSpec, VirtualMachineMigrationStatus};
pub use migration_policy::{MigrationPolicy, MigrationPolicySpec, MigrationTuning};
pub use normalise::normalise;
pub use pod_autoscaler::{PodAutoscaler, PodAutoscalerSpec, PodAutoscalerStatus};
pub use policy::{Policy, Power};
pub use scaling::{BoundResources, Hold, ScalingBounds, ScalingConfig, UserMetric};
pub use virtual_machine::{VirtualMachine, VirtualMachineSpec, VirtualMachineStatus};
pub use vm_info::VmInfo;
