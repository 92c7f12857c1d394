//! A pseudo-terminal for a command.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;

/// Our side of a terminal.
#[derive(Debug)]
pub(super) struct Terminal(AsyncFd<OwnedFd>);

/// A terminal: our side, and the side that a command gets.
pub(super) fn open() -> io::Result<(Terminal, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name.as_c_str(), flags, Mode::empty())?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((Terminal(crate::sys::watched(ours)?), theirs))
}

impl Terminal {
    /// Reads what the command wrote; nothing once it is gone.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> usize {
        loop {
            let Ok(mut ready) = self.0.readable().await else { return 0 };
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref().as_fd(), &mut *buffer)?));
            match read {
                Ok(Ok(count)) => return count,
                // The other side was closed.
                Ok(Err(_)) => return 0,
                Err(_would_block) => {}
            }
        }
    }

    /// Types bytes.
    pub(super) async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.0.writable().await?;
            if let Ok(written) = ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref().as_fd(), bytes)?)) {
                bytes = bytes.get(written?..).unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Sets the size of the command's window; the kernel notifies the command.
    pub(super) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let _ = tcsetwinsize(self.0.get_ref(), size);
    }
}
