//! Children that end with their parent.
#![expect(unsafe_code, reason = "code between fork and exec cannot be set without it")]

use tokio::process::Command;

/// Makes a child that the kernel kills when the thread that starts it ends. The thread must live as long as the process:
/// it is the caller's business to spawn from such a thread.
pub(crate) fn dies_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec the closure only makes system calls; it takes no lock and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            neonvm_kit::descriptors::close_on_exec()?;
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // The parent may have ended before the signal was set.
            if rustix::process::getppid() == Some(parent) {
                Ok(())
            } else {
                Err(std::io::Error::from(rustix::io::Errno::SRCH))
            }
        });
    }
}
