//! What of a pod's specification its life depends on.

use k8s_openapi::api::core::v1::{Container, Pod};
use neonvm_api::runner_pod::COMMAND;
use serde::{Deserialize, Serialize};

use super::Millis;

/// Grace time of pods that state none.
const GRACE_SECONDS: i64 = 30;

/// What of a pod's specification its life depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// In order.
    pub init: Vec<ContainerPlan>,
    /// Its containers, started together.
    pub main: Vec<ContainerPlan>,
    /// When containers are started again.
    pub restart: RestartPolicy,
    /// First pause before a restart.
    pub pause: Millis,
    /// How long containers may take to end.
    pub grace: Millis,
    /// Why this node cannot run the pod.
    pub unsupported: Option<String>,
}

/// One container of the specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerPlan {
    /// Name of the container.
    pub name: String,
    /// Its image, as the specification names it.
    pub image: String,
    /// Whether it has a startup probe.
    pub startup: bool,
    /// Whether it has a readiness probe.
    pub readiness: bool,
}

/// When containers are started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// Whenever they end.
    Always,
    /// When they fail.
    OnFailure,
    /// Never.
    Never,
}

impl Plan {
    /// From the object.
    pub fn from_pod(pod: &Pod, pause: Millis) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let containers = |list: &[Container]| list.iter().map(plan).collect::<Vec<_>>();
        let init = spec.init_containers.unwrap_or_default();
        let other = init.iter().chain(&spec.containers).find(|container| !is_runner(container));
        let seconds = spec.termination_grace_period_seconds.unwrap_or(GRACE_SECONDS);
        Self {
            unsupported: other.map(|container| {
                format!(
                    "container {} cannot run here: this node has no container runtime, it runs only containers whose \
                     command begins with \"{}\"",
                    container.name,
                    COMMAND.join(" ")
                )
            }),
            init: containers(&init),
            main: containers(&spec.containers),
            restart: match spec.restart_policy.as_deref() {
                Some("Never") => RestartPolicy::Never,
                Some("OnFailure") => RestartPolicy::OnFailure,
                _ => RestartPolicy::Always,
            },
            pause,
            grace: u64::try_from(seconds).unwrap_or(1).saturating_mul(1000),
        }
    }

    pub fn container(&self, name: &str) -> Option<&ContainerPlan> {
        self.init.iter().chain(&self.main).find(|container| container.name == name)
    }
}

fn plan(container: &Container) -> ContainerPlan {
    ContainerPlan {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        startup: container.startup_probe.is_some(),
        readiness: container.readiness_probe.is_some(),
    }
}

fn is_runner(container: &Container) -> bool {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    words.map(String::as_str).take(COMMAND.len()).eq(COMMAND)
}
