//! `podautoscaler wait`

use neonvm_api::PodAutoscaler;

use super::show::{self, Word};
use crate::args::podautoscaler::Wait;
use crate::commands::finals;
use crate::commands::flags::duration;
use crate::commands::resource::wait::{self, Messages};
use crate::commands::resource::{self, Comparison, NamespaceClient};
use crate::commands::watching::WaitProgress;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings::Settings;

pub(crate) fn run(settings: &Settings, args: &Wait) -> Result<Report> {
    let predicate = Predicate::parse(&args.predicate)?;
    let limit = duration("timeout", &args.timeout)?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let (name, what) = (&args.name, &args.predicate);
        let known = Some(client.find(name).await?);
        let messages = Messages {
            what,
            continues: "scaling",
            again: &format!("neonctl podautoscaler wait {name} --for '{what}'"),
            why: &format!("neonctl podautoscaler explain {name} -n {}", client.namespace),
        };
        let look = |object: Option<&PodAutoscaler>| match object {
            Some(object) if !predicate.holds(object) => predicate.ending(name, object),
            object => wait::seen(name, object, |_| true),
        };
        let waited = wait::until(&client, (name, known), limit, &messages, state, look).await?;
        Ok(wait::report(name, what, waited))
    })
}

fn state(object: &PodAutoscaler) -> String {
    let word = Word::from_object(object);
    let replicas = if word == Word::New { String::new() } else { format!(", {}", show::replicas(object)) };
    match show::message(object) {
        message if message.is_empty() => format!("it is {}{replicas} replicas", word.text()),
        message if word == Word::New => message,
        message => format!("it is {}{replicas} replicas: {message}", word.text()),
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Predicate {
    Ready,
    Replicas(Comparison, i32),
}

impl Predicate {
    fn parse(text: &str) -> Result<Self> {
        let bad = || {
            Error::new(Code::Usage, format!("--for: {text:?} is not a valid condition"))
                .hint("use ready, replicas=N or replicas>=N (also <=); for other conditions use kubectl wait")
        };
        if text == "ready" {
            return Ok(Self::Ready);
        }
        let (key, comparison, value) = resource::split(text).ok_or_else(bad)?;
        let count = value.parse().ok().filter(|count| key == "replicas" && *count >= 0);
        Ok(Self::Replicas(comparison, count.ok_or_else(bad)?))
    }

    /// Whether it can become true: by the status of this spec, and within its bounds, unless they change by a schedule.
    fn ending(&self, name: &str, object: &PodAutoscaler) -> WaitProgress {
        let (least, most) = show::bounds(object);
        match self {
            Self::Ready if !show::is_stale(object) => finals::of_autoscaler(object),
            Self::Replicas(comparison, wanted)
                if object.spec.schedules.is_none() && comparison.is_out_of(wanted, &least, &most) =>
            {
                let error = format!("{name} will not have these replicas: its bounds are {least} to {most}");
                let hint = format!("change them: kubectl edit podautoscaler {name}");
                WaitProgress::Never(Error::new(Code::Conflict, error).hint(hint))
            }
            Self::Ready | Self::Replicas(..) => WaitProgress::NotYet,
        }
    }

    /// Whether it is true. The status of an older spec does not count.
    fn holds(&self, object: &PodAutoscaler) -> bool {
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
