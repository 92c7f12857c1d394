//! The task of a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{mpsc, watch};

use super::report::{self, Report};
use super::state::{Task, Worker};
use super::state_file::Saved;
use super::{ContainerView, Handle, Object, PodDirectory, View, adopt, clean, container, prepare, resize};
use crate::clock;
use crate::node::Node;
use crate::probe;
use crate::process::{Process, boot_id};
use neonvm_core_kubelet::size::{PodRequests, Size};
use neonvm_core_kubelet::status::{Surroundings, rows_know};
use neonvm_core_kubelet::{Action, Event, Machine, Plan, ProbeKind, State};

/// Events that wait for the worker; a sender of more waits.
const WAITING: usize = 64;

pub(crate) fn spawn_new(node: &Arc<Node>, pod: &Arc<Pod>) -> Arc<Handle> {
    let pause = u64::try_from(node.config.restart_pause.as_millis()).unwrap_or(10_000);
    let mut machine = Machine::new(Plan::from_pod(pod, pause), clock::now());
    machine.size = Size::new(PodRequests::from_pod(pod), pod.metadata.generation);
    spawn(node, pod, machine, String::new(), Origin::New)
}

/// Continues with a pod that a former run of the node took on.
pub(crate) fn spawn_known(node: &Arc<Node>, saved: Saved) -> Arc<Handle> {
    let origin = if saved.is_of_this_boot() { Origin::Known } else { Origin::OfFormerBoot };
    let (pod, mut machine) = (Arc::new(saved.pod), saved.machine);
    if machine.size == Size::default() {
        machine.size = Size::new(PodRequests::from_pod(&pod), pod.metadata.generation);
    }
    spawn(node, &pod, machine, saved.ip, origin)
}

/// Where a pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    New,
    /// A former run of the node took it on: its processes may still run.
    Known,
    /// Before the machine was started: they cannot.
    OfFormerBoot,
}

fn spawn(node: &Arc<Node>, pod: &Arc<Pod>, machine: Machine, ip: String, origin: Origin) -> Arc<Handle> {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let handle = Arc::new(Handle {
        directory: PodDirectory::new(&node.config.data, &uid),
        uid,
        object: watch::channel(Object::Present(Arc::clone(pod))).0,
        pod: watch::channel(Arc::clone(pod)).0,
        view: watch::channel(View::default()).0,
        started: parking_lot::Mutex::default(),
    });
    if !machine.has_ended() {
        node.rooms.note(&handle.uid, machine.size.allocated.need());
    }
    let (events, inbox) = mpsc::channel(WAITING);
    let (reports, reading) = watch::channel(Report::default());
    let reporter = tokio::spawn(report::send(node.client.clone(), Pod::clone(pod), reading));
    let worker = Worker {
        node: Arc::clone(node),
        handle: Arc::clone(&handle),
        machine,
        ip: watch::channel(ip).0,
        events,
        ending: watch::channel(false).0,
        preparation: None,
        tasks: vec![Task(reporter)],
        probes: BTreeMap::new(),
        reports,
        shown: pod.status.clone().unwrap_or_default(),
        is_seen: origin == Origin::New,
        is_forgotten: false,
        is_resizing: false,
    };
    let task = tokio::spawn(worker.run(inbox, origin));
    node.workers.lock().push(task);
    handle
}

impl Worker {
    async fn run(mut self, mut inbox: mpsc::Receiver<Event>, origin: Origin) {
        let mut object = self.handle.object.subscribe();
        let mut freed = self.node.rooms.freed();
        let found = match origin {
            Origin::New => Vec::new(),
            origin => adopt::adopt(&mut self, origin == Origin::Known),
        };
        let actions = self.machine.resume(clock::now());
        self.carry_out(actions);
        for event in found {
            self.step(event);
        }
        if origin == Origin::New {
            self.look(&Object::clone(&object.borrow_and_update()));
        }
        while !self.is_forgotten {
            tokio::select! {
                changed = object.changed() => match changed {
                    Ok(()) => self.look(&Object::clone(&object.borrow_and_update())),
                    Err(_) => return,
                },
                event = inbox.recv() => match event {
                    Some(event) => self.step(event),
                    None => return,
                },
                Ok(()) = freed.changed(), if self.machine.size.pending.is_some() => self.consider(&self.pod()),
                () = clock::until(self.machine.wake_at()) => self.step(Event::Time),
            }
            self.tasks.retain(|task| !task.0.is_finished());
        }
    }

    pub(super) fn pod(&self) -> Arc<Pod> {
        Arc::clone(&self.handle.pod.borrow())
    }

    /// Processes of the containers, by name.
    pub(super) fn processes(&self) -> BTreeMap<String, Arc<Process>> {
        self.handle.started.lock().clone()
    }

    pub(super) fn surroundings(&self) -> Surroundings {
        self.node.surroundings(&self.handle.uid, &self.ip.borrow())
    }

    fn look(&mut self, object: &Object) {
        if let (Object::Present(pod), false) = (object, self.is_seen) {
            self.is_seen = true;
            self.shown = pod.status.clone().unwrap_or_default();
            self.show();
        }
        match object {
            Object::Gone => self.step(Event::Vanished),
            Object::Present(pod) => {
                self.consider(pod);
                if pod.metadata.deletion_timestamp.is_some() {
                    let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
                    // The time counts from when it is seen: the host's clocks may differ.
                    self.step(Event::Delete {
                        grace: u64::try_from(seconds).unwrap_or(0).saturating_mul(1000),
                    });
                }
            }
        }
    }

