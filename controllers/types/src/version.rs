//! Protocol versions and how two sides agree on one.
//!
//! A version is a bare integer on the wire; 0 is invalid. A newer peer may use versions that this build does not
//! support.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Common to all protocol version types.
pub trait ProtocolVersion: Copy + Ord + fmt::Display {
    /// The newest version that this build supports.
    const LATEST: Self;

    /// The number on the wire.
    fn number(self) -> u32;
}

/// Defines a version type with its named versions, oldest first.
macro_rules! protocol_version {
    ($(#[$doc:meta])* $type:ident { $($(#[$version_doc:meta])* $constant:ident = $number:literal, $name:literal;)* } latest $latest:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(pub u32);

        impl $type {
            $($(#[$version_doc])* pub const $constant: Self = Self($number);)*

            fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($name),)*
                    _ => None,
                }
            }
        }

        impl ProtocolVersion for $type {
            const LATEST: Self = Self::$latest;

            fn number(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None if self.0 == 0 => f.write_str("<invalid: zero>"),
                    None => {
                        let newer = self.0.saturating_sub(Self::LATEST.0);
                        write!(f, "<unknown = {} + {newer}>", Self::LATEST)
                    }
                }
            }
        }
    };
}

protocol_version! {
    /// Agent to scheduler.
    PluginProtoVersion {
        /// First version of the protocol.
        V1_0 = 1, "v1.0";
        /// `metrics` may be null.
        V1_1 = 2, "v1.1";
        /// CPU may be fractional.
        V2_0 = 3, "v2.0";
        /// The agent adds `lastPermit`.
        V2_1 = 4, "v2.1";
        /// The scheduler no longer names a compute unit.
        V3_0 = 5, "v3.0";
        /// Memory in bytes; the agent sends `computeUnit`.
        V4_0 = 6, "v4.0";
        /// `metrics` without five-minute load and memory usage.
        V5_0 = 7, "v5.0";
    } latest V5_0
}

impl PluginProtoVersion {
    /// Whether `metrics` may be null.
    #[must_use]
    pub fn allows_nil_metrics(self) -> bool {
        self >= Self::V1_1
    }

    /// Whether CPU may be a fraction.
    #[must_use]
    pub fn supports_fractional_cpu(self) -> bool {
        self >= Self::V2_0
    }

    /// Whether the request has a `lastPermit`.
    #[must_use]
    pub fn has_last_permit(self) -> bool {
        self >= Self::V2_1
    }

    /// Whether the scheduler's answer names the compute unit.
    #[must_use]
    pub fn scheduler_sends_compute_unit(self) -> bool {
        self < Self::V3_0
    }

    /// Whether the agent names the compute unit.
    #[must_use]
    pub fn agent_sends_compute_unit(self) -> bool {
        self >= Self::V4_0
    }

    /// Whether memory is in bytes, not in slots.
    #[must_use]
    pub fn memory_is_bytes(self) -> bool {
        self >= Self::V4_0
    }

    /// Whether metrics carry `loadAvg5M` and `memoryUsageBytes`. Before v4.0 only the load was sent.
    #[must_use]
    pub fn includes_extended_metrics(self) -> bool {
        self < Self::V5_0
    }
}

protocol_version! {
    /// Agent to informant (legacy).
    InformantProtoVersion {
        /// First version of the protocol.
        V1_0 = 1, "v1.0";
        /// The informant may call `/try-upscale`.
        V1_1 = 2, "v1.1";
        /// The agent may call `/health-check`.
        V1_2 = 3, "v1.2";
        /// Resource updates carry the agent's identity and a sequence number.
        V2_0 = 4, "v2.0";
    } latest V2_0
}

impl InformantProtoVersion {
    /// Whether the informant may call `/try-upscale`.
    #[must_use]
    pub fn has_try_upscale(self) -> bool {
        self >= Self::V1_1
    }

    /// Whether the agent may call `/health-check`.
    #[must_use]
    pub fn allows_health_check(self) -> bool {
        self >= Self::V1_2
    }

    /// Whether resource updates carry the agent's identity.
    #[must_use]
    pub fn signs_resource_updates(self) -> bool {
        self >= Self::V2_0
    }
}

protocol_version! {
    /// Agent to monitor.
    MonitorProtoVersion {
        /// First version of the protocol.
        V1_0 = 1, "v1.0";
        /// The monitor requests an amount, of CPU too.
        V2_0 = 2, "v2.0";
    } latest V2_0
}

impl MonitorProtoVersion {
    /// Whether an upscale request contains amounts.
    #[must_use]
    pub fn has_wants(self) -> bool {
        self >= Self::V2_0
    }
}

protocol_version! {
    /// Controller to runner; carried by the pod label `vm.neon.tech/runner-version` of old runners.
    RunnerProtoVersion {
        /// Fractional CPU in the cgroup.
        V1 = 1, "v1";
    } latest V1
}

impl RunnerProtoVersion {
    /// What the controller accepts. Pods without the label count as 0, the time before versions, or as current ones.
    pub const ACCEPTED: std::ops::RangeInclusive<u32> = 0..=1;

    /// Whether the runner's cgroup can hold a fraction of a CPU.
    #[must_use]
    pub fn supports_cgroup_fractional_cpu(self) -> bool {
        self >= Self::V1
    }
}

/// Versions from `min` to `max`, both included; JSON `{"min":1,"max":1}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRange<V> {
    /// Oldest supported version.
    pub min: V,
    /// Newest supported version.
    pub max: V,
}

impl<V: ProtocolVersion> VersionRange<V> {
    /// A range; `min` should not be above `max`, such a range shares nothing with any other.
    #[must_use]
    pub const fn new(min: V, max: V) -> Self {
        Self { min, max }
    }

