//! A command whose result matters and whose output is only shown in messages.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;

/// Bytes kept of what a command writes to both outputs together, as kubelet does.
pub(super) const MOST: usize = 10 << 10;
/// How long the rest of the output is read after the command has ended: a process that it left behind may hold the
/// pipe open. Short, because it counts towards the timeout of a probe, which is 1 s by default.
const AFTERWARDS: Duration = Duration::from_millis(100);

/// A command that leads its own process group. Dropped before its end, the whole group is killed.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // There is no id once the command was waited for: its number may then belong to another process.
        let group = self.0.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// Makes a command one for [`run`].
pub(super) fn streams(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
}

/// Waits for the end of a command that was started with [`streams`]; returns its status and the first [`MOST`] bytes of its output. All
/// output is read, so that the command never waits for a reader. If the future is dropped, the command's process group is killed: the
/// command has to lead one.
///
/// # Errors
/// If the command cannot be waited for.
pub(super) fn run(child: Child) -> impl Future<Output = io::Result<(ExitStatus, Vec<u8>)>> + Send {
    // Now, not at the first poll: the future may be dropped before it.
    wait(Group(child))
}

async fn wait(mut child: Group) -> io::Result<(ExitStatus, Vec<u8>)> {
    let kept = Mutex::new(Vec::new());
    let (output, errors) = (child.0.stdout.take(), child.0.stderr.take());
    let status = {
        let drained = async { tokio::join!(drain(output, &kept), drain(errors, &kept)) };
        tokio::pin!(drained);
        tokio::select! {
            status = child.0.wait() => {
                // What others hold open is not waited for.
                let _ = tokio::time::timeout(AFTERWARDS, drained).await;
                status?
            }
            _ = &mut drained => child.0.wait().await?,
        }
    };
    Ok((status, kept.into_inner()))
}

/// Reads to the end, and keeps what there is room for.
async fn drain(from: Option<impl AsyncRead + Unpin>, kept: &Mutex<Vec<u8>>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 4 << 10];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        let mut kept = kept.lock();
        let room = MOST.saturating_sub(kept.len());
        kept.extend_from_slice(buffer.get(..count.min(room)).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        streams(&mut command);
        tokio::process::Command::from(command).spawn().unwrap()
    }

    #[tokio::test]
    async fn output_is_bounded_and_the_command_is_never_blocked() {
        let script = "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 3";
        let (status, kept) = run(shell(script)).await.unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(kept.len(), MOST);
    }

    #[tokio::test]
    async fn both_outputs_are_kept() {
        let (status, kept) = run(shell("echo out; echo err >&2; exit 1")).await.unwrap();
        let text = String::from_utf8(kept).unwrap();
        assert_eq!(status.code(), Some(1));
        assert!(text.contains("out\n") && text.contains("err\n"), "{text}");
    }

    #[tokio::test]
    async fn a_process_left_behind_is_not_waited_for() {
        let (status, kept) = run(shell("sleep 1000 & echo $!")).await.unwrap();
        assert!(status.success());
        let left: i32 = String::from_utf8(kept).unwrap().trim().parse().unwrap();
        let left = rustix::process::Pid::from_raw(left).unwrap();
        rustix::process::kill_process(left, rustix::process::Signal::KILL).unwrap();
    }

    /// Runs a command that leaves a process behind; once both run, `before` and then the end of the wait for it.
    async fn the_group_ends(before: impl AsyncFn()) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pids");
        let script = format!(
            "sleep 1000 & echo $! >> {0}; echo $$ >> {0}; while :; do echo more; done",
            file.display()
        );
        let future = run(shell(&script));
        let pids = loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if text.lines().count() == 2 {
                break text;
            }
            std::thread::yield_now();
        };
        let running = tokio::spawn(future);
        before().await;
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        for pid in pids.lines() {
            // A zombie is dead; its parent reaps it.
            let lives = || {
                let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                status.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
            };
            while lives() {
                assert!(std::time::Instant::now() < deadline, "{pid} still lives");
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn the_whole_group_ends_with_the_wait_for_it() {
        the_group_ends(async || tokio::task::yield_now().await).await;
    }

    #[tokio::test]
    async fn the_whole_group_ends_when_the_wait_has_not_begun() {
        the_group_ends(async || {}).await;
    }
}
