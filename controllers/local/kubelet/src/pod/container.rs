//! Starting, watching and ending the process of a container.

use std::fs;
use std::io;
use std::os::unix::fs::fchown;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use neonvm_kit::private;
use neonvm_types::runner_protocol::{DEADLINE_FACTOR, Exit, ExitReason, TERMINATION_MESSAGE_BYTES};
use tokio::sync::watch;

use super::state::{Task, Worker};
use super::{Handle, PodDirectory, own_root};
use crate::clock;
use crate::node::Node;
use crate::problem::Problem;
use crate::process::{self, Launch, Outcome, Process};
use crate::sys::{ProcessPlacement, Record};
use crate::{confined, downward, files, naming};
use neonvm_core_kubelet::{Ended, Event, Millis, State};

/// First and longest pause while something of the environment is missing.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(20));

pub(crate) fn spec<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .find(|container| container.name == name)
}

/// Starts a container; answers with events.
pub(super) fn start(worker: &mut Worker, name: &str) {
    let restarts = worker.machine.runs.get(name).map_or(0, |run| run.restarts);
    let starting = Starting {
        node: Arc::clone(&worker.node),
        handle: Arc::clone(&worker.handle),
        name: name.to_owned(),
        restarts,
        ip: worker.ip.borrow().clone(),
        grace: worker.machine.plan.grace,
        ending: worker.ending.subscribe(),
    };
    let (events, name) = (worker.events.clone(), name.to_owned());
    let handle = Arc::clone(&worker.handle);
    let task = tokio::spawn(async move {
        let process = match starting.run(&events).await {
            Ok(process) => process,
            Err(problem) => {
                let (reason, message) = (problem.reason.to_owned(), problem.message);
                let _ = events.send(Event::NotStarted { container: name, reason, message }).await;
                return;
            }
        };
        let since = clock::now();
        let process = Arc::new(process);
        handle.started.lock().insert(name.clone(), Arc::clone(&process));
        let _ = events.send(Event::Started { container: name.clone() }).await;
        let outcome = process.wait().await;
        let ended = make_ended(&handle.directory, &handle.pod.borrow(), &name, restarts, outcome, since);
        let _ = events.send(Event::Exited { container: name, ended }).await;
    });
    worker.tasks.push(Task(task));
}

/// Watches a process that was found again.
pub(super) fn attend(worker: &mut Worker, name: &str, process: Arc<Process>) {
    worker.handle.started.lock().insert(name.to_owned(), Arc::clone(&process));
    let (events, handle, name) = (worker.events.clone(), Arc::clone(&worker.handle), name.to_owned());
    let run = worker.machine.runs.get(&name);
    let restarts = run.map_or(0, |run| run.restarts);
    let since =
        run.map_or(0, |run| if let State::Running { since } = run.state { since } else { clock::now() });
    let task = tokio::spawn(async move {
        let outcome = process.wait().await;
        let ended = make_ended(&handle.directory, &handle.pod.borrow(), &name, restarts, outcome, since);
        let _ = events.send(Event::Exited { container: name, ended }).await;
    });
    worker.tasks.push(Task(task));
}

/// Kills a container with all its processes.
pub(super) fn kill(worker: &Worker, name: &str) {
    if let Some(process) = worker.processes().get(name) {
        process.kill();
    }
    if worker.machine.running().count() <= 1
        && let Some(hierarchy) = &worker.node.hierarchy
    {
        let config = &worker.node.config;
        hierarchy.kill(&naming::pod_cgroup(&config.cluster, &config.name, &worker.handle.uid));
    }
}

/// How a container ended that is gone without having been watched.
pub(super) fn ended(worker: &Worker, name: &str, outcome: Outcome) -> Ended {
    let run = worker.machine.runs.get(name);
    let restarts = run.map_or(0, |run| run.restarts);
    let since = match run.map(|run| &run.state) {
        Some(State::Running { since }) => *since,
        _ => clock::now(),
    };
    make_ended(&worker.handle.directory, &worker.pod(), name, restarts, outcome, since)
}