    /// The range that holds one version.
    #[must_use]
    pub const fn only(version: V) -> Self {
        Self { min: version, max: version }
    }

    /// Whether the version lies in the range.
    #[must_use]
    pub fn contains(&self, version: V) -> bool {
        self.min <= version && version <= self.max
    }

    /// The newest version both ranges hold. Zero is never shared, because it is no version.
    #[must_use]
    pub fn highest_shared(&self, other: &Self) -> Option<V> {
        let (lowest, highest) = (self.min.max(other.min), self.max.min(other.max));
        (lowest <= highest && highest.number() != 0).then_some(highest)
    }
}

impl<V: ProtocolVersion> fmt::Display for VersionRange<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { self.min.fmt(f) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{PluginProtoVersion as P, *};

    #[test]
    fn texts() {
        for (version, text) in [
            (P::V1_0, "v1.0"),
            (P::V1_1, "v1.1"),
            (P::V2_0, "v2.0"),
            (P::V2_1, "v2.1"),
            (P::V3_0, "v3.0"),
            (P::V4_0, "v4.0"),
            (P::V5_0, "v5.0"),
            (P(0), "<invalid: zero>"),
            (P(9), "<unknown = v5.0 + 2>"),
        ] {
            assert_eq!(version.to_string(), text);
        }
        assert_eq!(InformantProtoVersion(5).to_string(), "<unknown = v2.0 + 1>");
        assert_eq!(MonitorProtoVersion::V1_0.to_string(), "v1.0");
        assert_eq!(MonitorProtoVersion(0).to_string(), "<invalid: zero>");
        assert_eq!(VersionRange::new(P::V3_0, P::V5_0).to_string(), "v3.0 to v5.0");
        assert_eq!(VersionRange::only(P::V5_0).to_string(), "v5.0");
    }

    #[test]
    fn versions_are_bare_integers() {
        assert_eq!(serde_json::to_string(&P::V5_0).unwrap(), "7");
        assert_eq!(serde_json::from_str::<P>("9").unwrap(), P(9));
        for json in ["-1", "4294967296", "\"7\"", "7.0"] {
            assert!(serde_json::from_str::<P>(json).is_err(), "{json}");
        }
    }

    /// Columns: nil metrics, fractional CPU, last permit, scheduler sends unit, agent sends unit, extended metrics.
    #[test]
    fn scheduler_predicates() {
        for (version, expected) in [
            (P::V1_0, [false, false, false, true, false, true]),
            (P::V1_1, [true, false, false, true, false, true]),
            (P::V2_0, [true, true, false, true, false, true]),
            (P::V2_1, [true, true, true, true, false, true]),
            (P::V3_0, [true, true, true, false, false, true]),
            (P::V4_0, [true, true, true, false, true, true]),
            (P::V5_0, [true, true, true, false, true, false]),
        ] {
            let actual = [
                version.allows_nil_metrics(),
                version.supports_fractional_cpu(),
                version.has_last_permit(),
                version.scheduler_sends_compute_unit(),
                version.agent_sends_compute_unit(),
                version.includes_extended_metrics(),
            ];
            assert_eq!(actual, expected, "{version}");
            assert_eq!(version.memory_is_bytes(), version.agent_sends_compute_unit());
        }
    }

    #[test]
    fn informant_predicates() {
        use InformantProtoVersion as I;
        for (version, expected) in [
            (I::V1_0, [false, false, false]),
            (I::V1_1, [true, false, false]),
            (I::V1_2, [true, true, false]),
            (I::V2_0, [true, true, true]),
        ] {
            let actual =
                [version.has_try_upscale(), version.allows_health_check(), version.signs_resource_updates()];
            assert_eq!(actual, expected, "{version}");
        }
    }

    #[test]
    fn runner_versions() {
        assert!(RunnerProtoVersion::V1.supports_cgroup_fractional_cpu());
        assert!(!RunnerProtoVersion(0).supports_cgroup_fractional_cpu());
        assert!(RunnerProtoVersion::ACCEPTED.contains(&1) && !RunnerProtoVersion::ACCEPTED.contains(&2));
    }

    #[test]
    fn what_the_releases_agreed_on() {
        let range = VersionRange::new;
        for (agent, plugin, shared) in [
            (range(P::V2_0, P::V2_0), range(P::V1_0, P::V2_0), Some(P::V2_0)),
            (range(P::V2_1, P::V2_1), range(P::V3_0, P::V4_0), None),
            (range(P::V4_0, P::V4_0), range(P::V3_0, P::V5_0), Some(P::V4_0)),
            (range(P::V4_0, P::V4_0), range(P::V5_0, P::V5_0), None),
            (range(P::V1_0, P(12)), range(P::V1_0, P::V5_0), Some(P::V5_0)),
            (range(P(0), P(0)), range(P(0), P::V5_0), None),
        ] {
            assert_eq!(agent.highest_shared(&plugin), shared, "{agent} with {plugin}");
        }
    }

    proptest! {
        #[test]
        fn agreement_is_symmetric_and_the_highest(a in 0u32..9, b in 0u32..9, c in 0u32..9, d in 0u32..9) {
            let (one, two) = (VersionRange::new(P(a), P(b)), VersionRange::new(P(c), P(d)));
            let shared = one.highest_shared(&two);
            prop_assert_eq!(shared, two.highest_shared(&one));
            let expected = (1..9).rev().map(P).find(|v| one.contains(*v) && two.contains(*v));
            prop_assert_eq!(shared, expected);
        }
    }
}
