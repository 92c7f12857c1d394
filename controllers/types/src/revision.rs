//! Revisions: how a change of size is tracked from its requester to the VM that shows it.
//!
//! The agent writes `spec.targetRevision` with each change; the controller copies it to `status.currentRevision` once
//! the VM runs with the requested size. Values may go backwards after an agent restart, so only equality counts.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, decode::field};

/// A set of bits: the kinds of change that belong to a revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RevisionFlags(pub u64);

impl RevisionFlags {
    /// No bits.
    pub const NONE: Self = Self(0);
    /// The VM grew.
    pub const UPSCALE: Self = Self(1);
    /// The VM shrank.
    pub const DOWNSCALE: Self = Self(2);

    /// Both sets together.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These bits without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A counter with flags; JSON `{"value":1,"flags":1}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Revision {
    /// Counter that the agent increases with each change.
    #[serde(default, deserialize_with = "field::value")]
    pub value: i64,
    /// What the change did.
    #[serde(default, deserialize_with = "field::flags")]
    pub flags: RevisionFlags,
}

/// A revision and when it was set; JSON `{"revision":{…},"updatedAt":"2024-07-01T11:00:00Z"}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RevisionWithTime {
    /// Revision that was reached.
    #[serde(default, deserialize_with = "field::revision")]
    pub revision: Revision,
    /// When it was set; `None`, the zero time, is written as `null`.
    #[serde(rename = "updatedAt", default, deserialize_with = "field::updated_at")]
    pub updated_at: Option<Timestamp>,
}

impl RevisionWithTime {
    /// The revision that `status.currentRevision` must become, or `None` if it already shows the target's.
    /// `now` becomes its time, because the status holds the time at which the size was reached, not requested.
    #[must_use]
    pub fn propagated(target: Option<Self>, current: Option<Self>, now: Timestamp) -> Option<Self> {
        let target = target?;
        let reached = current.is_some_and(|current| current.revision == target.revision);
        (!reached).then_some(Self { revision: target.revision, updated_at: Some(now) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(value: i64, flags: RevisionFlags, seconds: i64) -> RevisionWithTime {
        RevisionWithTime { revision: Revision { value, flags }, updated_at: Timestamp::from_unix(seconds) }
    }

    #[test]
    fn encodes_as_specified() {
        let json = serde_json::to_string(&at(1, RevisionFlags::UPSCALE, 1_719_831_600)).unwrap();
        assert_eq!(json, r#"{"revision":{"value":1,"flags":1},"updatedAt":"2024-07-01T11:00:00Z"}"#);
        let zero = serde_json::to_string(&RevisionWithTime::default()).unwrap();
        assert_eq!(zero, r#"{"revision":{"value":0,"flags":0},"updatedAt":null}"#);
        assert_eq!(serde_json::from_str::<RevisionWithTime>(&zero).unwrap(), RevisionWithTime::default());
    }

    #[test]
    fn flags_are_a_set() {
        let both = RevisionFlags::UPSCALE.union(RevisionFlags::DOWNSCALE);
        assert_eq!(both, RevisionFlags(3));
        assert!(both.contains(RevisionFlags::UPSCALE) && !RevisionFlags::NONE.contains(both));
        assert_eq!(both.without(RevisionFlags::UPSCALE), RevisionFlags::DOWNSCALE);
    }

    #[test]
    fn errors_name_the_nested_field() {
        for (json, start) in [
            (r#"{"revision":{"value":1,"flags":-1}}"#, "revision: flags: invalid value: integer `-1`"),
            (r#"{"revision":{"value":9223372036854775808}}"#, "revision: value: invalid value"),
            (r#"{"updatedAt":"yesterday"}"#, "updatedAt: \"yesterday\" is not a time"),
        ] {
            let error = serde_json::from_str::<RevisionWithTime>(json).unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[test]
    fn a_revision_is_propagated_once_even_backwards() {
        let now = Timestamp::from_unix(100).unwrap();
        let target = at(3, RevisionFlags::UPSCALE, 50);
        let reached = RevisionWithTime::propagated(Some(target), Some(at(7, RevisionFlags::NONE, 60)), now);
        assert_eq!(reached, Some(at(3, RevisionFlags::UPSCALE, 100)));
        assert_eq!(RevisionWithTime::propagated(Some(target), reached, now), None);
        assert_eq!(RevisionWithTime::propagated(None, reached, now), None);
        assert!(RevisionWithTime::propagated(Some(at(3, RevisionFlags::NONE, 50)), reached, now).is_some());
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(value: i64, flags: u64, seconds in 0i64..1 << 37) {
            let revision = at(value, RevisionFlags(flags), seconds);
            let json = serde_json::to_string(&revision).unwrap();
            prop_assert_eq!(serde_json::from_str::<RevisionWithTime>(&json).unwrap(), revision);
        }
    }
}
