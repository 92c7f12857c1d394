//! What can be waited for. Pure.

use neonvm_api::PodAutoscaler;

use crate::commands::podautoscaler::show;
use crate::commands::resource::predicate::{self, Comparison};
use crate::error::{Code, Error, Result};

/// A condition on a pod autoscaler.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Predicate {
    Ready,
    Replicas(Comparison, i32),
}

impl Predicate {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let bad = || {
            Error::new(Code::Usage, format!("--for: {text:?} is not a valid condition"))
                .hint("use ready, replicas=N or replicas>=N (also <=); for other conditions use kubectl wait")
        };
        if text == "ready" {
            return Ok(Self::Ready);
        }
        let (key, comparison, value) = predicate::split(text).ok_or_else(bad)?;
        let count = value.parse().ok().filter(|count| key == "replicas" && *count >= 0);
        Ok(Self::Replicas(comparison, count.ok_or_else(bad)?))
    }

    /// Whether it is true. The status of an older spec does not count.
    pub(super) fn holds(&self, object: &PodAutoscaler) -> bool {
        let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
        match self {
            Self::Ready => {
                conditions.any(|found| found.type_ == "Ready" && found.status == "True")
                    && !show::is_stale(object)
            }
            Self::Replicas(comparison, wanted) => {
                let observed = object
                    .status
                    .as_ref()
                    .filter(|status| status.recommendation.is_some() || !status.conditions.is_empty());
                observed.is_some_and(|status| comparison.holds(&status.actual_scale, wanted))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::podautoscaler::show::tests::{condition, object};

    #[test]
    fn what_is_and_what_is_not() {
        let seen = object(&json!({ "actualScale": 3, "desiredScale": 3, "observedGeneration": 1,
            "conditions": [condition("Ready", "True", ""), condition("MetricsAvailable", "False", "")] }));
        for (text, expected) in [
            ("ready", true),
            ("replicas=3", true),
            ("replicas=4", false),
            ("replicas>=3", true),
            ("replicas<=2", false),
        ] {
            assert_eq!(Predicate::parse(text).unwrap().holds(&seen), expected, "{text}");
        }
        let mut changed = seen;
        changed.metadata.generation = Some(2);
        assert!(!Predicate::Ready.holds(&changed), "the status speaks of an older spec");
        let new = object(&json!({}));
        assert!(!Predicate::Replicas(Comparison::Equal, 0).holds(&new), "no controller has counted");
    }

    #[test]
    fn what_cannot_be_waited_for_is_refused() {
        for text in
            ["", "up", "replicas", "replicas=", "replicas=many", "replicas=-1", "condition=Ready", "ü=", "<"]
        {
            assert_eq!(Predicate::parse(text).unwrap_err().code, Code::Usage, "{text}");
        }
    }
}
