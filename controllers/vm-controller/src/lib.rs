//! The controller of virtual machines: the shell around `neonvm-core-vm-lifecycle`, and the admission webhooks.
//!
//! Watches keep a cache of VMs, pods and secrets ([`cache`]) and of migrations ([`migration`]); each runner reports its
//! state over a separate stream ([`link`]). Each change puts the VM's key into a queue ([`queue`]); a worker steps the
//! core until nothing is left to do ([`reconcile`]). Nothing is polled and nothing is written twice: once converged
//! there is no traffic at all.

mod act;
mod addresses;
mod authority;
mod cache;
mod cert_manager;
mod claims;
mod clock;
mod cluster;
mod config;
mod growth;
mod key_state;
mod lag;
mod link;
mod metrics;
mod migration;
mod note;
mod policy;
mod preemption;
mod reconcile;
mod reconciler;
mod renewal;
mod request;
mod requests;
mod run;
mod ssh;
mod state;
mod watch;
mod webhook;

pub use addresses::{AddressConfig, AddressSource};
pub use config::{Config, Registration, WebhookConfig, WebhookScope};
pub use neonvm_core_vm_lifecycle::RootDiskFrom;
pub use neonvm_kit::webhook::Client as WebhookClient;
pub use run::{Error, run, run_with};
