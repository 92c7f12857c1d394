//! What can be waited for. Pure.

use neonvm_api::PodAutoscaler;

use crate::commands::podautoscaler::show;
use crate::error::{Code, Error, Result};

/// A condition on a pod autoscaler.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Predicate {
    Ready,
    Deleted,
    Replicas(Comparison, i32),
    Condition(String, String),
    /// An expression, and the text it must select.
    Path(String, Option<String>),
}

/// How numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    AtLeast,
    AtMost,
    Equal,
}

impl Predicate {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let bad = || {
            Error::new(Code::Usage, format!("--for: {text:?} is not a valid condition")).hint(
                "use ready, replicas=N, replicas>=N, condition=TYPE[=STATUS], jsonpath=EXPR[=VALUE] or deleted",
            )
        };
        match text {
            "ready" => return Ok(Self::Ready),
            "deleted" | "delete" => return Ok(Self::Deleted),
            _ => {}
        }
        let operators = [(">=", Comparison::AtLeast), ("<=", Comparison::AtMost), ("=", Comparison::Equal)];
        let at = text.find(['<', '>', '=']).ok_or_else(bad)?;
        let (key, rest) = text.split_at_checked(at).ok_or_else(bad)?;
        let found =
            operators.iter().find_map(|(sign, comparison)| Some((*comparison, rest.strip_prefix(sign)?)));
        let (comparison, value) = found.filter(|(_, value)| !value.is_empty()).ok_or_else(bad)?;
        Ok(match key {
            "replicas" => {
                Self::Replicas(comparison, value.parse().ok().filter(|count| *count >= 0).ok_or_else(bad)?)
            }
            _ if comparison != Comparison::Equal => return Err(bad()),
            "condition" => {
                let (name, status) = value.split_once('=').unwrap_or((value, "True"));
                Self::Condition(name.to_owned(), status.to_owned())
            }
            "jsonpath" => {
                let (path, wanted) = match value.rsplit_once("}=") {
                    Some((path, wanted)) => (format!("{path}}}"), Some(wanted.to_owned())),
                    None => (value.to_owned(), None),
                };
                crate::render::select(&path, &serde_json::Value::Null)?;
                Self::Path(path, wanted)
            }
            _ => return Err(bad()),
        })
    }

    /// Whether it is true. The status of an older spec does not count.
    pub(super) fn holds(&self, object: &PodAutoscaler) -> bool {
        let is = |kind: &str, wanted: &str| {
            object.status.iter().flat_map(|status| &status.conditions).any(|found| {
                found.type_.eq_ignore_ascii_case(kind) && found.status.eq_ignore_ascii_case(wanted)
            })
        };
        match self {
            Self::Ready => is("Ready", "True") && !show::is_stale(object),
            Self::Deleted => false,
            Self::Replicas(comparison, wanted) => {
                let observed = object
                    .status
                    .as_ref()
                    .filter(|status| status.recommendation.is_some() || !status.conditions.is_empty());
                observed.is_some_and(|status| match comparison {
                    Comparison::AtLeast => status.actual_scale >= *wanted,
                    Comparison::AtMost => status.actual_scale <= *wanted,
                    Comparison::Equal => status.actual_scale == *wanted,
                })
            }
            Self::Condition(kind, wanted) => is(kind, wanted),
            Self::Path(path, wanted) => {
                let value = serde_json::to_value(object).unwrap_or_default();
                let text = crate::render::select(path, &value).unwrap_or_default();
                wanted.as_ref().map_or(!text.is_empty(), |wanted| text == *wanted)
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
            ("condition=ready", true),
            ("condition=MetricsAvailable", false),
            ("condition=MetricsAvailable=False", true),
            ("condition=Nothing", false),
            ("deleted", false),
            ("jsonpath={.status.actualScale}=3", true),
            ("jsonpath={.status.lastScaleTime}", false),
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
            ["", "up", "replicas", "replicas=", "replicas=many", "replicas=-1", "condition>=Ready", "ü=", "<"]
        {
            assert_eq!(Predicate::parse(text).unwrap_err().code, Code::Usage, "{text}");
        }
    }
}
