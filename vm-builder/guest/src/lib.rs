//! The one static program inside every VM.
//!
//! PID 1 ([`init`]) is a small loop without threads; whatever parses what others send (DHCP, HTTP, SSH, logs) is a
//! child of it, so that a fault there takes nothing else down.

pub mod boot;
pub mod clock;
pub mod config;
pub mod console;
pub mod cpu;
pub mod daemon;
pub mod device;
pub mod files;
pub mod http;
pub mod init;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod monitor;
pub mod mount;
pub mod network;
pub mod process;
pub mod report;
pub mod shell;
pub mod ssh;
pub mod system;
pub mod toolbox;
pub mod tools;