    /// Holds the specification against the room that the node has now.
    fn consider(&mut self, pod: &Pod) {
        let wanted = PodRequests::from_pod(pod);
        let generation = pod.metadata.generation.unwrap_or_default();
        if self.machine.has_ended() {
            return;
        }
        let size = &self.machine.size;
        if size.generation == Some(generation) && size.allocated == wanted.resources && size.pending.is_none()
        {
            return;
        }
        let before = self.machine.clone();
        let machine = &mut self.machine;
        let actions = self.node.rooms.decide(&self.handle.uid, |room| {
            let actions = machine.step(clock::now(), Event::Specified { wanted, generation, room });
            (machine.size.allocated.need(), actions)
        });
        self.after_step(&before, actions);
    }

    pub(super) fn step(&mut self, event: Event) {
        if matches!(event, Event::Sized { .. }) {
            self.is_resizing = false;
        }
        let before = self.machine.clone();
        let actions = self.machine.step(clock::now(), event);
        self.after_step(&before, actions);
    }

    fn after_step(&mut self, before: &Machine, actions: Vec<Action>) {
        if self.machine != *before || !actions.is_empty() {
            self.carry_out(actions);
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        if self.machine.stop.is_some() || self.machine.has_ended() {
            self.ending.send_replace(true);
        }
        if self.machine.has_ended() {
            self.node.rooms.release(&self.handle.uid);
        }
        // Written down before it matters: what is started from here on is found again.
        self.save();
        for action in actions {
            self.act(action);
        }
        if !self.is_forgotten {
            self.show();
        }
    }

    pub(super) fn save(&self) {
        let saved = Saved {
            boot: boot_id(),
            pod: Pod::clone(&self.pod()),
            machine: self.machine.clone(),
            ip: self.ip.borrow().clone(),
        };
        let directory = self.handle.directory.path();
        let made = neonvm_kit::private::directory(directory);
        if let Err(error) = made.and_then(|()| saved.write(&self.handle.directory)) {
            tracing::error!(%error, path = %directory.display(), "the state of a pod cannot be written");
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Prepare => self.preparation = Some(prepare::start(self)),
            Action::Start { container } => container::start(self, &container),
            Action::Resize => resize::start(self),
            Action::Terminate { container } => {
                if let Some(process) = self.processes().get(&container) {
                    process.terminate();
                }
            }
            Action::Kill { container } => container::kill(self, &container),
            Action::CleanUp => {
                self.preparation = None;
                self.probes.clear();
                clean::start(self);
            }
            Action::Remove => self.reports.send_modify(|report| report.remove = true),
            Action::Forget => {
                clean::forget(self);
                self.is_forgotten = true;
            }
            Action::Note { warning, reason, message } => {
                let pod = self.pod();
                if warning {
                    self.node.events.warning(&pod, reason, message);
                } else {
                    self.node.events.normal(&pod, reason, message);
                }
            }
        }
    }

    /// Shows the state to the API server, the node's server and the probes.
    fn show(&mut self) {
        self.handle.started.lock().retain(|name, _| self.machine.running().any(|running| running == name));
        let processes = self.processes();
        let containers = self.machine.runs.iter().map(|(name, run)| {
            let view = ContainerView {
                restarts: run.restarts,
                process: processes.get(name).map(|process| process.identity),
                is_over: matches!(run.state, State::Ended(_)) || self.machine.has_ended(),
            };
            (name.clone(), view)
        });
        let view = View { ip: self.ip.borrow().clone(), containers: containers.collect() };
        self.handle.view.send_if_modified(|old| {
            let differs = *old != view;
            *old = view;
            differs
        });
        self.watch_containers();
        if !self.is_seen {
            return;
        }
        let mut pod = Pod::clone(&self.pod());
        let theirs = pod.status.take().and_then(|status| status.conditions).unwrap_or_default();
        let mut base = self.shown.clone();
        let conditions = base.conditions.get_or_insert_default();
        conditions.retain(|condition| rows_know(&condition.type_));
        conditions.extend(theirs.into_iter().filter(|condition| !rows_know(&condition.type_)));
        pod.status = Some(base);
        let status = self.machine.status(&pod, &self.surroundings(), clock::now());
        if status != self.shown {
            self.shown = status.clone();
            self.reports.send_modify(|report| report.status = Some(status));
        }
    }

    /// Starts the probes of containers that run, and ends those of others.
    fn watch_containers(&mut self) {
        let pod = self.pod();
        let is_up = |name: &str| {
            let run = self.machine.runs.get(name);
            run.filter(|run| matches!(run.state, State::Running { .. })).map(|run| run.started)
        };
        self.probes.retain(|(name, kind), _| match is_up(name) {
            Some(started) => (*kind == ProbeKind::Startup) != started,
            None => false,
        });
        for spec in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let Some(started) = is_up(&spec.name) else { continue };
            let all = [
                (ProbeKind::Startup, &spec.startup_probe),
                (ProbeKind::Readiness, &spec.readiness_probe),
                (ProbeKind::Liveness, &spec.liveness_probe),
            ];
            for (kind, wanted) in all {
                let key = (spec.name.clone(), kind);
                let (Some(wanted), true) = (wanted, (kind == ProbeKind::Startup) != started) else {
                    continue;
                };
                if !self.probes.contains_key(&key) {
                    let target = probe::Target {
                        container: spec.clone(),
                        handle: Arc::clone(&self.handle),
                        node: Arc::clone(&self.node),
                    };
                    let task = tokio::spawn(probe::run(kind, wanted.clone(), target, self.events.clone()));
                    self.probes.insert(key, Task(task));
                }
            }
        }
    }
}
