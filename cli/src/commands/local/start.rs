//! Starting the process of a local cluster and waiting until it answers.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use neonvm_kit::private;
use neonvm_kit::reserve::Reserve;
use neonvm_types::Quantity;
use serde_json::Value;
use tokio::sync::watch;

use super::kept::Nodes;
use super::network::Network;
use crate::args::local::Up;
use crate::commands::job::Stop;
use crate::commands::place;
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};
use crate::instance::{self, Instance, Process};
use crate::settings::Settings;

/// Time between two looks whether it is ready.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Lines of the log that are shown when it ends at once.
const LAST_LINES: usize = 5;

pub(super) enum Started {
    Background,
    Foreground(Foreground),
}

/// A server that this program waits for.
pub(super) struct Foreground {
    child: Child,
}

/// Starts `neond local` and returns when its API is ready.
pub(super) fn start(
    env: &Env,
    settings: &Settings,
    instance: &Instance,
    args: &Up,
    limit: Duration,
    (network, requests): (&Network, Option<&Requests>),
) -> Result<Started> {
    // What a shell left open here is nothing to a cluster that stays.
    neonvm_kit::descriptors::close_on_exec()
        .map_err(|error| Error::new(Code::Failed, "cannot close what was inherited").cause(reason(&error)))?;
    let program = neond(env, settings)?;
    has_runner(&program)?;
    let port = choose_port(instance, args.port)?;
    // Written last by the server: its appearance means that the server listens.
    let _ = std::fs::remove_file(instance.kubeconfig());
    let _ = std::fs::remove_file(instance.directory.join("services.json"));
    let mut command = Command::new(&program);
    command.arg("local").args(["--name", &instance.name]).arg("--data-dir").arg(&instance.directory);
    command.arg("--listen").arg(format!("127.0.0.1:{port}")).stdin(Stdio::null());
    let nodes = Nodes::of(instance, settings, args)?;
    command.args(node_flags(env, settings, args, (&nodes, network))?);
    nodes.keep(instance)?;
    if !args.foreground {
        let path = instance.log();
        let reserve = Reserve::from_directory(&instance.directory);
        let open = || reserve.lend(|| private::options().create(true).append(true).open(&path));
        let log = open().and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.map_err(|error| Error::file("open", &path, &error))?;
        // A process group of its own: what happens to this terminal is nothing to it.
        command.stdout(out).stderr(err).process_group(0);
    }
    let mut child = command.spawn().map_err(|error| {
        Error::new(Code::Failed, format!("cannot run {}", program.display())).cause(reason(&error))
    })?;
    if let Some(process) = Process::from_pid(child.id()) {
        instance.remember(&process)?;
        if let Some(requests) = requests {
            let _ = requests.process.send(Some(process));
        }
    }
    block_on(wait(settings, instance, Some(&mut child), limit, args.foreground))?;
    Ok(if args.foreground { Started::Foreground(Foreground { child }) } else { Started::Background })
}

