//! `local check`, `local backup` and `local restore`: the state of a cluster as a whole. A running cluster's API server does the work,
//! a stopped one's is done by `neond state`.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures_util::io::{AsyncRead, AsyncReadExt as _};
use neonvm_builder::out::Output;
use neonvm_builder::source::Progress as _;
use neonvm_kit::private;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::args::local::{Backup, Check, Restore};
use crate::commands::job::Stop;
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};
use crate::instance::{self, Instance, State};
use crate::render::Reporter;
use crate::report::{API_VERSION, Body, Document, Report, left, right};
use crate::settings::Settings;

/// Bytes that are copied at once.
const CHUNK: usize = 256 << 10;
/// Longest first line of a backup, in bytes.
const LONGEST_HEADER: usize = 4096;

/// The first line of a backup: the fields that are shown.
#[derive(Clone, Debug, Deserialize)]
struct Header {
    cluster: String,
    revision: u64,
    objects: u64,
    bytes: u64,
    sha256: String,
    /// In the response of a restore: the cluster is not that of the backup.
    #[serde(default, rename = "isNew")]
    is_new: bool,
}

/// Verifies the state of a cluster.
pub(crate) fn check(env: &Env, settings: &Settings, args: &Check) -> Result<Report> {
    let instance = instance::named(env, settings, &args.which)?;
    let limit = settings.duration("request-timeout", args.request_timeout.as_deref())?;
    demand(&instance)?;
    let mut problems: Vec<String> = match private::audit(&instance.directory, &private::LEFT) {
        Ok(found) => found.iter().map(ToString::to_string).collect(),
        Err(error) => vec![error.to_string()],
    };
    let checked = if is_running(&instance) {
        block_on(async {
            Connection::local(settings, &instance.kubeconfig(), limit).await?.json("/neonvm/check").await
        })?
    } else {
        let lock = instance.lock()?;
        let checked = offline_check(env, settings, &instance)?;
        drop(lock);
        checked
    };
    let reported = checked.get("problems").and_then(Value::as_array).into_iter().flatten();
    problems.extend(reported.filter_map(|problem| problem.as_str().map(str::to_owned)));
    let number = |key: &str| checked.get(key).and_then(Value::as_u64).unwrap_or_default();
    let name = &instance.name;
    let sound = format!(
        "local cluster {name:?} has no problems: {} objects up to revision {}",
        number("objects"),
        number("revision")
    );
    let mut report = Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "LocalClusterCheck", "name": name,
            "objects": number("objects"), "revision": number("revision"), "problems": problems }),
        names: vec![format!("localcluster/{name}")],
        text: problems.is_empty().then_some(sound),
        columns: vec![left("PROBLEM")],
        rows: problems.iter().map(|problem| vec![problem.clone()]).collect(),
    });
    if !problems.is_empty() {
        report.code = Code::Unhealthy.number();
    }
    Ok(report)
}

/// Something of a cluster must be there, if only its keys.
fn demand(instance: &Instance) -> Result<()> {
    if instance.directory.join("ca.key").exists() { Ok(()) } else { instance.demand() }
}

fn is_running(instance: &Instance) -> bool {
    matches!(instance.state(), State::Running(_))
}

fn offline_check(env: &Env, settings: &Settings, instance: &Instance) -> Result<Value> {
    let failed = || Error::new(Code::Failed, format!("cannot check local cluster {:?}", instance.name));
    let mut command = std::process::Command::new(super::neond(env, settings)?);
    command.args(["state", "check", "--data-dir"]).arg(&instance.directory).stdin(Stdio::null());
    let output = command.output().map_err(|error| failed().cause(reason(&error)))?;
    if !output.status.success() {
        return Err(failed().cause(last_line(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed().cause(error.to_string()))
}

fn last_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).trim().lines().next_back().unwrap_or_default().to_owned()
}

pub(crate) fn backup(env: &Env, settings: &Settings, args: &Backup, quiet: bool) -> Result<Report> {
    let instance = instance::named(env, settings, &args.which)?;
    instance.demand()?;
    let path = std::path::absolute(&args.out).map_err(|error| Error::file("write", &args.out, &error))?;
    if path.is_file() && !args.force {
        return Err(exists(&path));
    }
    let limit = settings.duration("request-timeout", args.request_timeout.as_deref())?;
    let failed = |error: io::Error| Error::file("write", &path, &error);
    // It has all the secrets of the cluster.
    let mut output = Output::begin(&path, 0o600).map_err(failed)?;
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    let lock = if is_running(&instance) { None } else { Some(instance.lock()?) };
    let header = block_on(unless_stopped(async {
        let source = Source::open(env, settings, &instance, limit).await?;
        copy_whole(source, output.file(), &path, limit, &reporter).await
    }))?;
    drop(lock);
    output.finish().map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(&path),
        _ => failed(error),
    })?;
    Ok(outcome(&instance.name, "backup", &path, &header))
}

