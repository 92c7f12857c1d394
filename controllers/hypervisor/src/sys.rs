//! What a child does between fork and exec. All unsafe code of this crate is here, in `accelerator::kvm`,
//! `accelerator::counter`, `landlock` and `tap`.
#![expect(unsafe_code, reason = "a hook before exec, and a system call that no safe library has")]

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::landlock::Domain;
use rustix::process::{Pid, Resource, Rlimit, Signal};

#[derive(Debug)]
pub(crate) struct ChildSetup {
    /// Descriptors it inherits, besides the standard ones.
    pub(crate) inherit: Vec<RawFd>,
    /// The process that starts it.
    pub(crate) parent: Pid,
    /// What it may open by name; `None`: what its user may.
    pub(crate) domain: Option<Domain>,
}

/// Makes `command` apply `setup` in its child: a separate session, no rights, killed when the thread that starts it
/// ends.
pub(crate) fn before_exec(command: &mut Command, setup: ChildSetup) {
    let hook = move || -> io::Result<()> {
        rustix::process::setsid()?;
        // A dump would hold the memory of the guest.
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(Resource::Core, none)?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        close_on_exec()?;
        for descriptor in &setup.inherit {
            // SAFETY: the parent holds these descriptors open until exec, so they are open in this copy of it.
            let descriptor = unsafe { BorrowedFd::borrow_raw(*descriptor) };
            rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())?;
        }
        crate::rights::give_up()?;
        if let Some(domain) = &setup.domain {
            domain.enter()?;
        }
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

/// Descriptors that others opened stay in this process: the child inherits what is named to it, see `inherit`.
fn close_on_exec() -> io::Result<()> {
    // SAFETY: takes numbers only, and closes nothing here.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::process::Stdio;

    use super::*;

    fn child(script: &str, setup: impl FnOnce(ChildSetup) -> ChildSetup) -> io::Result<String> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stderr(Stdio::null());
        let parent = rustix::process::getpid();
        before_exec(&mut command, setup(ChildSetup { inherit: Vec::new(), parent, domain: None }));
        Ok(String::from_utf8(command.output()?.stdout).unwrap())
    }

    #[test]
    fn a_child_has_the_descriptors_that_it_is_given_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str| std::fs::File::create(directory.path().join(name)).unwrap();
        let (given, foreign) = (open("given"), open("foreign"));
        // As a shell leaves it to the programs that it starts.
        rustix::io::fcntl_setfd(&foreign, rustix::io::FdFlags::empty()).unwrap();
        let inherit = vec![given.as_raw_fd()];
        let seen = child("ls -l /proc/self/fd", |setup| ChildSetup { inherit, ..setup }).unwrap();
        assert!(seen.contains("/given") && !seen.contains("/foreign"), "{seen}");
    }

    /// Of root as well.
    #[test]
    fn a_child_has_no_capability() {
        let seen = child("grep -E '^(Cap(Inh|Prm|Eff|Amb)|NoNew)' /proc/self/status", |setup| setup).unwrap();
        let none = "0000000000000000";
        let sets = ["CapInh", "CapPrm", "CapEff", "CapAmb"].map(|set| format!("{set}:\t{none}\n"));
        assert_eq!(seen, sets.concat() + "NoNewPrivs:\t1\n");
    }
}
