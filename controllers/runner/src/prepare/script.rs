//! `spec.initScript`: commands of the VM's author, before anything else is prepared. They run as the runner's user, with no
//! variable of the runner and no file that it has open; and in a domain, where the kernel has such a thing, in which the runner's own
//! files are not.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use neonvm_api::runner_pod::{
    DISKS_DIRECTORY, IMAGES_DIRECTORY, KERNEL_DIRECTORY, MOUNTS_DIRECTORY, ROOT_DISK_DIRECTORY,
    SWAP_DIRECTORY,
};
use neonvm_hypervisor::landlock::{Allowed, Domain};
use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, Command};

use crate::config::{PROGRAMS, below};

/// Longest time for a script.
const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes of its standard error that are kept for the message of a failure.
const KEPT: u64 = 4096;
/// Time for the rest of its standard error, after its end.
const LAST_OUTPUT: Duration = Duration::from_secs(5);

/// Directories of the pod in which a script may write: those of the VM's disks.
const WRITTEN: [&str; 3] = [IMAGES_DIRECTORY, DISKS_DIRECTORY, SWAP_DIRECTORY];
/// The one for temporary files, of the container.
const TEMPORARY: &str = "/tmp";
/// Those that it may read besides: what the VM's author has mounted, and its images.
const READ: [&str; 3] = [MOUNTS_DIRECTORY, ROOT_DISK_DIRECTORY, KERNEL_DIRECTORY];

/// Runs a script in a shell, below the root of the pod.
///
/// # Errors
/// What to report: it cannot be started, it fails, or it does not end in time, whereupon all of its process group is killed.
pub(super) async fn run(text: &str, root: &Path) -> Result<(), String> {
    within(text, root, PATIENCE).await
}

async fn within(text: &str, root: &Path, patience: Duration) -> Result<(), String> {
    let places = |all: &[&str]| all.iter().map(|path| below(root, path)).collect::<Vec<_>>();
    let write = places(&WRITTEN).into_iter().chain([TEMPORARY.into()]).collect();
    let allowed = Allowed { read: places(&READ), write, tcp: true, ..Allowed::default() };
    let domain = Domain::new(&allowed).map_err(|error| format!("its rights cannot be limited: {error}"))?;
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", text])
        .env_clear()
        .env("PATH", PROGRAMS)
        .current_dir("/")
        .process_group(0)
        .kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    if let Some(domain) = domain {
        neonvm_hypervisor::landlock::before_exec(command.as_std_mut(), domain);
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
    use neonvm_api::runner_pod::CONFIG_DIRECTORY;
    use neonvm_test_support::{Missing, need};

    use super::*;

    #[tokio::test]
    async fn its_end_and_its_words_are_reported() {
        run("true", Path::new("/")).await.unwrap();
        let error = run("echo 'no such thing' >&2; exit 3", Path::new("/")).await.unwrap_err();
        assert_eq!(error, "exit status: 3: no such thing");
        let error = within("sleep 1000", Path::new("/"), Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(error, "did not end within 0 s");
    }

    #[tokio::test]
    async fn what_it_writes_fills_no_memory_and_what_it_leaves_is_killed() {
        let script = "head -c 1000000 /dev/zero | tr '\\0' x >&2; sleep 1000 & exit 1";
        let error = run(script, Path::new("/")).await.unwrap_err();
        assert!(error.len() <= "exit status: 1: ".len() + 4096, "{}", error.len());
    }

    #[tokio::test]
    async fn it_has_none_of_the_runners_variables() {
        run("test -z \"$HOME$CARGO_MANIFEST_DIR\"", Path::new("/")).await.unwrap();
    }

    /// Also as the user that owns the files of the runner.
    #[tokio::test]
    async fn it_reads_what_is_the_vms_and_nothing_of_the_runners() {
        need!(match neonvm_hypervisor::landlock::version() {
            0 => Err(Missing::unavailable("this kernel has no Landlock")),
            _ => Ok(()),
        });
        // Not below the directory for temporary files, which each script may use.
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = |path: &str| below(root.path(), path);
        for directory in [CONFIG_DIRECTORY, IMAGES_DIRECTORY, MOUNTS_DIRECTORY] {
            std::fs::create_dir_all(path(directory)).unwrap();
            std::fs::write(path(directory).join("file"), "").unwrap();
        }
        let script = format!(
            "cat {}/file && touch {}/other && ! cat {}/file 2>/dev/null",
            path(MOUNTS_DIRECTORY).display(),
            path(IMAGES_DIRECTORY).display(),
            path(CONFIG_DIRECTORY).display(),
        );
        run(&script, root.path()).await.unwrap();
    }
}
