//! Programs that change the network namespace of the thread that starts them.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Error;

/// Time for a program.
const PROGRAM: Duration = Duration::from_secs(10);

/// Runs a program with text on its standard input; returns what it prints, which must fit into a pipe.
pub(super) fn run(program: &'static str, arguments: &[&str], input: &str) -> Result<String, Error> {
    let failed = |source| Error::System { what: format!("cannot run {program}"), source };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut pipe) = child.stdin.take() {
        pipe.write_all(input.as_bytes()).map_err(failed)?;
    }
    let start = Instant::now();
    while child.try_wait().map_err(failed)?.is_none() {
        if start.elapsed() > PROGRAM {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::Hangs { program });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Program { program, output: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}
