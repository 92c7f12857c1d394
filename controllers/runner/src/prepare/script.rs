//! `spec.initScript`: commands of the VM's author, before anything else is prepared. They run as QEMU's user, which
//! owns nothing but the VM's own disks, with no capability, no variable of the runner and no file that it has open.

use std::process::Stdio;
use std::time::Duration;

use neonvm_hypervisor::machine::Identity;
use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, Command};

use crate::config::PROGRAMS;

/// Longest time for a script.
const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes of its standard error that are kept for the message of a failure.
const KEPT: u64 = 4096;
/// Time for the rest of its standard error, after its end.
const LAST_OUTPUT: Duration = Duration::from_secs(5);

/// Runs a script in a shell.
///
/// # Errors
/// What to report: it cannot be started, it fails, or it does not end in time, whereupon all of its process group is killed.
pub(super) async fn run(text: &str, identity: Option<Identity>) -> Result<(), String> {
    within(text, identity, PATIENCE).await
}

async fn within(text: &str, identity: Option<Identity>, patience: Duration) -> Result<(), String> {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", text])
        .env_clear()
        .env("PATH", PROGRAMS)
        .current_dir("/")
        .process_group(0)
        .kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    if let Some(Identity { user, group }) = identity {
        // Root's supplementary groups are dropped as well.
        command.uid(user).gid(group);
    }
    let mut child = command.spawn().map_err(|error| format!("cannot run /bin/sh: {error}"))?;
    let group = child.id();
    let errors = tokio::spawn(read(child.stderr.take()));
    let ended = tokio::time::timeout(patience, child.wait()).await;
    // What it left behind in the background has no business beside the VM.
    kill(group);
    match ended {
        Err(_) => Err(format!("did not end within {} s", patience.as_secs())),
        Ok(Err(error)) => Err(format!("cannot wait for /bin/sh: {error}")),
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => {
            // A process that left the group may keep standard error open.
            let errors = tokio::time::timeout(LAST_OUTPUT, errors).await;
            let errors = errors.ok().and_then(Result::ok).unwrap_or_default();
            Err(format!("{status}: {}", String::from_utf8_lossy(&errors).trim()))
        }
    }
}

/// The beginning of what it writes to standard error. The rest is read and dropped, or the script would hang.
async fn read(pipe: Option<ChildStderr>) -> Vec<u8> {
    let mut errors = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = (&mut pipe).take(KEPT).read_to_end(&mut errors).await;
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    errors
}

fn kill(group: Option<u32>) {
    let group = group.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::{need, needs};

    use super::*;

    #[tokio::test]
    async fn its_end_and_its_words_are_reported() {
        run("true", None).await.unwrap();
        let error = run("echo 'no such thing' >&2; exit 3", None).await.unwrap_err();
        assert_eq!(error, "exit status: 3: no such thing");
        let error = within("sleep 1000", None, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(error, "did not end within 0 s");
    }

    #[tokio::test]
    async fn what_it_writes_fills_no_memory_and_what_it_leaves_is_killed() {
        let error =
            run("head -c 1000000 /dev/zero | tr '\\0' x >&2; sleep 1000 & exit 1", None).await.unwrap_err();
        assert!(error.len() <= "exit status: 1: ".len() + 4096, "{}", error.len());
    }

    #[tokio::test]
    async fn it_has_no_rights_and_none_of_the_runners_variables() {
        need!(needs::root());
        let identity = Some(Identity { user: 64_055, group: 64_055 });
        let look = "test $(id -u) = 64055 && test \"$(id -G)\" = 64055 && test -z \"$HOME$CARGO_MANIFEST_DIR\" \
            && ! cat /etc/shadow 2>/dev/null && grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status";
        run(look, identity).await.unwrap();
    }
}