fn exists(path: &Path) -> Error {
    Error::new(Code::Conflict, format!("{} exists", path.display()))
        .hint("choose another name, or replace it with --force")
}

/// What came of a backup or a restore.
fn outcome(name: &str, kind: &str, path: &Path, header: &Header) -> Report {
    let file = path.display().to_string();
    let cells = vec![name.to_owned(), header.objects.to_string(), header.revision.to_string(), file.clone()];
    Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": if kind == "backup" { "LocalBackup" } else { "LocalRestore" },
            "name": name, "cluster": header.cluster, "objects": header.objects, "revision": header.revision, "file": file }),
        names: vec![format!("{kind}/{name}")],
        text: None,
        columns: vec![left("NAME"), right("OBJECTS"), right("REVISION"), left("FILE")],
        rows: vec![cells],
    })
}

/// Work that ends, and cleans up, when the user stops this program.
async fn unless_stopped<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut stop = Stop::listen()?;
    tokio::select! {
        done = work => done,
        () = stop.requested() => Err(Error::new(Code::Interrupted, "interrupted")
            .hint("no partial results remain; run the command again")),
    }
}

enum Source {
    Server(Pin<Box<dyn AsyncRead + Send>>),
    Program(Child),
}

impl Source {
    async fn open(env: &Env, settings: &Settings, instance: &Instance, limit: Duration) -> Result<Self> {
        if is_running(instance) {
            let connection = Connection::local(settings, &instance.kubeconfig(), limit).await?;
            let request = http::Request::get("/neonvm/backup").body(Vec::new());
            let request =
                request.map_err(|error| Error::new(Code::Failed, "bad request").cause(error.to_string()))?;
            let client = connection.client();
            let answer = connection.within("cannot back up", client.request_stream(request)).await?;
            return Ok(Self::Server(Box::pin(answer)));
        }
        let child = program(env, settings, instance, "backup", &[])?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Error::new(Code::Failed, "cannot run neond").cause(reason(&error)))?;
        Ok(Self::Program(child))
    }

    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Server(answer) => answer.read(buffer).await,
            Self::Program(child) => match &mut child.stdout {
                Some(out) => out.read(buffer).await,
                None => Ok(0),
            },
        }
    }

    async fn finish(self) -> Result<()> {
        match self {
            Self::Server(_) => Ok(()),
            Self::Program(child) => ended(child, "cannot back up").await.map(|_| ()),
        }
    }
}

/// `neond state COMMAND` for a cluster; ends with this program.
fn program(
    env: &Env,
    settings: &Settings,
    instance: &Instance,
    command: &str,
    flags: &[&OsStr],
) -> Result<Command> {
    let mut program = Command::new(super::neond(env, settings)?);
    program.args(["state", command, "--data-dir"]).arg(&instance.directory).args(flags);
    program.stderr(Stdio::piped()).kill_on_drop(true);
    Ok(program)
}

async fn ended(child: Child, attempt: &str) -> Result<Vec<u8>> {
    let failed = |status: Option<ExitStatus>, why: String| {
        let status = status.map(|status| status.to_string()).unwrap_or_default();
        Error::new(Code::Failed, attempt).cause(if why.is_empty() { status } else { why })
    };
    let output = child.wait_with_output().await.map_err(|error| failed(None, reason(&error)))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(failed(Some(output.status), last_line(&output.stderr).trim_start_matches("Error: ").to_owned()))
}

