//! Container tools of the host (buildah, podman, docker), which carry out Dockerfiles: a step runs in a process group of its own,
//! its lines go to a listener, and [`interrupt`] ends it.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Resource;

use crate::reference::Reference;
use crate::source::{Network, Platform, Source};

/// Open files and processes that buildah allows a step of a build (`RLimitDefaultValue`).
const BUILDAH_LIMIT: u64 = 1_048_576;
/// Lines of the tool that an error keeps.
const LAST_LINES: usize = 12;

/// Why a container tool could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{tool} is not installed")]
    Missing { tool: &'static str },
    #[error("cannot {verb} {}", path.display())]
    File { verb: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{tool} {step} failed")]
    Failed { tool: &'static str, step: &'static str, last_lines: Vec<String> },
}

impl Error {
    pub(crate) fn file(verb: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::File { verb, path: path.to_owned(), source }
    }
}

/// Process group of the running step, otherwise 0.
static RUNNING: AtomicI32 = AtomicI32::new(0);

/// Ends the running step, if there is one; it then fails.
pub fn interrupt() {
    if let Some(group) = rustix::process::Pid::from_raw(RUNNING.load(Ordering::SeqCst)) {
        // It may have ended by itself meanwhile.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// Buildah with a storage of its own, which works on every file system and without privileges on the mount table.
pub(crate) fn buildah(storage: &Path, step: &str) -> Command {
    let mut command = Command::new("buildah");
    command.arg("--root").arg(storage.join("root")).arg("--runroot").arg(storage.join("run"));
    command.args(["--storage-driver", "vfs", step]);
    if step == "build" {
        command.args(limits());
    }
    command
}

/// Gives buildah the logins and the trust of the registry client. `base`: the image that is changed, if it comes from a registry.
pub(crate) fn trust(command: &mut Command, storage: &Path, network: &Network, base: Option<&Reference>) {
    if network.insecure || base.is_some_and(Reference::is_loopback) {
        command.arg("--tls-verify=false");
    }
    if let Some(path) = auth_file(storage, network, base) {
        command.arg("--authfile").arg(path);
    }
}

/// A login given by hand goes into a file that only this user can read: arguments are visible to all users.
fn auth_file(storage: &Path, network: &Network, base: Option<&Reference>) -> Option<PathBuf> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let (Some(login), Some(reference)) = (&network.login, base) else {
        return network.auth_files.iter().find(|path| path.is_file()).cloned();
    };
    let path = storage.join("auth.json");
    std::fs::create_dir_all(storage).ok()?;
    let secret = STANDARD.encode(format!("{}:{}", login.username, login.password));
    let text = serde_json::json!({ "auths": { reference.registry(): { "auth": secret } } }).to_string();
    let mut file =
        std::fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(&path).ok()?;
    file.write_all(text.as_bytes()).ok()?;
    Some(path)
}

pub(crate) struct Build<'a> {
    pub(crate) file: &'a Path,
    /// The directory whose files `COPY` takes.
    pub(crate) context: &'a Path,
    /// `NAME=value` for `ARG`s.
    pub(crate) arguments: &'a [String],
    pub(crate) platform: &'a Platform,
    pub(crate) network: &'a Network,
    /// The image that is changed, if it comes from a registry.
    pub(crate) base: Option<&'a Reference>,
    /// Receives the tool's lines.
    pub(crate) line: &'a (dyn Fn(&str) + Sync),
}

/// Builds with the storage `storage` of `work`, and writes the image into an OCI layout in `work`.
pub(crate) fn build(build: &Build<'_>, work: &Path) -> Result<Source, Error> {
    let (storage, id, layout) = (work.join("storage"), work.join("image"), work.join("layout"));
    let mut command = buildah(&storage, "build");
    // A fixed time: the same instructions on the same files give the same layers.
    command.args(["--isolation", "chroot", "--format", "oci", "--layers=false", "--timestamp", "0"]);
    common(&mut command, build, &id);
    trust(&mut command, &storage, build.network, build.base);
    run("buildah", "build", command.arg(build.context), build.line)?;
    let mut push = buildah(&storage, "push");
    push.arg(image(&id)?).arg(format!("oci:{}:built", layout.display()));
    run("buildah", "push", &mut push, build.line)?;
    Ok(Source::OciLayout { path: layout, name: None })
}

/// The limits of this process for the steps of a build, where they are lower than what buildah (1.39) sets: it fails where it may not
/// raise them, as in a container without `CAP_SYS_RESOURCE`.
fn limits() -> Vec<String> {
    let most = |resource| rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let pid_max = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    lower_limits(most(Resource::Nofile), most(Resource::Nproc), pid_max.trim().parse().unwrap_or(u64::MAX))
}

/// Flags for limits that are lower than those of buildah. Buildah lowers its own limit of processes to `pid_max` when it starts
/// (`getDefaultProcessLimits` of containers/common), so that a step cannot have more.
fn lower_limits(nofile: u64, nproc: u64, pid_max: u64) -> Vec<String> {
    [("nofile", nofile), ("nproc", nproc.min(pid_max))]
        .into_iter()
        .filter(|(_, most)| *most < BUILDAH_LIMIT)
        .map(|(name, most)| format!("--ulimit={name}={most}:{most}"))
        .collect()
}

/// Flags of a build that every tool has; `id`: the file for the identity of the image.
pub(crate) fn common(command: &mut Command, build: &Build<'_>, id: &Path) {
    command.arg("--platform").arg(build.platform.to_string());
    command.arg("--iidfile").arg(id).arg("--file").arg(build.file);
    for argument in build.arguments {
        command.arg("--build-arg").arg(argument);
    }
}

/// The identity that a build wrote.
pub(crate) fn image(id: &Path) -> Result<String, Error> {
    let text = std::fs::read_to_string(id).map_err(|source| Error::file("read", id, source))?;
    Ok(text.trim().to_owned())
}

/// Runs a step of a tool; returns its lines on standard output. `line` receives those of both streams.
pub(crate) fn run(
    tool: &'static str,
    step: &'static str,
    command: &mut Command,
    line: &(dyn Fn(&str) + Sync),
) -> Result<Vec<String>, Error> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Error::Missing { tool },
        _ => Error::file("run", Path::new(tool), source),
    })?;
    RUNNING.store(i32::try_from(child.id()).unwrap_or(0), Ordering::SeqCst);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read_lines = |stream: Option<Box<dyn Read + Send>>| -> Vec<String> {
        let lines =
            stream.into_iter().flat_map(|stream| BufReader::new(stream).lines().map_while(Result::ok));
        lines.inspect(|text| line(text)).collect()
    };
    let (output, errors) = std::thread::scope(|scope| {
        let errors = scope.spawn(|| read_lines(stderr.map(|stream| Box::new(stream) as _)));
        (read_lines(stdout.map(|stream| Box::new(stream) as _)), errors.join().unwrap_or_default())
    });
    let status = child.wait().map_err(|source| Error::file("run", Path::new(tool), source))?;
    RUNNING.store(0, Ordering::SeqCst);
    if status.success() {
        return Ok(output);
    }
    let mut all: Vec<String> = output.into_iter().chain(errors).collect();
    let cut = all.len().saturating_sub(LAST_LINES);
    Err(Error::Failed { tool, step, last_lines: all.split_off(cut) })
}

#[cfg(test)]
mod tests {
    use super::lower_limits;

    #[test]
    fn a_step_gets_no_limit_that_buildah_may_not_set() {
        assert_eq!(lower_limits(1 << 20, u64::MAX, 1 << 22), [""; 0]);
        assert_eq!(
            lower_limits(20_000, 96_365, 1 << 22),
            ["--ulimit=nofile=20000:20000", "--ulimit=nproc=96365:96365"]
        );
        assert_eq!(lower_limits(u64::MAX, 96_365, 32_768), ["--ulimit=nproc=32768:32768"]);
    }
}
