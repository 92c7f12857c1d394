//! `vm ssh`

pub(super) mod agent;
pub(super) mod session;

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use session::{Client, Door};
use tokio::net::unix::pipe::{OpenOptions, Receiver};

use crate::args::vm::Ssh;
use crate::env::Env;
use crate::error::Result;
use crate::render::Shown;
use crate::report::Report;
use crate::settings::Settings;

pub(crate) fn run(env: &Env, settings: &Settings, args: &Ssh) -> Result<Report> {
    let door = Door { name: &args.name, port: args.port, identity: args.identity.as_deref() };
    let mut client = Client::open(env, settings, "ssh", &door)?;
    for forward in &args.local_forward {
        client.command.args(["-L", forward]);
    }
    let mut words = vec!["-l".to_owned(), args.login.clone(), args.name.clone()];
    words.extend(args.command.iter().cloned());
    Ok(client.report(words))
}

/// How ssh speaks of a host key it has not seen before, which ours never is.
const NEW_HOST_KEY: &str = "Warning: Permanently added ";

/// The file that `ssh -E` writes to: a pipe, read as it is written.
#[derive(Debug)]
struct Words {
    pipe: Receiver,
    path: PathBuf,
    /// A line that is not whole yet.
    line: Vec<u8>,
    /// Holds the pipe's name.
    _directory: tempfile::TempDir,
}

impl Words {
    /// # Errors
    /// When there is no room for temporary files; ssh then speaks for itself.
    fn open() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("neonctl-ssh-").tempdir()?;
        let path = directory.path().join("words");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // Open for writing, too: otherwise it would be at its end until ssh opens it, and again whenever ssh closes it.
        let pipe = OpenOptions::new().read_write(true).open_receiver(&path)?;
        Ok(Self { pipe, path, line: Vec::new(), _directory: directory })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the messages of ssh to standard error, for as long as this is waited for.
    async fn pass_on(&mut self) -> Infallible {
        loop {
            if self.pipe.readable().await.is_err() {
                return std::future::pending().await;
            }
            self.rest();
        }
    }

    /// The same for what is there already.
    fn rest(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = self.pipe.try_read(&mut buffer) {
            let text = self.whole_lines(buffer.get(..count).unwrap_or_default());
            crate::render::errors(&Shown::text(&text));
        }
    }

    /// The lines that are whole with these bytes, but for those about the host key.
    fn whole_lines(&mut self, bytes: &[u8]) -> String {
        let mut lines = String::new();
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
            self.line.clear();
            if !line.starts_with(NEW_HOST_KEY) {
                lines += &format!("{line}\n");
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_whole_and_do_not_speak_of_the_host_key() {
        let mut words = Words::open().unwrap();
        assert_eq!(words.whole_lines(b"Warning: Permanently added 'pg' (ED25519) to the list"), "");
        assert_eq!(words.whole_lines(b" of known hosts.\r\nConnection clo"), "");
        assert_eq!(words.whole_lines(b"sed by UNKNOWN\r\nA"), "Connection closed by UNKNOWN\n");
    }
}
