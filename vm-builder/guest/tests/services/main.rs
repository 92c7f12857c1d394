//! The daemon, its metrics, SSH and the shell, as processes of the program that goes into VMs.

mod api;
mod hostile;
mod metrics;
mod process;
mod ssh;
