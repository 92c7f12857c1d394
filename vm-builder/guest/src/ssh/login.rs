//! The step between the server and what a client runs: takes the user's identity, then becomes the program.
//!
//! `neonvm-guest ssh --login UID GID GROUPS TTY HOME PROGRAM NAME [ARGUMENT…]`, with GROUPS joined by commas and TTY
//! `tty` or `-`. It is a separate program so that it has one thread, and needs no code between fork and exec.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::Error;

/// Becomes the program; returns only if it could not. Standard input is the terminal, if there is one.
///
/// # Errors
/// What could not be done.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    let [uid, gid, groups, tty, home, program, name, rest @ ..] = arguments else {
        return Err(Error::Usage("--login UID GID GROUPS TTY HOME PROGRAM NAME [ARGUMENT…]".into()));
    };
    let number = |text: &str| {
        // The last number means "leave it" to the kernel.
        text.parse().ok().filter(|id| *id != u32::MAX).ok_or_else(|| Error::Usage(format!("bad id {text:?}")))
    };
    let (uid, gid) = (Uid::from_raw(number(uid)?), Gid::from_raw(number(gid)?));
    let groups =
        groups.split(',').map(|group| number(group).map(Gid::from_raw)).collect::<Result<Vec<_>, _>>()?;
    crate::limits::join_sessions();
    rustix::process::setsid().map_err(Error::system("start a session"))?;
    if tty == "tty" {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())
            .map_err(Error::system("take the terminal"))?;
    }
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        // A program that opens /dev/stdout opens the pipe again, for which it must be its owner.
        let pipe = rustix::fs::fstat(stream).is_ok_and(|status| {
            rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::Fifo
        });
        if pipe {
            let _ = rustix::fs::fchown(stream, Some(uid), Some(gid));
        }
    }
    let current = (rustix::process::getuid(), rustix::process::getgid());
    if current != (uid, gid) || uid.is_root() {
        set_thread_groups(&groups).map_err(Error::system("take the groups"))?;
        set_thread_res_gid(gid, gid, gid).map_err(Error::system("take the group"))?;
        set_thread_res_uid(uid, uid, uid).map_err(Error::system("take the user"))?;
    }
    if std::env::set_current_dir(home).is_err() {
        std::env::set_current_dir("/").map_err(Error::system("change to /"))?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    crate::system::reset_ignored_signals();
    let error = Command::new(program).arg0(name).args(rest).exec();
    Err(Error::System { what: "run the program", source: error })
}
