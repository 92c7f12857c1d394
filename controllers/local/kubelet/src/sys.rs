//! What happens in a child between fork and exec. The only unsafe code of the crate.
#![expect(unsafe_code, reason = "code between fork and exec cannot be set without it")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, chdir, chroot, getpid, getppid, set_parent_process_death_signal,
    setrlimit, setsid,
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
    /// Those of another process: its mount namespace. With `own_root` the process has one, see [`crate::confined`].
    Of { namespace: OwnedFd, own_root: bool },
}

/// What a process becomes for good.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// User and group.
    pub(crate) id: u32,
    /// Further groups.
    pub(crate) groups: Vec<u32>,
    /// Most processes and threads of this user; `None`: what its cgroup may have.
    pub(crate) most_processes: Option<u64>,
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
    pub(crate) record: Option<Record>,
    /// The standard input is a terminal, and becomes the controlling one.
    pub(crate) terminal: bool,
    /// The user that it becomes, without any capability. It is in a separate namespace of processes: see [`crate::confined`].
    pub(crate) user: Option<User>,
    /// It stays the user of the node, without any capability.
    pub(crate) without_rights: bool,
    /// It is the first process of that namespace, and mounts its `/proc`: the kernel mounts the one of the calling process.
    pub(crate) is_first: bool,
}

/// Where a process writes itself down.
#[derive(Debug)]
pub(crate) struct Record {
    /// The node's `/proc`, in which a process has the number by which the node knows it.
    processes: OwnedFd,
    file: OwnedFd,
}

impl Record {
    /// In a new file.
    ///
    /// # Errors
    /// If `/proc` cannot be opened.
    pub(crate) fn new(file: std::fs::File) -> io::Result<Self> {
        Ok(Self { processes: std::fs::File::open("/proc")?.into(), file: file.into() })
    }

    /// Runs in the child.
    fn write(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let stat = rustix::fs::openat(&self.processes, c"self/stat", flags, Mode::empty())?;
        let mut line = [0; 1024];
        let length = rustix::io::read(&stat, &mut line)?;
        rustix::io::write(&self.file, line.get(..length).unwrap_or_default())?;
        Ok(())
    }
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
            Mounts::Of { namespace, own_root } => {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
                if *own_root {
                    chroot(INSIDE)?;
                    chdir(c"/")?;
                }
            }
        }
        if !self.directory.as_bytes().is_empty() {
            chdir(self.directory.as_c_str())?;
        }
        if self.terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        if let Some(record) = &self.record {
            record.write()?;
        }
        if self.is_first {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount(c"proc", c"/proc", c"proc", flags, None)?;
        }
        if let Some(user) = &self.user {
            self.give_streams(user.id)?;
            become_user(user)?;
        }
        if self.without_rights {
            // Without the right to do so it stays: nothing comes from there without new privileges.
            match empty_bounding_set() {
                Err(rustix::io::Errno::PERM) => {}
                other => other?,
            }
            give_up_rights()?;
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
/// Further groups of a process, at most.
const MOST_GROUPS: usize = 4;

/// This process is another user from now on, in no group but its own and those named, without capabilities or a way to get one. Runs in the
/// child.
fn become_user(user: &User) -> io::Result<()> {
    empty_bounding_set()?;
    if let Some(most) = user.most_processes {
        setrlimit(Resource::Nproc, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    let (uid, gid) = (Uid::from_raw(user.id), Gid::from_raw(user.id));
    // Numbers of groups are what the kernel takes: nothing is allocated.
    let mut groups = [gid; MOST_GROUPS];
    let count = user.groups.len().min(MOST_GROUPS);
    groups.iter_mut().zip(&user.groups).for_each(|(to, from)| *to = Gid::from_raw(*from));
    rustix::thread::set_thread_groups(groups.get(..count).unwrap_or_default())?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    give_up_rights()
}

/// Takes every capability from what this process executes. Runs in the child.
fn empty_bounding_set() -> rustix::io::Result<()> {
    for number in 0..MOST_CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel supports no more.
            Err(rustix::io::Errno::INVAL) => break,
            other => other?,
        }
    }
    Ok(())
}

/// Runs in the child.
fn give_up_rights() -> io::Result<()> {
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    rustix::thread::clear_ambient_capability_set()?;
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

/// The processes that this thread starts are in the namespace of processes of another process from now on. The thread can start no threads
/// afterwards.
///
/// # Errors
/// Without `CAP_SYS_ADMIN`.
pub(crate) fn join_processes(namespace: &OwnedFd) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ProcessID))?)
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

/// The directory of all that the process sees, in an otherwise empty root.
pub(crate) const INSIDE: &std::ffi::CStr = c"root";

/// Whether this process can make roots of pods, see [`crate::confined`]. A node that cannot runs pods as its own user, without capabilities.
pub(crate) fn can_make_roots() -> bool {
    static FOUND: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| {
        // The thread that tries it ends.
        let tried = || std::thread::spawn(leave).join().is_ok_and(|left| left.is_ok());
        rustix::process::geteuid().is_root() && tried()
    })
}
