//! What the workload and the services print, on its way to the host.
//!
//! Init makes the pipes and keeps both ends, so that neither side notices a restart of the other. A child of init, the
//! forwarder, copies lines to the log port, or to the console when there is no port.

pub mod forwarder;
pub mod lines;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use neonvm_types::guest::LOG_PORT;
use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, pipe_with};

/// A line on standard error, which init forwards.
pub(crate) fn of_daemon(line: &str) {
    let _ = writeln!(std::io::stderr(), "neonvm-guest daemon: {line}");
}

/// One pipe for each that prints, and the named pipe that stands where the port's link would be.
#[derive(Debug, Default)]
pub struct Pipes {
    /// Reading ends, and writing ends by name.
    readers: Vec<OwnedFd>,
    writers: BTreeMap<String, OwnedFd>,
}

impl Pipes {
    /// The writing end for this name, made if it is not there yet. New ones are seen by a forwarder started later.
    pub fn writer(&mut self, name: &str) -> io::Result<&OwnedFd> {
        if !self.writers.contains_key(name) {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            not_blocking(&reader)?;
            self.readers.push(reader);
            self.writers.insert(name.to_owned(), writer);
        }
        self.writers.get(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Makes the named pipe for programs that write to the port themselves.
    pub fn make_named(&mut self) -> io::Result<()> {
        let directory = Path::new("/dev/virtio-ports");
        fs::create_dir_all(directory)?;
        let path = directory.join(LOG_PORT);
        let _ = fs::remove_file(&path);
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        // Open for both: no writer waits for a reader, and the last writer's leaving is not an end.
        let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path)?;
        self.readers.push(file.into());
        Ok(())
    }

    /// Numbers of the reading ends, for the forwarder.
    pub fn reader_numbers(&self) -> Vec<RawFd> {
        self.readers.iter().map(AsRawFd::as_raw_fd).collect()
    }
}

fn not_blocking(descriptor: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    Ok(rustix::fs::fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)?)
}