/// Copies a backup to a file that is given its name when this has verified that it is whole.
async fn copy_whole(
    mut source: Source,
    file: &mut File,
    path: &Path,
    limit: Duration,
    reporter: &Reporter,
) -> Result<Header> {
    use std::io::Write as _;
    let failed = |error: io::Error| Error::file("write", path, &error);
    let (mut buffer, mut copied) = (vec![0; CHUNK], Copied::default());
    loop {
        let count = match tokio::time::timeout(limit, source.read(&mut buffer)).await {
            Ok(count) => {
                count.map_err(|error| Error::new(Code::Failed, "cannot back up").cause(reason(&error)))?
            }
            Err(_) => return Err(Error::new(Code::Timeout, format!("no data was received for {limit:?}"))),
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        if bytes.is_empty() {
            break;
        }
        file.write_all(bytes).map_err(failed)?;
        copied.take(bytes, reporter);
    }
    // Why a program ended early explains more than what is missing.
    source.finish().await?;
    copied.finish(reporter)
}

#[derive(Default)]
struct Copied {
    first: Vec<u8>,
    header: Option<Header>,
    hash: Sha256,
    bytes: u64,
}

impl Copied {
    /// The name of the copying where progress is shown.
    const TASK: &'static str = "state";

    fn take(&mut self, bytes: &[u8], reporter: &Reporter) {
        let mut body = bytes;
        if self.header.is_none() && self.first.len() <= LONGEST_HEADER {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            self.first.extend_from_slice(line);
            body = rest;
            if end.is_some() {
                self.header = serde_json::from_slice(&self.first).ok();
                reporter.started(Self::TASK, self.header.as_ref().map(|header| header.bytes));
            }
        }
        self.hash.update(body);
        self.bytes += body.len() as u64;
        reporter.advanced(Self::TASK, body.len() as u64);
    }

    fn finish(self, reporter: &Reporter) -> Result<Header> {
        reporter.finished(Self::TASK);
        let hash = self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let header = self.header.filter(|header| header.bytes == self.bytes && header.sha256 == hash);
        header.ok_or_else(|| {
            Error::new(Code::Failed, "the backup is incomplete: the cluster ended, or its state is damaged")
        })
    }
}

/// Puts a backup in the place of the state of a stopped cluster.
pub(crate) fn restore(env: &Env, settings: &Settings, args: &Restore, quiet: bool) -> Result<Report> {
    let instance = instance::named(env, settings, &args.which)?;
    let path = std::path::absolute(&args.file).map_err(|error| Error::file("read", &args.file, &error))?;
    let file = std::fs::File::open(&path).map_err(|error| Error::file("read", &path, &error))?;
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let is_new = !instance.directory.exists();
    let name = &instance.name;
    private::directory(&instance.directory)
        .map_err(|error| Error::file("create", &instance.directory, &error))?;
    if let Err(error @ private::Error::Foreign { .. }) = private::verify(&instance.directory, &private::LEFT)
    {
        return Err(Error::new(Code::Conflict, error.to_string()));
    }
    let lock = instance.lock()?;
    if is_running(&instance) {
        return Err(Error::new(Code::Conflict, format!("local cluster {name:?} is running"))
            .hint(format!("stop it first: neonctl local down --name {name}")));
    }
    let state = instance.directory.join("state.redb");
    if state.exists() && !args.force {
        return Err(Error::new(
            Code::Conflict,
            format!("local cluster {name:?} has existing state, which would be lost"),
        )
        .hint("replace it with --force, or restore to another --name"));
    }
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    let restored = block_on(unless_stopped(async {
        let flags: &[&OsStr] = if args.force { &["--force".as_ref()] } else { &[] };
        let child = program(env, settings, &instance, "restore", flags)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Error::new(Code::Failed, "cannot run neond").cause(reason(&error)))?;
        feed(child, file, length, &reporter).await
    }));
    let restored = restored.inspect_err(|_| {
        if is_new {
            // Nothing was restored, so nothing stays behind.
            let _ = std::fs::remove_dir_all(&instance.directory);
        }
    });
    drop(lock);
    let header: Header = serde_json::from_slice(&restored?)
        .map_err(|error| Error::new(Code::Failed, "invalid response from neond").cause(error.to_string()))?;
    let mut report = outcome(name, "restore", &path, &header);
    if let Body::Document(document) = &mut report.body
        && let Some(value) = document.value.as_object_mut()
    {
        value.insert("isNew".to_owned(), json!(header.is_new));
    }
    if header.is_new {
        report = report.note(format!(
            "local cluster {name:?} is a new cluster: it has its own keys, nodes and addresses, and nothing of local cluster {:?} that runs",
            header.cluster
        ));
    }
    Ok(report.note(format!("start it: neonctl local up --name {name}")))
}

async fn feed(mut child: Child, file: std::fs::File, length: u64, reporter: &Reporter) -> Result<Vec<u8>> {
    let (mut file, mut buffer) = (tokio::fs::File::from_std(file), vec![0; CHUNK]);
    reporter.started(Copied::TASK, Some(length));
    if let Some(mut to) = child.stdin.take() {
        loop {
            let count = file
                .read(&mut buffer)
                .await
                .map_err(|error| Error::new(Code::Failed, "cannot read the backup").cause(reason(&error)))?;
            // A program that has read enough reports why.
            if count == 0 || to.write_all(buffer.get(..count).unwrap_or_default()).await.is_err() {
                break;
            }
            reporter.advanced(Copied::TASK, count as u64);
        }
    }
    reporter.finished(Copied::TASK);
    ended(child, "cannot restore").await
}
