//! Faults, and which of them a run has.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::rng::Rng;

macro_rules! faults {
    ($($name:ident $text:literal $help:literal,)*) => {
        /// What can go wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $(#[doc = $help] $name,)*
        }

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in scenarios and on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What happens, in words.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$name => $help,)* }
            }
        }
    };
}

faults! {
    AgentCrash "agent-crash" "An agent ends at any moment and starts again without state.",
    SchedulerCrash "scheduler-crash" "The scheduler ends at any moment; it, or its standby, starts from what is listed.",
    Handover "handover" "Another scheduler takes the lead.",
    Loss "loss" "A request to the scheduler or its answer is lost.",
    Delay "delay" "An answer takes seconds, and comes after later ones.",
    Duplicate "duplicate" "A message comes twice, the second time late.",
    Conflict "conflict" "The API server answers 409.",
    ApiError "api-error" "The API server answers 429 or 500.",
    LostReply "lost-reply" "A change is made, but its answer is lost.",
    WatchLag "watch-lag" "An agent's watch is seconds late.",
    PodLag "pod-lag" "The scheduler's watch is seconds late.",
    NoteLoss "note-loss" "What the scheduler notes at VMs is not written.",
    MonitorLost "monitor-lost" "The connection to a monitor ends.",
    MonitorSilent "monitor-silent" "A monitor does not answer for a while.",
    MonitorRefuses "monitor-refuses" "A guest refuses to shrink for minutes.",
    MonitorGarbage "monitor-garbage" "A monitor answers something else than asked, or asks for nonsense.",
    LostMetrics "lost-metrics" "Metrics cannot be read for a while.",
    LyingMetrics "lying-metrics" "Metrics are negative, no numbers, or absurd.",
    SlowResize "slow-resize" "Memory comes and goes very slowly.",
    StuckResize "stuck-resize" "Memory comes or goes in part, then nothing happens for minutes.",
    ResizeDeferred "resize-deferred" "A kubelet defers the resize of a pod for up to a minute, several times in a row.",
    BindFails "bind-fails" "Binding a pod fails, or succeeds without an answer.",
    NodeLoss "node-loss" "A node is gone, with all that ran there.",
    ControllerCrash "controller-crash" "The controller ends between any two writes and starts again without state.",
    ApiOutage "api-outage" "The API server answers the controller nothing for a while.",
    OrderLost "order-lost" "An order of the controller to a runner, or the answer, is lost or late.",
    RunnerDeath "runner-death" "A runner or its QEMU ends while its VM moves.",
    RunnerSilent "runner-silent" "The controller receives nothing from a runner for a while.",
    LinkLoss "link-loss" "The connection between the two runners of a move is cut for a while.",
    LinkDelay "link-delay" "Messages between two runners or QEMUs come late.",
    BusyGuest "busy-guest" "A guest changes its memory faster than it can be sent.",
    DevicesAway "devices-away" "A kubelet denies a resize while devices are away, and looks again only at another size.",
}

/// Short for several.
const GROUPS: &[(&str, &[Fault])] = &[
    (
        "crash",
        &[Fault::AgentCrash, Fault::SchedulerCrash, Fault::Handover, Fault::NodeLoss, Fault::ControllerCrash],
    ),
    ("network", &[Fault::Loss, Fault::Delay, Fault::Duplicate]),
    ("api", &[Fault::Conflict, Fault::ApiError, Fault::LostReply, Fault::NoteLoss, Fault::BindFails]),
    ("watch", &[Fault::WatchLag, Fault::PodLag]),
    ("guest", &[Fault::MonitorLost, Fault::MonitorSilent, Fault::MonitorRefuses, Fault::MonitorGarbage]),
    ("resize", &[Fault::SlowResize, Fault::StuckResize, Fault::ResizeDeferred, Fault::DevicesAway]),
    ("metrics", &[Fault::LostMetrics, Fault::LyingMetrics]),
    (
        "move",
        &[
            Fault::ControllerCrash,
            Fault::ApiOutage,
            Fault::OrderLost,
            Fault::RunnerDeath,
            Fault::RunnerSilent,
            Fault::LinkLoss,
            Fault::LinkDelay,
            Fault::BusyGuest,
        ],
    ),
    ("all", Fault::ALL),
    ("none", &[]),
];

/// A name that is no fault's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no fault {name:?}; write one of {}", names())]
pub struct UnknownFault {
    /// What was written.
    pub name: String,
}

fn names() -> String {
    let groups = GROUPS.iter().map(|(name, _)| *name);
    let all: Vec<&str> = groups.chain(Fault::ALL.iter().map(|fault| fault.name())).collect();
    all.join(", ")
}

/// A set of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultSet(u32);

impl FaultSet {
    /// None.
    pub const NONE: Self = Self(0);

    /// All.
    pub fn all() -> Self {
        Fault::ALL.iter().fold(Self::NONE, |set, fault| set.with(*fault))
    }

    /// With one more.
    #[must_use]
    pub const fn with(self, fault: Fault) -> Self {
        Self(self.0 | 1 << fault as u32)
    }

    /// Without one.
    #[must_use]
    pub const fn without(self, fault: Fault) -> Self {
        Self(self.0 & !(1 << fault as u32))
    }

    /// Both together.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it is one of them.
    pub const fn has(self, fault: Fault) -> bool {
        self.0 & 1 << fault as u32 != 0
    }

    /// In the order of [`Fault::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::ALL.iter().copied().filter(move |fault| self.has(*fault))
    }

    /// Each with a probability of one half.
    pub(crate) fn some(self, rng: &mut Rng) -> Self {
        // Drawn for every fault, so that the choice of one does not depend on which others are allowed. A fault that was added later
        // takes nothing from the generator, so that the runs of earlier seeds stay as they were.
        let later = rng.clone().chance(0.5);
        let drawn = Fault::ALL
            .iter()
            .filter(|fault| if **fault == Fault::DevicesAway { later } else { rng.chance(0.5) });
        Self(self.0 & drawn.fold(Self::NONE, |set, fault| set.with(*fault)).0)
    }
}

impl FromStr for FaultSet {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(word).try_fold(Self::NONE, |set, more| Ok(set.union(more?)))
    }
}

fn word(text: &str) -> Result<FaultSet, UnknownFault> {
    let group = GROUPS.iter().find(|(name, _)| *name == text).map(|(_, faults)| *faults);
    let single = Fault::ALL.iter().find(|fault| fault.name() == text).map(std::slice::from_ref);
    let found = group.or(single).ok_or_else(|| UnknownFault { name: text.to_owned() })?;
    Ok(found.iter().fold(FaultSet::NONE, |set, fault| set.with(*fault)))
}

impl fmt::Display for FaultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("none");
        }
        if *self == Self::all() {
            return f.write_str("all");
        }
        let names: Vec<&str> = self.iter().map(Fault::name).collect();
        f.write_str(&names.join(","))
    }
}

impl Serialize for FaultSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FaultSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for fault in Fault::ALL {
            let set = FaultSet::NONE.with(*fault);
            assert_eq!(set.to_string().parse(), Ok(set));
            assert!(!fault.help().is_empty());
        }
        assert_eq!("all".parse(), Ok(FaultSet::all()));
        assert_eq!("none".parse(), Ok(FaultSet::NONE));
        assert_eq!("crash, delay".parse::<FaultSet>().map(|set| set.iter().count()), Ok(6));
        let wrong = "crash,dely".parse::<FaultSet>().unwrap_err();
        assert!(wrong.to_string().starts_with("there is no fault \"dely\"; write one of crash, "), "{wrong}");
    }
}
