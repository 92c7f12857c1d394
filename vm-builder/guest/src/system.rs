//! The system calls that have no safe wrapper in a library we use. All unsafe code of this crate is here, but
//! for the allocator's (`daemon::memory`).
#![allow(unsafe_code, reason = "the one place for system calls without a safe wrapper")]

use std::ffi::CString;
use std::io;
use std::io::Write as _;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;
use tokio::io::unix::AsyncFd;

/// `_IOW('f', 16, __u64)`: grow an ext4 file system to this many blocks.
const EXT4_IOC_RESIZE_FS: libc::c_ulong = 0x4008_6610;
/// `FIFREEZE` and `FITHAW`.
const FREEZE: libc::c_ulong = 0xC004_5877;
const THAW: libc::c_ulong = 0xC004_5878;
/// `SWAP_FLAG_DISCARD`.
const SWAP_FLAG_DISCARD: libc::c_int = 0x1_0000;
/// `QIF_LIMITS`: the limits of blocks and inodes are valid.
const QUOTA_LIMITS_VALID: u32 = 5;
/// `QCMD(Q_SETQUOTA, PRJQUOTA)`.
const SET_PROJECT_QUOTA: libc::c_uint = (0x0080_0008 << 8) | 2;
/// Signals PID 1 reads from its descriptor.
pub const INIT_SIGNALS: [i32; 8] = [
    libc::SIGCHLD,
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGPWR,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGHUP,
    libc::SIGQUIT,
];

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn path(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: `sigset_t` is plain data, and `sigemptyset` makes it whole before it is read.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

/// Blocks the signals and gives a descriptor (not blocking, closed on exec) from which they are read.
pub fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = signal_set(signals);
    // SAFETY: `set` outlives both calls; the descriptor is new and ours.
    unsafe {
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))?;
        let descriptor = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        check(descriptor)?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Numbers of the signals in the bytes read from a [`signal_descriptor`].
pub fn signals_read(bytes: &[u8]) -> Vec<i32> {
    let size = std::mem::size_of::<libc::signalfd_siginfo>();
    bytes
        .chunks_exact(size)
        .filter_map(|record| record.first_chunk::<4>())
        .map(|number| i32::from_ne_bytes(*number))
        .collect()
}

/// Blocks no signal any more.
pub fn unblock_signals() -> io::Result<()> {
    let set = signal_set(&[]);
    // SAFETY: `set` outlives the call.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) })
}

/// Gives signals that were ignored when this process was started their usual effect again: programs inherit that they are ignored,
/// and a shell with interrupts ignored cannot be interrupted.
pub fn reset_ignored_signals() {
    for number in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGPIPE, libc::SIGTERM, libc::SIGTSTP] {
        // SAFETY: the usual effect runs no code of this process.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// None is blocked, as every program expects.
    Unblocked,
    /// They stay blocked: the child reads them from a descriptor, and one that comes before that is not lost.
    Inherited,
}

/// Lets `prepare` run in the child between fork and exec. It must only make system calls: no allocation, no locks.
pub fn before_exec(
    command: &mut Command,
    signals: Signals,
    mut prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: the callers are in this crate and pass closures that make system calls on data prepared before the fork;
    // the process that forks has one thread, so no lock can be held by another.
    unsafe {
        command.pre_exec(move || {
            if signals == Signals::Unblocked {
                unblock_signals()?;
            }
            prepare()
        });
    }
}

/// A descriptor by number. None if it cannot be one. The descriptor must stay open as long as it is used; one that is
/// closed is answered by the kernel with `EBADF`.
pub fn borrow(number: RawFd) -> Option<BorrowedFd<'static>> {
    // SAFETY: -1 is refused; a closed descriptor is an error of the call, never a fault of memory.
    (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
}

/// Takes over a descriptor this process was started with.
pub fn adopt(number: RawFd) -> Option<OwnedFd> {
    let descriptor = borrow(number)?;
    rustix::io::fcntl_getfd(descriptor).ok()?;
    // SAFETY: it is open, and by our own convention the number was given to this process to own.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Has the event loop watch a descriptor. To be called inside of it.
pub fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor belongs to the result, which closes it after it was taken out of the loop.
    Ok(unsafe { AsyncFd::register(descriptor)? })
}

