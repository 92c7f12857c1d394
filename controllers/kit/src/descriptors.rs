//! Descriptors that a process has from who started it, such as a shell with `7<file`: no service uses one, and none may reach a guest
//! or a tenant's command.
#![expect(unsafe_code, reason = "a system call that no safe library has")]

use std::io;

/// The first one after input, output and errors.
const FIRST: libc::c_uint = 3;

/// Closes what this process inherited, except for the standard streams. For the first line of a program: nothing is open yet that
/// belongs to it.
///
/// # Errors
/// If the kernel is older than 5.9.
pub fn close_inherited() -> io::Result<()> {
    close_range(0)
}

/// Keeps every descriptor of this process, except for the standard streams, from the programs that it starts. A single system call,
/// which may be made between fork and exec.
///
/// # Errors
/// If the kernel is older than 5.11.
pub fn close_on_exec() -> io::Result<()> {
    close_range(libc::CLOSE_RANGE_CLOEXEC)
}

fn close_range(flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: takes numbers only. What it closes has no owner in this process: see `close_inherited`.
    match unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_program_gets_no_descriptor_that_lacks_the_flag() {
        let file = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        let has_it = || {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            std::process::Command::new("test").args(["-e", &path]).status().unwrap().success()
        };
        assert!(has_it());
        close_on_exec().unwrap();
        assert!(!has_it());
        assert!(file.metadata().is_ok(), "it stays open here");
    }
}
