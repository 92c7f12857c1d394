//! What the runner may do. On a cluster it is a user without capabilities from the beginning, and so is its QEMU: [`hide`] keeps other
//! processes of that user out. Started by root it is root while it prepares a VM: before the guest runs, and before any data
//! from it is read, it drops all capabilities but [`KEPT`].
//!
//! Capabilities belong to threads, and preparation uses threads that wait for files and programs. It is not forced into
//! a phase without threads, which would make a boot slower. Instead every thread that lives on drops its capabilities
//! (the log's, the one that waits for QEMU, the loop's), those of the pool end as soon as they have nothing to do
//! ([`runtime`]), all later ones inherit from these; and the guest does not run until the kernel confirms that no
//! thread has more.

use std::io;
use std::time::{Duration, Instant};

use neonvm_hypervisor::rights;
use rustix::thread::CapabilitySet;

/// `KILL`: QEMU runs as another user, and is killed when it does not end or its runner does. `DAC_OVERRIDE`: sockets of a migration
/// lie in a directory of that user, and on a local cluster files of the pod may lie below directories of other users.
pub const KEPT: CapabilitySet = CapabilitySet::KILL.union(CapabilitySet::DAC_OVERRIDE);

/// How long a thread of the pool lives without work.
const IDLE: Duration = Duration::from_millis(1);
/// How long is waited for the last of them.
const PATIENCE: Duration = Duration::from_secs(30);

/// Keeps other processes of the same user, QEMU and commands in the container, out of the memory and the open files of this one
/// (`PR_SET_DUMPABLE`); nor is there a dump of it.
pub(crate) fn hide() -> Result<(), String> {
    let hidden = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    hidden.map_err(|error| format!("this process cannot be kept from others of its user: {error}"))
}

/// The runtime for [`crate::run`]. It has one thread, because QEMU is killed when the thread that started it ends, and
/// a VM needs little; and a pool whose threads end with their work.
///
/// # Errors
/// If the kernel has no descriptors left.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().thread_keep_alive(IDLE).build()
}

/// Drops everything else, in all threads.
///
/// # Errors
/// If a thread has more all the same.
pub(crate) async fn give_up() -> Result<(), String> {
    let failed = |error: io::Error| format!("capabilities cannot be given up: {error}");
    rights::give_up(KEPT).map_err(failed)?;
    let until = Instant::now() + PATIENCE;
    loop {
        let left = rights::excess(KEPT).map_err(failed)?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("internal: these threads keep capabilities: {}", left.join(", ")));
        }
        tokio::time::sleep(IDLE).await;
    }
}