/// Binds a socket to a network interface.
pub fn bind_to_interface(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let length = libc::socklen_t::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
    // SAFETY: the kernel reads `length` bytes of the name during the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, name.as_ptr().cast(), length) })
}

/// A signal by number, 1–64.
pub fn signal(number: i32) -> Option<Signal> {
    // SAFETY: the number is only passed to `kill`, which takes any; 32 and 33, the C library's own, are refused.
    (matches!(number, 1..=31 | 34..=64)).then(|| unsafe { Signal::from_raw_unchecked(number) })
}

/// Sends a signal to every process but this one.
pub fn signal_all_processes(number: i32) {
    // SAFETY: no memory is involved. A failure means that there was no other process.
    let _ = unsafe { libc::kill(-1, number) };
}

/// Grows the ext4 file system of which `directory` is open to `blocks` blocks of the file system's size.
///
/// # Errors
/// The kernel's error: `EINVAL` if it would shrink, `EOPNOTSUPP` without room for group descriptors.
pub fn grow_ext4(directory: BorrowedFd<'_>, blocks: u64) -> io::Result<()> {
    // SAFETY: the request reads a u64 through the pointer, which outlives the call.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), EXT4_IOC_RESIZE_FS, &raw const blocks) })
}

/// Freezes the file system of which `directory` is open, or thaws it.
///
/// # Errors
/// The kernel's error: `EBUSY` if it is frozen already, `EINVAL` if it is not frozen, `EOPNOTSUPP` for kinds that cannot be.
pub fn freeze(directory: BorrowedFd<'_>, freeze: bool) -> io::Result<()> {
    let request = if freeze { FREEZE } else { THAW };
    // SAFETY: the kernel does not use the argument.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), request, 0) })
}

/// Turns swap on, with discard.
pub fn swap_on(device: &str) -> io::Result<()> {
    let device = path(device)?;
    // SAFETY: the string outlives the call.
    check(unsafe { libc::swapon(device.as_ptr(), SWAP_FLAG_DISCARD) })
}

/// Turns swap off; its pages go back to memory.
///
/// # Errors
/// The kernel's error: `EINVAL` if it was not on.
pub fn swap_off(device: &str) -> io::Result<()> {
    let device = path(device)?;
    // SAFETY: the string outlives the call.
    check(unsafe { libc::swapoff(device.as_ptr()) })
}

/// Limits the space of project 0 of the file system mounted at `directory`, in KiB; 0: no limit.
///
/// # Errors
/// The kernel's error: `ESRCH` if quotas are off.
pub fn limit_project_quota(directory: BorrowedFd<'_>, kibibytes: u64) -> io::Result<()> {
    // SAFETY: `dqblk` is plain data; the kernel reads it during the call.
    unsafe {
        let mut limits: libc::dqblk = std::mem::zeroed();
        limits.dqb_bhardlimit = kibibytes;
        limits.dqb_valid = QUOTA_LIMITS_VALID;
        let result = libc::syscall(
            libc::SYS_quotactl_fd,
            directory.as_raw_fd(),
            SET_PROJECT_QUOTA,
            0_u32,
            &raw mut limits,
        );
        check(if result < 0 { -1 } else { 0 })
    }
}

/// Writes to standard error; the status of a failed command.
pub fn refuse(message: &str) -> u8 {
    let _ = writeln!(std::io::stderr(), "{message}");
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signals_the_kernel_knows_are_sent() {
        assert!(signal(15).is_some() && signal(64).is_some());
        for number in [-1, 0, 32, 33, 65] {
            assert!(signal(number).is_none(), "{number}");
        }
    }

    #[test]
    fn half_a_signal_record_is_none() {
        assert!(signals_read(&[1; 100]).is_empty());
        let mut record = vec![0; 128];
        record[0] = 17;
        assert_eq!(signals_read(&record), [17]);
    }
}
