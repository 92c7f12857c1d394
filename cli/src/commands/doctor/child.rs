//! Programs that are asked something: ended after a while, whatever they do.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::connect::block_on;
use crate::error::{Code, Error, Result, reason};

/// Most of an answer that is read, in bytes.
const LONGEST: u64 = 64 << 10;

pub(super) struct ProgramOutput {
    pub(super) success: bool,
    pub(super) text: String,
    /// The first line of standard error.
    pub(super) complaint: String,
}

/// Runs a program to its end; kills it at the deadline.
pub(super) fn ask(program: &Path, arguments: &[&str], deadline: Duration) -> Result<ProgramOutput> {
    block_on(async {
        let failed = |error: std::io::Error| {
            Error::new(Code::Failed, format!("{} does not start: {}", program.display(), reason(&error)))
        };
        let mut command = tokio::process::Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let all = async { tokio::join!(read(stdout), read(stderr), child.wait()) };
        match tokio::time::timeout(deadline, all).await {
            Ok((text, errors, ended)) => Ok(ProgramOutput {
                success: ended.is_ok_and(|status| status.success()),
                text,
                complaint: errors.lines().next().unwrap_or_default().trim().to_owned(),
            }),
            Err(_) => {
                Err(Error::new(Code::Timeout, format!("it was stopped after {} s", deadline.as_secs())))
            }
        }
    })
}

async fn read<R: tokio::io::AsyncRead + Unpin>(stream: Option<R>) -> String {
    use tokio::io::AsyncReadExt as _;
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What came before an error is the answer.
        let _ = stream.take(LONGEST).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended() {
        let error = ask(Path::new("/bin/sleep"), &["1000"], Duration::from_millis(50)).err().unwrap();
        assert_eq!(error.code, Code::Timeout);
    }

    #[test]
    fn answers_and_complaints() {
        let answer =
            ask(Path::new("/bin/sh"), &["-c", "echo out; echo err >&2; exit 3"], Duration::from_secs(60))
                .unwrap();
        assert_eq!(
            (answer.success, answer.text.as_str(), answer.complaint.as_str()),
            (false, "out\n", "err")
        );
        assert!(ask(Path::new("/no/such/program"), &[], Duration::from_secs(60)).is_err());
    }
}