/// The exit code; from the termination message if the process was not this node's child.
fn make_ended(
    directory: &PodDirectory,
    pod: &Pod,
    name: &str,
    restarts: u32,
    outcome: Outcome,
    started: Millis,
) -> Ended {
    let mut message = tail(&directory.message(name, restarts), TERMINATION_MESSAGE_BYTES);
    let reported = Exit::from_message(&message);
    let (code, signal) = match (outcome, &reported) {
        (Outcome::Code(code), _) => (code, None),
        (Outcome::Signal(signal), _) => (128 + signal, Some(signal)),
        (Outcome::Unknown, Some(exit)) => (i32::from(!exit.is_success()), None),
        (Outcome::Unknown, None) => (137, None),
    };
    let mut reason = if code == 0 { "Completed" } else { "Error" };
    if message.trim().is_empty() && !matches!(outcome, Outcome::Code(_)) {
        reason = ExitReason::RunnerKilled.as_str();
        message = Exit::new(ExitReason::RunnerKilled, "the process ended without a word: it was killed")
            .to_message();
    }
    let policy = spec(pod, name).and_then(|spec| spec.termination_message_policy.as_deref());
    if message.trim().is_empty() && code != 0 && policy == Some("FallbackToLogsOnError") {
        message = tail(&directory.log(name, restarts), 2048);
    }
    Ended { code, signal, reason: reason.to_owned(), message, started, finished: clock::now() }
}

/// The last bytes of a file, as text; nothing if there is none.
fn tail(path: &std::path::Path, most: usize) -> String {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let read = || -> io::Result<Vec<u8>> {
        let mut file = files::open_foreign(path, fs::OpenOptions::new().read(true))?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(most as u64)))?;
        let mut bytes = Vec::new();
        file.take(most as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

struct Starting {
    node: Arc<Node>,
    handle: Arc<Handle>,
    name: String,
    restarts: u32,
    ip: String,
    grace: Millis,
    ending: watch::Receiver<bool>,
}

impl Starting {
    async fn run(mut self, events: &tokio::sync::mpsc::Sender<Event>) -> Result<Process, Problem> {
        let mut pause = PAUSES.0;
        let launch = loop {
            let problem = match self.launch().await {
                Ok(launch) => break launch,
                Err(problem) if problem.is_final => return Err(problem),
                Err(problem) => problem,
            };
            let pod = Arc::clone(&self.handle.pod.borrow());
            self.node.events.warning(&pod, "Failed", format!("Error: {}", problem.message));
            let (reason, message) = (problem.reason.to_owned(), problem.message.clone());
            let _ = events.send(Event::HeldUp { reason, message }).await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = self.ending.wait_for(|ending| *ending) => return Err(problem),
            }
            pause = (pause * 2).min(PAUSES.1);
        };
        if *self.ending.borrow() {
            return Err(Problem::last("Canceled", "the pod ended before the container was started"));
        }
        let failed = |error: io::Error| Problem::last("StartError", error.to_string());
        let started = match tokio::task::spawn_blocking(move || process::launch(launch)).await {
            // Only the end of the runtime cancels it, and so the end of this node: that is not the pod's failure. The next node
            // finds the pod as it is.
            Err(error) if error.is_cancelled() => std::future::pending().await,
            started => started,
        };
        let identity = started.map_err(|error| failed(io::Error::other(error)))?.map_err(failed)?;
        let gone = || Problem::last("StartError", "the process is gone");
        Process::open(identity).map_err(failed)?.ok_or_else(gone)
    }

    async fn launch(&self) -> Result<Launch, Problem> {
        let pod = Arc::clone(&self.handle.pod.borrow());
        let missing = || Problem::last("StartError", format!("there is no container {}", self.name));
        let container = spec(&pod, &self.name).ok_or_else(missing)?;
        let layout = own_root::Layout::read(&self.handle.directory);
        let user = own_root::user(&self.ip).filter(|_| layout.is_ok_and(|layout| layout.own_root));
        let view = if user.is_some() { View::Own } else { View::Host };
        let mut environment = environment(&self.node, &self.handle, &pod, container, &self.ip, view).await?;
        let directory = &self.handle.directory;
        let failed = |error: io::Error| Problem::last("StartError", error.to_string());
        let (log, message) =
            (directory.log(&self.name, self.restarts), directory.message(&self.name, self.restarts));
        environment.push(("NEONVM_GRACE_SECONDS".into(), (self.grace / 1000).to_string()));
        environment.push(("NEONVM_LOG_FORMAT".into(), "cri".into()));
        for path in [&log, &message] {
            let parent = path.parent().unwrap_or(path);
            files::directory(parent, 0o700).map_err(failed)?;
        }
        let written = private::create(&message).map_err(failed)?;
        // Output and files of the run before are kept, older ones are not.
        if let Some(old) = self.restarts.checked_sub(2) {
            for path in [
                directory.log(&self.name, old),
                super::directory::aside(&directory.log(&self.name, old)),
                directory.pid(&self.name, old),
                directory.message(&self.name, old),
            ] {
                files::remove(&path).map_err(failed)?;
            }
        }
        let record = private::create(&directory.pid(&self.name, self.restarts)).map_err(failed)?;
        let record = Some(Record::new(record).map_err(failed)?);
        let output = files::open_foreign(&log, fs::OpenOptions::new().append(true).create(true));
        let output = output.map_err(failed)?;
        let known = environment.iter().cloned().collect();
        let words = container.command.iter().flatten().chain(container.args.iter().flatten()).skip(1);
        let arguments = words.map(|word| crate::env::expand(word, &known)).collect();
        let Some(user) = user else {
            environment.push(("NEONVM_TERMINATION_LOG".into(), message.display().to_string()));
            environment.push(("NEONVM_LOG_FILE".into(), log.display().to_string()));
            let place = ProcessPlacement { record, ..self.node.place_on_host(&self.handle).map_err(failed)? };
            let program = self.node.executable.clone();
            return Ok(Launch { program, arguments, environment, output, place, root: None });
        };
        fchown(&output, Some(user), Some(user)).map_err(failed)?;
        let own = own_root::Own { log: &log, message: &written, message_path: &message };
        let root = own_root::of_container(&self.node, &self.handle, user, &own).map_err(failed)?;
        environment.push(("NEONVM_TERMINATION_LOG".into(), confined::TERMINATION_LOG.into()));
        environment.push(("NEONVM_LOG_FILE".into(), own_root::log(&log).display().to_string()));
        if let (Some(host), Some((_, path))) =
            (&root.host, environment.iter_mut().find(|(name, _)| name == "PATH"))
        {
            *path = host.search(path).to_string_lossy().into_owned();
        }
        let place = ProcessPlacement {
            record,
            user: Some(own_root::becomes(user)),
            is_first: true,
            ..self.node.place(&self.handle).map_err(failed)?
        };
        let program = confined::PROGRAM.into();
        Ok(Launch { program, arguments, environment, output, place, root: Some(root) })
    }
}

