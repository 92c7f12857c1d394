//! Commands in the guest, by this program's own `vm ssh`.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use crate::args::place::Place;
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};

/// Most bytes of an output that are read.
const KEPT: u64 = 1 << 20;
/// Last lines of a failed command that are shown.
const LINES: usize = 2;

pub(super) struct Guest {
    program: PathBuf,
    arguments: Vec<String>,
}

impl Guest {
    /// None where `ssh` is not installed.
    pub(super) fn from_env(env: &Env, place: &Place, vm: &str) -> Result<Option<Self>> {
        if env.program("ssh").is_none() {
            return Ok(None);
        }
        let program = std::env::current_exe()
            .map_err(|error| Error::new(Code::Failed, "cannot find this program").cause(reason(&error)))?;
        let words = ["vm", "ssh", vm].map(str::to_owned).into_iter();
        let arguments = words.chain(place.words()).collect();
        Ok(Some(Self { program, arguments }))
    }

    /// Starts a script of the guest's shell. It gets the end of its input when the child is dropped.
    pub(super) fn start(&self, script: &str) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(["--", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().map_err(|error| Error::new(Code::Failed, "cannot start vm ssh").cause(reason(&error)))
    }

    /// Runs a script to its end; what it printed, or an error with its last lines.
    pub(super) async fn run(&self, script: &str, limit: Duration) -> Result<String> {
        let mut child = self.start(script)?;
        drop(child.stdin.take());
        let ended = tokio::time::timeout(limit, async {
            let (out, errors) = (child.stdout.take(), child.stderr.take());
            let (out, errors) = tokio::join!(read(out), read(errors));
            (child.wait().await, out, errors)
        });
        let failed = || Error::new(Code::Failed, "a command in the guest failed");
        match ended.await {
            Ok((Ok(status), out, _)) if status.success() => Ok(out),
            Ok((_, out, errors)) => Err(failed().cause(last_lines(&errors, &out))),
            Err(_) => Err(Error::new(Code::Timeout, format!("a command in the guest runs for {limit:?}"))),
        }
    }
}

/// Why a child that should still run has ended; none if it runs.
pub(super) async fn ended(child: &mut Child) -> Option<String> {
    let status = child.try_wait().ok()??;
    let errors = read(child.stderr.take()).await;
    Some(last_lines(&errors, &status.to_string()))
}

async fn read(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What was read before an error is kept.
        let _ = stream.take(KEPT).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last lines that are not empty, of the first text that has some.
fn last_lines(errors: &str, other: &str) -> String {
    let lines = |text: &str| {
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let first = lines.len().saturating_sub(LINES);
        lines.get(first..).map(|last| last.join(" | ")).filter(|last| !last.is_empty())
    };
    lines(errors).or_else(|| lines(other)).unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_in_the_last_lines() {
        assert_eq!(last_lines("a\nb\nc\n\n", "d"), "b | c");
        assert_eq!(last_lines("", "x\n y"), "x | y");
        assert_eq!(last_lines(" \n", ""), "without a message");
    }
}