/// Flags about nodes, and where what they need lies.
fn node_flags(
    env: &Env,
    settings: &Settings,
    args: &Up,
    (kept, network): (&Nodes, &Network),
) -> Result<Vec<OsString>> {
    let nodes = kept.nodes.unwrap_or(1);
    if let (2.., Network::User(why)) = (nodes, network) {
        let text = format!(
            "--nodes {nodes}: more than one node requires network namespaces, which are not used {why}"
        );
        return Err(Error::new(Code::Conflict, text).hint("run it as root, or with --nodes 1"));
    }
    let mut flags: Vec<OsString> = vec!["--nodes".into(), nodes.to_string().into()];
    let mut set = |flag: &str, value: OsString| flags.extend([flag.into(), value]);
    let number = |flag: &str, text: &str| {
        text.parse::<Quantity>().map_err(|_| {
            Error::new(Code::Usage, format!("--{flag}: {text:?} is not a quantity"))
                .hint("use a quantity such as 2, 500m or 8Gi")
        })
    };
    if let Some(cpus) = &kept.cpus {
        set("--node-cpu-milli", number("cpus", cpus)?.milli_rounded_up().to_string().into());
    }
    if let Some(memory) = &kept.memory {
        set("--node-memory", number("memory", memory)?.units_rounded_up().to_string().into());
    }
    set("--accel", args.accel.clone().into());
    if let Some(path) = &args.agent_config {
        let absolute = std::path::absolute(path).ok().filter(|path| path.is_file());
        let missing =
            || Error::new(Code::NotFound, format!("--agent-config: file {} does not exist", path.display()));
        set("--agent-config", absolute.ok_or_else(missing)?.into());
    }
    if let Some(path) = &args.registry_ca_file {
        let absolute = std::path::absolute(path).ok().filter(|path| path.is_file());
        let missing = || {
            Error::new(Code::NotFound, format!("--registry-ca-file: file {} does not exist", path.display()))
        };
        set("--registry-ca-file", absolute.ok_or_else(missing)?.into());
    }
    for path in &args.image_files {
        let real = path.canonicalize().ok().filter(|path| path.is_dir());
        let missing = || {
            Error::new(Code::NotFound, format!("--image-files: directory {} does not exist", path.display()))
        };
        set("--image-files", real.ok_or_else(missing)?.into());
    }
    set("--kernels", place::kernels(env).into());
    set("--image-store", place::images(env).into());
    set("--image-cache", place::cache(env, None).into());
    if let Ok(guest) = place::guest(env, settings, None, place::architecture()) {
        set("--guest", guest.into());
    }
    for (flag, on) in [
        ("--user-network", network.is_user()),
        ("--insecure-registries", args.insecure_registries),
        ("--metrics", args.metrics),
    ] {
        flags.extend(on.then(|| flag.into()));
    }
    Ok(flags)
}

/// The program: as configured, beside this one, or in `PATH`.
pub(crate) fn neond(env: &Env, settings: &Settings) -> Result<PathBuf> {
    let missing = |text: String| {
        Error::new(Code::Conflict, text)
            .hint("put neond next to neonctl or into PATH, or set NEONCTL_NEOND to its path")
    };
    if let Some(path) = settings.value("neond", None)? {
        let path = PathBuf::from(path);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(missing(format!("cannot find neond at {}", path.display())))
        };
    }
    let beside = env.beside.as_ref().map(|directory| directory.join("neond")).filter(|path| path.is_file());
    beside.or_else(|| env.program("neond")).ok_or_else(|| missing("cannot find the program neond".to_owned()))
}

/// Nodes start the runner beside their own program; without it they would end again and again.
fn has_runner(neond: &Path) -> Result<()> {
    let program = std::fs::canonicalize(neond).unwrap_or_else(|_| neond.to_owned());
    let runner = program.with_file_name("neonvm-runner");
    if runner.is_file() {
        return Ok(());
    }
    Err(Error::new(Code::Conflict, format!("cannot find {}, which runs VMs", runner.display()))
        .hint("put neonvm-runner next to neond"))
}

/// The port that was asked for, or that of the last start, or any.
fn choose_port(instance: &Instance, wanted: Option<u16>) -> Result<u16> {
    let Some(wanted) = wanted else {
        return Ok(instance.last_port().filter(|&last| instance::port_is_free(last)).unwrap_or(0));
    };
    if instance::port_is_free(wanted) {
        return Ok(wanted);
    }
    let by = instance::port_owner(wanted).map(|owner| format!(" by {owner}")).unwrap_or_default();
    Err(Error::new(Code::Conflict, format!("port {wanted} is in use{by}"))
        .hint("stop that process, choose another --port, or omit --port to use a free one"))
}