/// Which files a process of a pod sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Those of the node.
    Host,
    /// Those of a root of the pod's own.
    Own,
}

/// The environment of a container, as for commands that are run in it later.
pub(crate) async fn environment(
    node: &Node,
    handle: &Handle,
    pod: &Pod,
    container: &Container,
    ip: &str,
    view: View,
) -> Result<Vec<(String, String)>, Problem> {
    let around = node.surroundings(&handle.uid, ip);
    let own = downward::Self_ { pod, around: &around, allocatable: node.allocatable };
    let services = node.services(pod).await;
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".into());
    let home = if view == View::Own { confined::HOME } else { "/root" };
    let mut all = vec![("PATH".to_owned(), path), ("HOME".to_owned(), home.to_owned())];
    let name = pod.metadata.name.clone().unwrap_or_default();
    all.push(("HOSTNAME".into(), name));
    all.extend(crate::env::environment(own, container, &node.objects, &services).await?);
    // A runner waits as long as its host needs.
    if let Ok(factor) = std::env::var(DEADLINE_FACTOR) {
        all.push((DEADLINE_FACTOR.to_owned(), factor));
    }
    all.push(("NEONVM_NETWORK".into(), node.network.word().to_owned()));
    all.push(("NEONVM_ACCEL".into(), node.config.machine.accelerator.as_str().to_owned()));
    match view {
        View::Own => inside(node, &mut all),
        View::Host => on_host(node, handle, &mut all),
    }
    Ok(all)
}

/// Where things are in a root of the pod's own; the others are where the runner has them in a container.
fn inside(node: &Node, all: &mut Vec<(String, String)>) {
    let machine = &node.config.machine;
    let files = [
        ("NEONVM_KERNEL", confined::KERNEL, &machine.kernel),
        ("NEONVM_GUEST", confined::GUEST, &machine.guest),
    ];
    for (variable, path, _) in files.into_iter().filter(|(_, _, file)| file.is_some()) {
        all.push((variable.to_owned(), path.to_owned()));
    }
    all.push((neonvm_api::runner_pod::ROOT_VARIABLE.to_owned(), "/".to_owned()));
}

fn on_host(node: &Node, handle: &Handle, all: &mut Vec<(String, String)>) {
    let machine = &node.config.machine;
    let files = [
        ("NEONVM_KERNEL", &machine.kernel),
        ("NEONVM_INITRAMFS", &machine.initramfs),
        ("NEONVM_GUEST", &machine.guest),
    ];
    for (variable, file) in files {
        if let Some(file) = file {
            all.push((variable.to_owned(), file.display().to_string()));
        }
    }
    let root = handle.directory.root().display().to_string();
    all.push((neonvm_api::runner_pod::ROOT_VARIABLE.to_owned(), root));
    if node.hierarchy.is_some() {
        let group = naming::pod_cgroup(&node.config.cluster, &node.config.name, &handle.uid);
        all.push(("NEONVM_CGROUP".into(), group));
    }
}
