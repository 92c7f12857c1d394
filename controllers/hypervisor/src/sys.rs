//! What a child does between fork and exec. All unsafe code of this crate is here, in `accelerator::kvm`
//! and in `accelerator::counter`.
#![expect(unsafe_code, reason = "a hook before exec, and a system call that no safe library has")]

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::{Gid, Uid};

/// What a child becomes.
#[derive(Debug)]
pub(crate) struct ChildSetup {
    /// Descriptors it inherits, besides the standard ones.
    pub(crate) inherit: Vec<RawFd>,
    /// User and group, and further groups; `None`: those of the parent.
    pub(crate) identity: Option<(u32, u32, Vec<u32>)>,
    /// The process that starts it.
    pub(crate) parent: Pid,
}

/// Number of capabilities to try: more than any kernel has.
const CAPABILITIES: libc::c_ulong = 64;

/// Makes `command` apply `setup` in its child: a separate session, no rights, killed when the thread that starts it
/// ends.
pub(crate) fn before_exec(command: &mut Command, setup: ChildSetup) {
    let groups: Vec<Gid> =
        setup.identity.iter().flat_map(|(_, _, more)| more).map(|id| Gid::from_raw(*id)).collect();
    let identity =
        setup.identity.as_ref().map(|(user, group, _)| (Uid::from_raw(*user), Gid::from_raw(*group)));
    let hook = move || -> io::Result<()> {
        rustix::process::setsid()?;
        // A dump would hold the memory of the guest.
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(Resource::Core, none)?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        for descriptor in &setup.inherit {
            // SAFETY: the parent holds these descriptors open until exec, so they are open in this copy of it.
            let descriptor = unsafe { BorrowedFd::borrow_raw(*descriptor) };
            rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())?;
        }
        if let Some((user, group)) = identity {
            for capability in 0..CAPABILITIES {
                // SAFETY: takes numbers only. Numbers that the kernel does not support are refused, which is fine.
                unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
            }
            rustix::thread::set_thread_groups(&groups)?;
            rustix::thread::set_thread_res_gid(group, group, group)?;
            // From root to another user: the kernel clears all sets of capabilities.
            rustix::thread::set_thread_res_uid(user, user, user)?;
        }
        rustix::thread::set_no_new_privs(true)?;
        // After the change of user, which clears it.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before that.
        if rustix::process::getppid() != Some(setup.parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: the hook calls the kernel directly, allocates nothing and takes no lock, so it may run after a fork of a
    // process with threads.
    unsafe { command.pre_exec(hook) };
}
