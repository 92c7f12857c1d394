//! The status of a pod, as its object shows it.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Pod, PodCondition, PodIP, PodStatus,
};

use super::size::{IN_PROGRESS, PENDING};
use super::{ContainerPlan, Ended, Machine, Millis, Run, State, time};

/// The parts of a status beside the VM's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Address of the node.
    pub host_ip: String,
    /// Empty before the network is there.
    pub pod_ip: String,
    pub uid: String,
}

/// Whether a pod has ended, by its object.
#[must_use]
pub fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn container_id(uid: &str, name: &str, restarts: u32) -> String {
    format!("process://{uid}/{name}/{restarts}")
}

fn terminated(ended: &Ended, id: String) -> ContainerState {
    let terminated = ContainerStateTerminated {
        container_id: Some(id),
        exit_code: ended.code,
        signal: ended.signal,
        reason: Some(ended.reason.clone()),
        message: Some(ended.message.clone()).filter(|message| !message.is_empty()),
        started_at: Some(time(ended.started)),
        finished_at: Some(time(ended.finished)),
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

impl Machine {
    fn container_status(&self, plan: &ContainerPlan, run: &Run, uid: &str) -> ContainerStatus {
        let id = container_id(uid, &plan.name, run.restarts);
        let waiting = |reason: &str, message: &str| ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()).filter(|message| !message.is_empty()),
            }),
            ..ContainerState::default()
        };
        let is_live = matches!(run.state, State::Running { .. } | State::Ended(_));
        let state = match (&run.state, &self.failure, &self.hold_up) {
            (State::Running { since }, ..) => ContainerState {
                running: Some(ContainerStateRunning { started_at: Some(time(*since)) }),
                ..ContainerState::default()
            },
            (State::Ended(ended), ..) => terminated(ended, id.clone()),
            (_, Some((reason, message)), _) => waiting(reason, message),
            (State::Waiting { .. } | State::Starting, None, Some((reason, message))) => {
                waiting(reason, message)
            }
            (State::Waiting { reason, message, .. }, ..) => waiting(reason, message),
            (State::Starting, ..) => waiting("ContainerCreating", ""),
        };
        let previous = run.restarts.checked_sub(1);
        let last = run.last.as_ref().zip(previous);
        let mut status = ContainerStatus {
            name: plan.name.clone(),
            image: plan.image.clone(),
            image_id: String::new(),
            container_id: is_live.then_some(id),
            state: Some(state),
            last_state: last.map(|(ended, n)| terminated(ended, container_id(uid, &plan.name, n))),
            ready: run.ready && matches!(run.state, State::Running { .. })
                || self.plan.init.contains(plan)
                    && matches!(&run.state, State::Ended(ended) if ended.code == 0),
            started: Some(run.started && matches!(run.state, State::Running { .. })),
            restart_count: i32::try_from(run.restarts).unwrap_or(i32::MAX),
            ..ContainerStatus::default()
        };
        self.size.show(&mut status);
        status
    }

    fn statuses(&self, plans: &[ContainerPlan], uid: &str) -> Vec<ContainerStatus> {
        let of =
            |plan: &ContainerPlan| self.runs.get(&plan.name).map(|run| self.container_status(plan, run, uid));
        plans.iter().filter_map(of).collect()
    }

    fn are_initialized(&self) -> bool {
        self.plan.init.iter().all(|plan| {
            let run = self.runs.get(&plan.name);
            matches!(run.map(|run| &run.state), Some(State::Ended(ended)) if ended.code == 0)
        })
    }

    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub fn pod_phase(&self) -> &'static str {
        let runs = || self.plan.main.iter().filter_map(|plan| self.runs.get(&plan.name));
        if self.failure.is_some() {
            return "Failed";
        }
        if self.has_ended() {
            let succeeded = |run: &Run| matches!(&run.state, State::Ended(ended) if ended.code == 0);
            return if runs().all(succeeded) { "Succeeded" } else { "Failed" };
        }
        let began = runs()
            .any(|run| matches!(run.state, State::Running { .. } | State::Ended(_)) || run.last.is_some());
        if began { "Running" } else { "Pending" }
    }

    fn conditions(&self, pod: &Pod, now: Millis, networked: bool) -> Vec<PodCondition> {
        let old = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let phase = self.pod_phase();
        let unready: Vec<&str> = self
            .plan
            .main
            .iter()
            .filter(|plan| self.runs.get(&plan.name).is_none_or(|run| !run.ready))
            .map(|plan| plan.name.as_str())
            .collect();
        let (reason, message) = match phase {
            "Succeeded" => ("PodCompleted", String::new()),
            "Failed" => ("PodFailed", String::new()),
            _ => ("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" "))),
        };
        let is_up = !self.has_ended() && unready.is_empty();
        let uninitialized = ("ContainersNotInitialized", String::from("init containers have not completed"));
        let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
        let gate_open = |kind: &str| old.iter().any(|c| c.type_ == kind && c.status == "True");
        let closed = gates.iter().find(|gate| !gate_open(&gate.condition_type));
        let ready_why = match closed {
            Some(gate) if is_up => (
                "ReadinessGatesNotReady",
                format!("the status of pod readiness gate {:?} is not \"True\"", gate.condition_type),
            ),
            _ => (reason, message.clone()),
        };
        let rows = [
            ("PodReadyToStartContainers", networked && !self.has_ended(), ("", String::new())),
            ("Initialized", self.are_initialized(), uninitialized),
            ("Ready", is_up && closed.is_none(), ready_why),
            ("ContainersReady", is_up, (reason, message)),
            ("PodScheduled", true, ("", String::new())),
        ];
        let mut all: Vec<PodCondition> = rows
            .into_iter()
            .map(|(type_, is_true, (reason, message))| {
                let status = if is_true { "True" } else { "False" };
                let text = |text: String| Some(text).filter(|text| !text.is_empty() && !is_true);
                let same = old.iter().find(|c| c.type_ == type_ && c.status == status);
                PodCondition {
                    type_: type_.to_owned(),
                    status: status.to_owned(),
                    reason: text(reason.to_owned()),
                    message: text(message),
                    last_transition_time: same
                        .and_then(|c| c.last_transition_time.clone())
                        .or_else(|| Some(time(now))),
                    ..PodCondition::default()
                }
            })
            .collect();
        if !self.has_ended() {
            all.extend(self.size.conditions());
        }
        let foreign = |c: &&PodCondition| !rows_know(&c.type_);
        all.extend(old.iter().filter(foreign).cloned());
        all
    }

    /// The status to show. Conditions of others are kept.
    pub fn status(&self, pod: &Pod, around: &Surroundings, now: Millis) -> PodStatus {
        let networked = !around.pod_ip.is_empty();
        let (reason, message) = self.failure.clone().map_or((None, None), |(r, m)| (Some(r), Some(m)));
        let old = pod.status.clone().unwrap_or_default();
        PodStatus {
            phase: Some(self.pod_phase().to_owned()),
            conditions: Some(self.conditions(pod, now, networked)),
            reason,
            message,
            host_ip: Some(around.host_ip.clone()),
            host_ips: Some(vec![HostIP { ip: around.host_ip.clone() }]),
            pod_ip: networked.then(|| around.pod_ip.clone()),
            pod_ips: networked.then(|| vec![PodIP { ip: around.pod_ip.clone() }]),
            start_time: old.start_time.or_else(|| Some(time(self.since))),
            init_container_statuses: Some(self.statuses(&self.plan.init, &around.uid))
                .filter(|all| !all.is_empty()),
            container_statuses: Some(self.statuses(&self.plan.main, &around.uid)),
            qos_class: old.qos_class,
            observed_generation: self.size.generation.or(pod.metadata.generation),
            resources: self.size.allocated.whole().cloned(),
            allocated_resources: self.size.allocated.whole().and_then(|whole| whole.requests.clone()),
            ..PodStatus::default()
        }
    }
}

/// Conditions that are there only while something is the matter.
pub const PASSING: [&str; 2] = [PENDING, IN_PROGRESS];

/// Whether a condition is the node's to set.
pub fn rows_know(type_: &str) -> bool {
    PASSING.contains(&type_)
        || matches!(
            type_,
            "PodReadyToStartContainers" | "Initialized" | "Ready" | "ContainersReady" | "PodScheduled"
        )
}
