//! What happens in a child between fork and exec. The only unsafe code of the crate.
#![expect(unsafe_code, reason = "code between fork and exec cannot be set without it")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, chdir, getpid, getppid, set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, LinkNameSpaceType, Uid, UnshareFlags, move_into_link_name_space,
    unshare_unsafe,
};

/// Which files a process sees.
#[derive(Debug, Default)]
pub(crate) enum Mounts {
    /// Those of the node.
    #[default]
    Host,
    /// Those of the node, with these files (first) in place of those (second).
    Own(Vec<(CString, CString)>),
    /// Those of another process: its mount namespace.
    Of(OwnedFd),
}

/// Where a process is put before its program runs.
#[derive(Debug, Default)]
pub(crate) struct ProcessPlacement {
    /// `cgroup.procs` of the cgroups it joins, opened for writing.
    pub(crate) cgroups: Vec<OwnedFd>,
    pub(crate) network: Option<OwnedFd>,
    pub(crate) mounts: Mounts,
    /// Changed to once the files are those of the place.
    pub(crate) directory: CString,
    /// Gets the line of `/proc/self/stat` before the program runs: its presence proves that it was started.
    pub(crate) record: Option<OwnedFd>,
    /// The standard input is a terminal, and becomes the controlling one.
    pub(crate) terminal: bool,
    /// User and group that it becomes, for good and without any capability. It is in a separate namespace of processes:
    /// see [`crate::confined`].
    pub(crate) user: Option<u32>,
    /// It is the first process of that namespace, and mounts its `/proc`: the kernel mounts the one of the calling process.
    pub(crate) is_first: bool,
}

impl ProcessPlacement {
    /// Runs in the child: system calls only, no lock is taken, nothing is allocated.
    fn enter(&self, parent: Pid) -> io::Result<()> {
        neonvm_kit::descriptors::close_on_exec()?;
        setsid()?;
        // A parent that is killed now must not leave a process behind without a record.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent in another namespace of processes is not to be seen.
        if self.user.is_none() && getppid() != Some(parent) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        for cgroup in &self.cgroups {
            // Zero stands for the writer.
            rustix::io::write(cgroup, b"0")?;
        }
        if let Some(network) = &self.network {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        match &self.mounts {
            Mounts::Host => {}
            Mounts::Own(files) => {
                // SAFETY: the child has one thread, and shares neither files nor anything else that is unshared here.
                unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
                mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
                for (from, to) in files {
                    mount_bind(from.as_c_str(), to.as_c_str())?;
                }
            }
            Mounts::Of(namespace) => {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
            }
        }
        if !self.directory.as_bytes().is_empty() {
            chdir(self.directory.as_c_str())?;
        }
        if self.terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        if let Some(record) = &self.record {
            let stat = rustix::fs::open(c"/proc/self/stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            let mut line = [0; 1024];
            let length = rustix::io::read(&stat, &mut line)?;
            rustix::io::write(record, line.get(..length).unwrap_or_default())?;
        }
        if self.is_first {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount(c"proc", c"/proc", c"proc", flags, None)?;
        }
        if let Some(user) = self.user {
            self.give_streams(user)?;
            become_user(user)?;
        }
        set_parent_process_death_signal(None)?;
        Ok(())
    }

    /// Pipes and terminals are given to the user, so that the command can open them by name (`/dev/stderr`).
    fn give_streams(&self, user: u32) -> io::Result<()> {
        for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
            let kind = FileType::from_raw_mode(rustix::fs::fstat(stream)?.st_mode);
            if kind == FileType::Fifo || self.terminal && kind == FileType::CharacterDevice {
                rustix::fs::fchown(stream, Some(Uid::from_raw(user)), Some(Gid::from_raw(user)))?;
            }
        }
        Ok(())
    }
}

/// More than any kernel has.
const MOST_CAPABILITIES: u32 = 64;

/// Processes and threads of the user of a command, those of the VM's QEMU included (some hundred): far below what the pod may have, so
/// that a command does not take them from the runner.
const MOST_PROCESSES: u64 = 1024;

/// This process is another user from now on, in no group but its own, without capabilities or a way to get one. Runs in the child.
fn become_user(user: u32) -> io::Result<()> {
    for number in 0..MOST_CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel supports no more.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let most = Rlimit { current: Some(MOST_PROCESSES), maximum: Some(MOST_PROCESSES) };
    setrlimit(Resource::Nproc, most)?;
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Gives this thread, and the processes that it starts, separate mounts and System V IPC; the first of those processes
/// is the first of a new namespace, and all others end with it. The thread can start no threads afterwards.
///
/// # Errors
/// Without `CAP_SYS_ADMIN`.
pub(crate) fn leave() -> io::Result<()> {
    // SAFETY: no descriptors are unshared, which others might rely on to be shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWIPC) }?;
    mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    Ok(())
}

/// Makes a command start its program at a place, in a separate session.
pub(crate) fn place(command: &mut Command, place: ProcessPlacement) {
    let parent = getpid();
    // SAFETY: `ProcessPlacement::enter` is fit for a child between fork and exec, see there.
    unsafe {
        command.pre_exec(move || place.enter(parent));
    }
}

/// A descriptor that the runtime waits on.
pub(crate) fn watched(fd: OwnedFd) -> io::Result<tokio::io::unix::AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by what is returned, which gives it out by reference only and takes it off the
    // runtime's list before it closes it.
    unsafe { tokio::io::unix::AsyncFd::register(fd) }.map_err(Into::into)
}

/// Runs something on a separate thread in a network namespace.
///
/// # Errors
/// If the namespace cannot be entered, or of the work itself.
pub(crate) fn in_network<T: Send + 'static>(
    namespace: OwnedFd,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let inside = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        work()
    };
    // The thread ends with its work: no other work can find itself in a strange namespace.
    let thread = std::thread::Builder::new().name("in-namespace".into()).spawn(inside)?;
    thread.join().map_err(|_| io::Error::other("the work in the namespace failed"))?
}
