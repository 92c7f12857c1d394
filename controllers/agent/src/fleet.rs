//! The VMs of this node: each that is to be scaled has a task.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt as _, watcher};
use neonvm_api::VirtualMachine;
use neonvm_api::names::{TRUE, label};
use neonvm_api::virtual_machine::Phase;
use neonvm_kit::watch_metrics::WatchMetrics;
use neonvm_types::agent_inspect::VmInspect;
use neonvm_types::{NamespacedName, Resources, Timestamp};

use crate::disks::DiskUses;
use crate::shared::{Shared, wall_clock};
use crate::vm::{self, Handle, Panic};

/// Ends of earlier tasks that are remembered.
const MOST_ENDS: usize = 10;
/// How often it is checked that the tasks of all VMs run.
const CHECK: Duration = Duration::from_secs(10);

/// Name of the watch of VMs in metrics.
const WATCH: &str = "VirtualMachines";

/// Reports the end of the watch of VMs when dropped.
struct Ended<'a>(&'a WatchMetrics);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended(WATCH);
    }
}

/// All VMs whose status names this node.
pub(crate) struct Fleet {
    shared: Arc<Shared>,
    node: String,
    members: Mutex<BTreeMap<NamespacedName, Member>>,
    listed: AtomicBool,
}

struct Member {
    vm: VirtualMachine,
    care: Care,
    /// The endpoint that the VM serves, and since when that is known.
    endpoint: Option<(String, Option<Timestamp>)>,
}

/// What is known of a VM that is to be scaled, besides the view of its task.
#[derive(Clone, Debug)]
pub(crate) struct Cared {
    pub(crate) vm: VirtualMachine,
    pub(crate) view: VmInspect,
    /// `ok`, `stuck`, `errored` (its object is invalid) or `panicked`.
    pub(crate) state: &'static str,
    pub(crate) since: Option<Timestamp>,
    pub(crate) ended: Option<Panic>,
    pub(crate) ends: Vec<Panic>,
    pub(crate) endpoint: Option<(String, Option<Timestamp>)>,
}

/// What is done about a VM.
enum Care {
    /// Nothing: it is not to be scaled, or not by us.
    None,
    /// It is scaled, since then; and how earlier tasks of the same run ended.
    Scaled { run: Run, handle: Arc<Handle>, since: Option<Timestamp>, ends: Vec<Panic> },
    /// It is to be scaled, but its object is invalid, for this reason. It keeps its size.
    Faulty(String),
}

/// Identity of a run; it changes when the VM is created or started again.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    uid: String,
    pod: String,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("node", &self.node).finish_non_exhaustive()
    }
}

