//! If several objects scale one target, the oldest does. The result depends on the objects alone, not on the order in
//! which they were observed, so it is the same after a restart and on every replica of the controller.

use std::collections::BTreeMap;

use jiff::Timestamp;
use neonvm_api::{
    PodAutoscaler,
    pod_autoscaler::{ScalingStrategy, annotation},
};

/// An object that is scaled. The version of its API is ignored in comparisons.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub namespace: String,
    /// Its API group; empty for the core group.
    pub group: String,
    /// Kind of the target.
    pub kind: String,
    /// Name of the target.
    pub name: String,
}

impl Target {
    /// A target by its `apiVersion`.
    #[must_use]
    pub fn new(namespace: &str, api_version: &str, kind: &str, name: &str) -> Self {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let [namespace, group, kind, name] = [namespace, group, kind, name].map(str::to_owned);
        Self { namespace, group, kind, name }
    }
}

/// An autoscaler that wants a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its namespace and name.
    pub owner: (String, String),
    /// Its unique id.
    pub uid: String,
    /// When it was made; without it, it is the youngest.
    pub created: Option<Timestamp>,
    /// What it wants.
    pub target: Target,
    /// The part of it, if it is not the whole.
    pub role: Option<String>,
}

impl Claim {
    /// The part of a target that an object claims. Only valid objects that are not being deleted should be passed.
    #[must_use]
    pub fn from_object(object: &PodAutoscaler) -> Self {
        let metadata = &object.metadata;
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let reference = &object.spec.scale_target_ref;
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let target = Target::new(
            &namespace,
            &text(&reference.api_version),
            &text(&reference.kind),
            &text(&reference.name),
        );
        Self {
            owner: (namespace, metadata.name.clone().unwrap_or_default()),
            uid: metadata.uid.clone().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            target,
            role: part(object).map(str::to_owned),
        }
    }

    fn age(&self) -> (bool, Option<Timestamp>, &(String, String)) {
        (self.created.is_none(), self.created, &self.owner)
    }

    /// Whether two cannot both be served: the same target, and the same role or the whole of it.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.target == other.target
            && (self.role.is_none() || other.role.is_none() || self.role == other.role)
    }
}

/// The role whose replicas an object writes; `None` if it writes the replicas of the whole target.
#[must_use]
pub fn part(object: &PodAutoscaler) -> Option<&str> {
    let mode = object.metadata.annotations.as_ref().and_then(|all| all.get(annotation::STORM_SERVICE_MODE));
    let whole =
        mode.is_some_and(|mode| mode == "replica") || object.spec.scaling_strategy == ScalingStrategy::Hpa;
    if whole { None } else { object.spec.role() }
}

/// A `HorizontalPodAutoscaler` and what it scales.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Its name, in the namespace of its target.
    pub name: String,
    /// The unique id of the object that controls it, if there is one.
    pub controller: Option<String>,
    /// What it scales.
    pub target: Target,
}

/// Whether an autoscaler has its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Owner,
    /// An older one has it.
    Taken {
        /// Namespace and name of the older one.
        by: (String, String),
        /// The role that one scales, if it is not the whole target.
        role: Option<String>,
    },
    /// A `HorizontalPodAutoscaler` that this controller did not create scales it.
    Foreign {
        /// Name of the `HorizontalPodAutoscaler`.
        name: String,
    },
}

impl Verdict {
    /// Whether it may scale.
    #[must_use]
    pub const fn is_owner(&self) -> bool {
        matches!(self, Self::Owner)
    }

    /// Why it may not scale; empty if it may.
    #[must_use]
    pub fn message(&self, claim: &Claim) -> String {
        let target = format!("{} {}", claim.target.kind, claim.target.name);
        match self {
            Self::Owner => String::new(),
            Self::Taken { by: (namespace, name), role } => {
                let part = role.as_ref().map_or_else(String::new, |role| format!(", role {role}"));
                format!(
                    "{target}{part} is scaled by the older PodAutoscaler {namespace}/{name}; delete one of the two"
                )
            }
            Self::Foreign { name } => {
                format!("{target} is scaled by the HorizontalPodAutoscaler {name}; delete it or this object")
            }
        }
    }
}

/// The verdict for each claim, by namespace and name. Among those that overlap, the oldest has the target; of the same age,
/// the first by namespace and name. A claim that lost does not block others.
///
/// A `HorizontalPodAutoscaler` that none of the claims controls comes before all of them: it scales already, and does not
/// take claims into account. One that a claim controls belongs to that claim, and does not count as foreign for the others:
/// they compete with its owner.
#[must_use]
pub fn resolve(claims: &[Claim], foreign: &[Foreign]) -> BTreeMap<(String, String), Verdict> {
    let mut by_target: BTreeMap<&Target, Vec<&Claim>> = BTreeMap::new();
    for claim in claims {
        by_target.entry(&claim.target).or_default().push(claim);
    }
    let ours = |hpa: &&Foreign| {
        !hpa.controller.as_ref().is_some_and(|uid| claims.iter().any(|claim| claim.uid == *uid))
    };
    let mut strangers: BTreeMap<&Target, &Foreign> = BTreeMap::new();
    for hpa in foreign.iter().filter(ours) {
        let first = strangers.entry(&hpa.target).or_insert(hpa);
        if hpa.name < first.name {
            *first = hpa;
        }
    }
    let mut verdicts = BTreeMap::new();
    for (target, mut group) in by_target {
        group.sort_by(|a, b| a.age().cmp(&b.age()));
        let mut owners: Vec<&Claim> = Vec::new();
        for claim in group {
            let verdict = if let Some(hpa) = strangers.get(target) {
                Verdict::Foreign { name: hpa.name.clone() }
            } else if let Some(owner) = owners.iter().find(|owner| owner.overlaps(claim)) {
                Verdict::Taken { by: owner.owner.clone(), role: owner.role.clone() }
            } else {
                owners.push(claim);
                Verdict::Owner
            };
            verdicts.insert(claim.owner.clone(), verdict);
        }
    }
    verdicts
}
