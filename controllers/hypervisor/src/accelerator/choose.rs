//! The choice.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::Accelerator;
use super::cache::{self, Key};
use super::probe::ProbeResult;
use crate::patience::scaled;

/// The one file that QEMU opens itself.
const DEVICE: &str = "/dev/kvm";
/// How long the process that probes may take.
pub const PROBE_DEADLINE: Duration = Duration::from_secs(2);

pub use neonvm_types::Accelerator as Request;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Accelerator that was chosen.
    pub accelerator: Accelerator,
    /// Why it is not KVM although that was welcome, as a sentence; empty if it is the requested one.
    pub note: String,
}

/// Why there is no accelerator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// KVM was requested and does not run guests.
    #[error("KVM was asked for, but {0}")]
    NoKvm(String),
}

/// Chooses. `probe` is a command that prints the line of [`super::probe::run_in_this_process`]; its result is kept in `kept`
/// until the next boot. Takes at most [`PROBE_DEADLINE`].
///
/// # Errors
/// If KVM was requested and does not run guests.
pub async fn choose(
    request: Request,
    probe: &[OsString],
    kept: Option<&Path>,
) -> Result<Chosen, ChooseError> {
    let tcg = |note: String| Chosen { accelerator: Accelerator::Tcg, note };
    if request == Request::Tcg {
        return Ok(tcg(String::new()));
    }
    match (usable(Path::new(DEVICE), probe, kept, scaled(PROBE_DEADLINE)).await, request) {
        (Ok(()), _) => Ok(Chosen { accelerator: Accelerator::Kvm, note: String::new() }),
        (Err(reason), Request::Kvm) => Err(ChooseError::NoKvm(reason)),
        (Err(reason), _) => Ok(tcg(format!("{reason}; using TCG"))),
    }
}

/// Whether the device runs guests, or why not.
async fn usable(
    device: &Path,
    probe: &[OsString],
    kept: Option<&Path>,
    deadline: Duration,
) -> Result<(), String> {
    // Rights are those of now, not those of when it was probed.
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open(device) {
        return Err(match error.kind() {
            std::io::ErrorKind::NotFound => format!("there is no {}", device.display()),
            _ => format!("{} cannot be opened: {error}", device.display()),
        });
    }
    let key = Key::now(device);
    let known = kept.zip(key.as_ref()).and_then(|(directory, key)| cache::read(directory, key));
    let result = match known {
        Some(result) => result,
        None => {
            let fresh = run(probe, deadline).await;
            // What was no answer of the probe itself may be another one next time.
            if let (Ok(result), Some(directory), Some(key)) = (&fresh, kept, key) {
                cache::write(directory, key, result);
            }
            fresh.unwrap_or_else(|reason| ProbeResult { usable: false, reason, micros: 0 })
        }
    };
    if result.usable {
        return Ok(());
    }
    Err(format!("{} opens but does not run guest code: {}", device.display(), result.reason))
}

async fn run(probe: &[OsString], deadline: Duration) -> Result<ProbeResult, String> {
    let Some((program, arguments)) = probe.split_first() else {
        return Err("there is no command to probe it".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(deadline, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("the probe {} does not start: {error}", program.display())),
        Err(_) => return Err(format!("the probe hung for {} s", deadline.as_secs())),
    };
    let mut lines = output.stdout.split(|byte| *byte == b'\n');
    let answer = lines.find_map(|line| serde_json::from_slice(line).ok());
    answer.ok_or_else(|| format!("the probe ended without an answer ({})", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For what answers, however slow the machine is.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Vec<OsString> {
        ["sh", "-c", script].map(OsString::from).into()
    }

    const YES: &str = r#"echo '{"usable":true,"reason":"","micros":1}'"#;
    const NO: &str = r#"echo '{"usable":false,"reason":"stuck","micros":1}'"#;

    #[tokio::test]
    async fn tcg_needs_no_probe() {
        let chosen = choose(Request::Tcg, &[], None).await.unwrap();
        assert_eq!(chosen, Chosen { accelerator: Accelerator::Tcg, note: String::new() });
    }

    #[tokio::test]
    async fn the_answer_decides_and_is_kept() {
        let device = Path::new("/dev/null");
        let directory = tempfile::tempdir().unwrap();
        let kept = Some(directory.path());
        assert_eq!(
            usable(device, &shell(NO), kept, PATIENCE).await,
            Err("/dev/null opens but does not run guest code: stuck".to_owned())
        );
        assert!(usable(device, &shell(YES), kept, PATIENCE).await.is_err(), "it was kept");
        std::fs::write(directory.path().join("kvm-probe.json"), "garbage").unwrap();
        assert_eq!(usable(device, &shell(YES), kept, PATIENCE).await, Ok(()));
        assert_eq!(usable(device, &shell("exit 1"), kept, PATIENCE).await, Ok(()), "it was kept");
    }

    #[tokio::test]
    async fn failures_of_the_probe_are_reported_and_not_cached() {
        let device = Path::new("/dev/null");
        let directory = tempfile::tempdir().unwrap();
        for (command, deadline, part) in [
            (shell("kill -9 $$"), PATIENCE, "ended without an answer (signal: 9"),
            (shell("echo nonsense"), PATIENCE, "ended without an answer"),
            (shell("exec sleep 1000"), PROBE_DEADLINE, "hung for 2 s"),
            (vec!["/no/such/program".into()], PATIENCE, "does not start"),
            (vec![], PATIENCE, "no command"),
        ] {
            let reason = usable(device, &command, Some(directory.path()), deadline).await.unwrap_err();
            assert!(reason.contains(part), "{reason}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let reason = usable(Path::new("/no/kvm"), &shell(YES), None, PATIENCE).await.unwrap_err();
        assert_eq!(reason, "there is no /no/kvm");
    }

    #[test]
    fn requests_are_words() {
        assert_eq!("auto".parse(), Ok(Request::Auto));
        assert!("hvf".parse::<Request>().is_err());
    }
}