/// Waits until the API of the server is ready. Without the child that it is, one that was started before is waited for.
pub(super) async fn wait(
    settings: &Settings,
    instance: &Instance,
    mut child: Option<&mut Child>,
    limit: Duration,
    foreground: bool,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    let mut connection: Option<Connection> = None;
    loop {
        if let Some(Ok(Some(status))) = child.as_mut().map(|child| child.try_wait()) {
            instance.forget_process();
            let text = format!("local cluster {:?} ended while starting: {status}", instance.name);
            let lines = if foreground { Vec::new() } else { instance.last_lines(LAST_LINES) };
            let error = lines.into_iter().fold(Error::new(Code::Failed, text), Error::cause);
            let hint = format!("see its complete log: neonctl local logs --name {}", instance.name);
            return Err(if foreground { error } else { error.hint(hint) });
        }
        if child.is_some() && connection.is_none() && api_server_failed(instance) {
            instance.stop(Duration::from_secs(5))?;
            let text = format!("the API server of local cluster {:?} does not start", instance.name);
            let lines = instance.last_lines_of("apiserver", LAST_LINES);
            let error = lines.into_iter().fold(Error::new(Code::Failed, text), Error::cause);
            let hint = format!(
                "see its complete log: neonctl local logs --name {} --service apiserver",
                instance.name
            );
            return Err(error.hint(hint));
        }
        if connection.is_none() && instance.kubeconfig().exists() {
            connection = Some(Connection::local(settings, &instance.kubeconfig(), limit).await?);
        }
        if let Some(connection) = &connection {
            match connection.text("/readyz").await {
                Ok(_) => return Ok(()),
                Err(error) => disk_is_full(instance, &error)?,
            }
        }
        if Instant::now() > deadline {
            let text =
                format!("local cluster {:?} is not ready after {limit:?}; startup continues", instance.name);
            let hint = format!("see its log: neonctl local logs --name {}", instance.name);
            return Err(Error::new(Code::Timeout, text).hint(hint));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// An error if the server is not ready because its disk is full: waiting does not help.
fn disk_is_full(instance: &Instance, refused: &Error) -> Result<()> {
    let reported = refused.causes.iter().find_map(|cause| cause.split_once("[-]disk-space failed: "));
    let Some((_, why)) = reported else { return Ok(()) };
    let text =
        format!("local cluster {:?} runs, but {}", instance.name, why.lines().next().unwrap_or_default());
    let hint = format!(
        "free disk space, or delete objects: export KUBECONFIG={}; the missing parts then start automatically",
        instance.kubeconfig().display()
    );
    Err(Error::new(Code::Failed, text).hint(hint))
}

/// Whether the API server has ended since it was started: then it will end again.
fn api_server_failed(instance: &Instance) -> bool {
    let text = std::fs::read_to_string(instance.directory.join("services.json")).unwrap_or_default();
    let record: Value = serde_json::from_str(&text).unwrap_or_default();
    record.as_array().into_iter().flatten().any(|service| {
        service.get("name").is_some_and(|name| name == "apiserver")
            && service.get("restarts").and_then(Value::as_u64).is_some_and(|restarts| restarts > 0)
    })
}

/// Requests to stop this program: from now on they are passed on to a process, which this program ends after.
pub(super) struct Requests {
    process: watch::Sender<Option<Process>>,
    asked: watch::Receiver<bool>,
}

impl Requests {
    /// Begins to listen.
    pub(super) fn follow() -> Result<Self> {
        let failed = |error: std::io::Error| Error::new(Code::Failed, "cannot wait").cause(reason(&error));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let mut stop = {
            let _inside = runtime.enter();
            Stop::listen()?
        };
        let (process, mut started) = watch::channel::<Option<Process>>(None);
        let (ask, asked) = watch::channel(false);
        std::thread::spawn(move || {
            runtime.block_on(async {
                loop {
                    stop.requested().await;
                    ask.send_replace(true);
                    let Ok(process) = started.wait_for(Option::is_some).await else { return };
                    if let Some(process) = process.as_ref() {
                        process.signal(rustix::process::Signal::TERM);
                    }
                }
            });
        });
        Ok(Self { process, asked })
    }

    /// Whether there has been one.
    pub(super) fn any(&self) -> bool {
        *self.asked.borrow()
    }
}

impl Foreground {
    pub(super) fn wait(mut self, instance: &Instance) -> u8 {
        let ended = self.child.wait();
        instance.forget_process();
        if ended.is_ok_and(|status| status.success()) { 0 } else { Code::Failed.number() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_could_run_no_vm_is_not_started() {
        let directory = tempfile::tempdir().unwrap();
        let neond = directory.path().join("neond");
        std::fs::write(&neond, "").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&neond, &link).unwrap();
        assert!(has_runner(&link).unwrap_err().message.contains("neonvm-runner"));
        std::fs::write(directory.path().join("neonvm-runner"), "").unwrap();
        assert!(has_runner(&link).is_ok());
    }
}