pub(crate) fn key(vm: &VirtualMachine) -> NamespacedName {
    let meta = &vm.metadata;
    NamespacedName::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// The run of a VM that is on this node.
fn runs_here(vm: &VirtualMachine, node: &str) -> Option<Run> {
    let status = vm.status.as_ref()?;
    let alive = matches!(
        status.phase,
        Some(Phase::Running | Phase::Scaling | Phase::PreMigrating | Phase::Suspended)
    );
    let here = status.node == node && !status.pod_ip.is_empty() && !status.pod_name.is_empty();
    let leaving = vm.metadata.deletion_timestamp.is_some();
    let uid = vm.metadata.uid.clone().unwrap_or_default();
    (alive && here && !leaving).then(|| Run { uid, pod: status.pod_name.clone() })
}

/// The run of a VM that the agent of this node is to scale. Upstream drops a VM during a migration, when no agent then scales it.
fn to_scale(vm: &VirtualMachine, node: &str, scheduler: &str) -> Option<Run> {
    let enabled = vm.metadata.labels.as_ref()?.get(label::SCALING_ENABLED).is_some_and(|value| value == TRUE);
    let ours = vm.spec.scheduler_name.is_empty() || vm.spec.scheduler_name == scheduler;
    runs_here(vm, node).filter(|_| enabled && ours)
}

impl Fleet {
    pub(crate) fn new(shared: Arc<Shared>, node: String) -> Self {
        Self { shared, node, members: Mutex::default(), listed: AtomicBool::new(false) }
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all VMs of this node have been listed: this agent has its lease, and has read them.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// Watches the VMs of this node; never returns. Only they are sent by the server, where it can select them.
    pub(crate) async fn watch(&self) {
        let api: Api<DeserializeGuard<VirtualMachine>> = Api::all(self.shared.client.clone());
        let own = watcher::Config::default().fields(&format!("status.node={}", self.node));
        let watches = &self.shared.metrics.watches;
        let _ended = Ended(watches);
        let watch = |config| {
            let shown = watcher(api.clone(), config).backoff(neonvm_kit::watch::retry());
            shown.inspect(|shown| watches.observe(WATCH, shown)).boxed()
        };
        let mut events = watch(own);
        let mut listed = Vec::new();
        let mut check = tokio::time::interval(CHECK);
        check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let event = tokio::select! {
                event = events.try_next() => event,
                _ = check.tick() => {
                    self.restart_ended();
                    continue;
                }
            };
            match event {
                Ok(Some(watcher::Event::Init)) => listed.clear(),
                Ok(Some(watcher::Event::InitApply(vm))) => {
                    if let Some(key) = self.take(vm).await {
                        listed.push(key);
                    }
                }
                Ok(Some(watcher::Event::InitDone)) => {
                    let gone: Vec<_> =
                        self.members().keys().filter(|key| !listed.contains(key)).cloned().collect();
                    gone.iter().for_each(|key| self.forget(key));
                    listed = Vec::new();
                    self.listed.store(true, Ordering::Release);
                }
                Ok(Some(watcher::Event::Apply(vm))) => drop(self.take(vm).await),
                Ok(Some(watcher::Event::Delete(vm))) => {
                    let meta = match &vm.0 {
                        Ok(vm) => &vm.metadata,
                        Err(invalid) => &invalid.metadata,
                    };
                    let (namespace, name) = (meta.namespace.clone(), meta.name.clone());
                    let key = NamespacedName::new(namespace.unwrap_or_default(), name.unwrap_or_default());
                    self.forget(&key);
                }
                Ok(None) => return,
                Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 400 => {
                    tracing::warn!(%status, "VMs cannot be selected by node here: all are watched; update the definition of VirtualMachine");
                    events = watch(watcher::Config::default());
                }
                Err(error) => tracing::warn!(%error, "VMs cannot be watched"),
            }
        }
    }

    /// Starts tasks of VMs again that have panicked: their objects may not change for long.
    fn restart_ended(&self) {
        let has_ended =
            |member: &&Member| matches!(&member.care, Care::Scaled { handle, .. } if !handle.is_running());
        let ended: Vec<VirtualMachine> =
            self.members().values().filter(has_ended).map(|member| member.vm.clone()).collect();
        for vm in ended {
            self.put(&key(&vm), &vm);
        }
    }

    /// Takes an object in. An object that cannot be read leaves the current state as it is.
    async fn take(&self, vm: DeserializeGuard<VirtualMachine>) -> Option<NamespacedName> {
        let vm = match vm.0 {
            Ok(vm) => vm,
            Err(invalid) => {
                let (namespace, name) = (invalid.metadata.namespace, invalid.metadata.name);
                tracing::error!(?namespace, ?name, error = %invalid.error, "a VM cannot be read; it is left alone");
                return Some(NamespacedName::new(namespace?, name?));
            }
        };
        let key = key(&vm);
        if vm.status.as_ref().is_none_or(|status| status.node != self.node) {
            self.forget(&key);
            return None;
        }
        let running = self.put(&key, &vm);
        if let Some(handle) = running {
            handle.object(vm).await;
        }
        Some(key)
    }

    /// Keeps an object; returns the task that must get it, if there was one before.
    fn put(&self, key: &NamespacedName, vm: &VirtualMachine) -> Option<Arc<Handle>> {
        let endpoint = vm.metadata.labels.as_ref().and_then(|all| all.get(label::ENDPOINT_ID));
        self.shared.scaling_events.endpoint(key, endpoint.map(String::as_str));
        let run = to_scale(vm, &self.node, &self.shared.config.scheduler.scheduler_name);
        let mut members = self.members();
        let (before, known) = members.remove(key).map(|member| (member.care, member.endpoint)).unzip();
        let known = known.flatten();
        let endpoint = endpoint.map(|id| {
            let since = known.as_ref().filter(|(known, _)| known == id).map(|(_, since)| *since);
            (id.clone(), since.unwrap_or_else(wall_clock))
        });
        let (care, running) = self.care(key, vm, run, before);
        members.insert(key.clone(), Member { vm: vm.clone(), care, endpoint });
        running
    }

    /// How a VM is treated from now on, and the task that must get its object, if there was one before.
    fn care(
        &self,
        key: &NamespacedName,
        vm: &VirtualMachine,
        run: Option<Run>,
        before: Option<Care>,
    ) -> (Care, Option<Arc<Handle>>) {
        let Some(run) = run else { return (Care::None, None) };
        if let Err(fault) = vm::check(vm) {
            let known = matches!(&before, Some(Care::Faulty(known)) if *known == fault);
            if !known {
                tracing::warn!(vm = %key, fault, "is not scaled as long as this is wrong");
            }
            return (Care::Faulty(fault), None);
        }
        let mut earlier = Vec::new();
        if let Some(Care::Scaled { run: same, handle, since, mut ends }) = before
            && same == run
        {
            if handle.is_running() {
                let running = Arc::clone(&handle);
                return (Care::Scaled { run, handle, since, ends }, Some(running));
            }
            ends.extend(handle.panic().cloned());
            let surplus = ends.len().saturating_sub(MOST_ENDS);
            ends.drain(..surplus);
            earlier = ends;
            self.shared.metrics.runner_restarted();
        }
        match vm::start(Arc::clone(&self.shared), vm) {
            Ok(handle) => {
                tracing::info!(vm = %key, pod = run.pod, "is scaled from now on");
                self.shared.metrics.runner_started();
                let (handle, since) = (Arc::new(handle), wall_clock());
                (Care::Scaled { run, handle, since, ends: earlier }, None)
            }
            Err(fault) => (Care::Faulty(fault), None),
        }
    }

    /// The VM is gone, or no longer here.
    fn forget(&self, key: &NamespacedName) {
        self.members().remove(key);
        self.shared.disks.forget(key);
        self.shared.scaling_events.endpoint(key, None);
    }

    /// VMs that run here and are not scaled, except for those that are paused.
    pub(crate) fn unscaled(&self) -> Vec<VirtualMachine> {
        let members = self.members();
        let unscaled = members.values().filter(|member| {
            let scaled = matches!(member.care, Care::Scaled { .. });
            !scaled && runs_here(&member.vm, &self.node).is_some() && !vm::is_paused(&member.vm)
        });
        unscaled.map(|member| member.vm.clone()).collect()
    }

    /// All objects.
    pub(crate) fn objects(&self) -> Vec<VirtualMachine> {
        self.members().values().map(|member| member.vm.clone()).collect()
    }

    /// What all VMs that are scaled look like, or the one of this name.
    pub(crate) async fn views(&self, only: Option<&NamespacedName>) -> Vec<VmInspect> {
        let mut views = Vec::new();
        let mut handles = Vec::new();
        for (key, member) in self.members().iter() {
            if only.is_some_and(|only| only != key) {
                continue;
            }
            match &member.care {
                Care::None => {}
                Care::Scaled { handle, .. } => {
                    handles.push((views.len(), Arc::clone(handle)));
                    views.push(self.bare(member, "its task has ended"));
                }
                Care::Faulty(fault) => views.push(self.bare(member, fault)),
            }
        }
        for (place, handle) in handles {
            if let (Some(view), Some(found)) = (views.get_mut(place), handle.view().await) {
                *view = found;
            }
        }
        views
    }

    /// All VMs that are to be scaled.
    pub(crate) async fn cared(&self) -> Vec<Cared> {
        let views = self.views(None).await;
        let members = self.members();
        let of = |view: VmInspect| {
            let key = NamespacedName::new(view.namespace.clone(), view.name.clone());
            let member = members.get(&key)?;
            let (mut state, mut since, mut ended, mut ends) = ("errored", None, None, Vec::new());
            if let Care::Scaled { handle, since: started, ends: earlier, .. } = &member.care {
                state = match (handle.is_running(), view.stuck.is_some()) {
                    (false, _) => "panicked",
                    (true, true) => "stuck",
                    (true, false) => "ok",
                };
                (since, ended, ends) = (*started, handle.panic().cloned(), earlier.clone());
            }
            let (vm, endpoint) = (member.vm.clone(), member.endpoint.clone());
            Some(Cared { vm, view, state, since, ended, ends, endpoint })
        };
        views.into_iter().filter_map(of).collect()
    }

    pub(crate) fn disks(&self) -> &DiskUses {
        &self.shared.disks
    }

    pub(crate) fn metrics(&self) -> &crate::metrics::Metrics {
        &self.shared.metrics
    }

    /// The view of a VM that should be scaled but has no task.
    fn bare(&self, member: &Member, why: &str) -> VmInspect {
        let guest = &member.vm.spec.guest;
        let slot = guest.slot_size().unwrap_or_default();
        let asked =
            Resources::new(guest.cpus.r#use, slot.saturating_mul(u32::from(guest.memory_slots.r#use)));
        let key = key(&member.vm);
        VmInspect {
            name: key.name,
            namespace: key.namespace,
            asked: Some(asked),
            compute_unit: self.shared.settings.compute_unit,
            state: "not scaled".into(),
            stuck: Some(why.to_owned()),
            ..VmInspect::default()
        }
    }

    /// Ends all tasks.
    pub(crate) fn clear(&self) {
        self.listed.store(false, Ordering::Release);
        self.members().clear();
    }
}
