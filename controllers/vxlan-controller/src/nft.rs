//! The program `nft`: a script takes effect as a whole, or not at all.

use std::io::{self, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time for the program.
const DEADLINE: Duration = Duration::from_secs(10);

/// Runs a script in the namespace of this thread; blocks.
pub(crate) fn run(script: &str) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("nft: {error}"));
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(named)?;
    if let Some(mut pipe) = child.stdin.take() {
        // nft may exit before it has read everything; its exit code shows the failure.
        let _ = pipe.write_all(script.as_bytes());
    }
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(named)? {
            break status;
        }
        if start.elapsed() > DEADLINE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::new(io::ErrorKind::TimedOut, "nft took more than 10 s"));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if status.success() {
        return Ok(());
    }
    let mut errors = String::new();
    if let Some(mut pipe) = child.stderr.take() {
        let _ = pipe.read_to_string(&mut errors);
    }
    Err(io::Error::other(format!("nft: {}", errors.trim())))
}
