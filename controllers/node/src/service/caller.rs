//! The process at the other end of a connection.
#![expect(unsafe_code, reason = "an option of sockets that no safe library has")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::net::UnixStream;

/// `SO_PEERPIDFD` of `asm-generic/socket.h` (Linux 6.5).
const PEER_PIDFD: c_int = 77;

/// The process that connected.
#[derive(Debug)]
pub(super) struct Caller {
    /// Its number here.
    pub(super) pid: i32,
    pub(super) user: u32,
    /// Itself: numbers are used again.
    process: OwnedFd,
}

impl Caller {
    /// From the kernel, never from what the process sends.
    ///
    /// Before Linux 6.5 the process is found by its number. One that ended after it connected could then be mistaken for a new process
    /// with its number, if the kernel has used all other numbers in the meantime.
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = stream.peer_cred()?;
        let (pid, user) = (credentials.pid().unwrap_or_default(), credentials.uid());
        let Some(number) = Pid::from_raw(pid) else {
            return Err(io::Error::other("it is in another namespace of processes"));
        };
        let process = match peer(stream) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                pidfd_open(number, PidfdFlags::empty())?
            }
            other => other?,
        };
        let caller = Self { pid, user, process };
        if caller.is_alive() { Ok(caller) } else { Err(io::Error::other("it has ended")) }
    }

    /// Whether it has not ended: what was read of its number until now was its own.
    pub(super) fn is_alive(&self) -> bool {
        let mut files = [PollFd::new(&self.process, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut files, Some(&now)), Ok(0))
    }
}

fn peer(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut file: c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of::<c_int>()).unwrap_or_default();
    // SAFETY: the kernel writes at most `length` bytes to the number, which lives that long.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            PEER_PIDFD,
            std::ptr::from_mut(&mut file).cast(),
            &raw mut length,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has opened the descriptor for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}
