//! The scheduler: permits growth of VMs, places pods, migrates VMs away from nodes that are too full.
//!
//! The shell around [`neonvm_core_scheduling::permits`]. Watches keep its state ([`watch`]); agents send requests over
//! mutual TLS ([`serve`]); pods are placed either by us ([`bind`]), on clusters without another scheduler, or by a
//! stock kube-scheduler that calls us as its extender ([`extender`]). What has to be written is written after
//! ([`write`]). Of several replicas one leads ([`run`]); the others keep their state warm and answer 503. Nothing is
//! polled.

mod bind;
mod claims;
mod config;
mod dump;
mod extender;
mod forward;
mod metrics;
mod metrics_page;
mod run;
mod serve;
mod shared;
mod watch;
mod write;

pub use config::file::{FileErrors, apply as apply_file};
pub use config::{Config, Mode};
pub use forward::{Forward, forward, forward_with};
pub use run::{Error, Local, Running, run, start, start_with};
