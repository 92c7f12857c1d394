//! The steps, what came of each, and the verdict over all of them. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{Code, Error};
use crate::report::{API_VERSION, Document, Report, left, right};

/// A step, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The checks of the installation, as `doctor` and `status` have them.
    Checks,
    Create,
    Scale,
    Load,
    Migrate,
    Drain,
    Database,
    Delete,
    CleanUp,
}

impl Step {
    pub(super) const ALL: [Self; 9] = [
        Self::Checks,
        Self::Create,
        Self::Scale,
        Self::Load,
        Self::Migrate,
        Self::Drain,
        Self::Database,
        Self::Delete,
        Self::CleanUp,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Checks => "checks",
            Self::Create => "create",
            Self::Scale => "scale",
            Self::Load => "load",
            Self::Migrate => "migrate",
            Self::Drain => "drain",
            Self::Database => "database",
            Self::Delete => "delete",
            Self::CleanUp => "clean-up",
        }
    }

    /// Why it is left out: by `--only`, which names steps, by `--keep`, or because there is no VM.
    pub(super) fn left_out(self, only: &[String], keep: bool, has_vm: bool) -> Option<&'static str> {
        let is_needed = matches!(self, Self::Create | Self::Delete | Self::CleanUp);
        match self {
            Self::Delete | Self::CleanUp if keep => Some("omitted by --keep"),
            Self::CleanUp | Self::Create => None,
            _ if !is_needed && !only.is_empty() && only.iter().all(|name| name != self.name()) => {
                Some("omitted by --only")
            }
            Self::Checks => None,
            _ if !has_vm => Some("there is no running VM"),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed(String),
    Failed(Error),
    NotRun(String),
}

impl Outcome {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Failed(_) => "failed",
            Self::NotRun(_) => "not run",
        }
    }

    pub(super) fn detail(&self) -> String {
        match self {
            Self::Passed(text) | Self::NotRun(text) => text.clone(),
            Self::Failed(error) => {
                let causes: String = error.causes.iter().map(|cause| format!(": {cause}")).collect();
                format!("{}{causes}", error.message)
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) step: Step,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}

impl Row {
    fn cells(&self) -> Vec<Vec<String>> {
        let time = match self.outcome {
            Outcome::NotRun(_) => "-".to_owned(),
            _ => format!("{:.1}s", self.took.as_secs_f64()),
        };
        let mut rows =
            vec![vec![self.step.name().into(), self.outcome.word().into(), time, self.outcome.detail()]];
        if let Outcome::Failed(Error { hint: Some(hint), .. }) = &self.outcome {
            rows.push(vec![String::new(), String::new(), String::new(), format!("  hint: {hint}")]);
        }
        rows
    }

    fn json(&self) -> Value {
        let hint = match &self.outcome {
            Outcome::Failed(error) => error.hint.clone(),
            _ => None,
        };
        let seconds = match self.outcome {
            Outcome::NotRun(_) => None,
            _ => Some(self.took.as_secs_f64()),
        };
        json!({"step": self.step.name(), "result": self.outcome.word(), "seconds": seconds,
            "detail": self.outcome.detail(), "hint": hint})
    }
}

fn count(rows: &[Row]) -> (usize, usize, usize) {
    let of = |word: &str| rows.iter().filter(|row| row.outcome.word() == word).count();
    (of("passed"), of("failed"), of("not run"))
}

fn sum(rows: &[Row]) -> String {
    let (passed, failed, not_run) = count(rows);
    let took: Duration = rows.iter().map(|row| row.took).sum();
    let verdict = if failed == 0 { "the cluster passed" } else { "the cluster failed" };
    format!("{verdict}: {passed} passed, {failed} failed, {not_run} not run, in {:.1} s", took.as_secs_f64())
}

/// The table, with the closing line below it; the exit code is the verdict.
pub(super) fn report(rows: &[Row], image: &str, namespace: &str, server: &str) -> Report {
    let (passed, failed, not_run) = count(rows);
    let columns = vec![left("STEP"), left("RESULT"), right("TIME"), left("DETAIL")];
    let cells: Vec<Vec<String>> = rows.iter().flat_map(Row::cells).collect();
    let text = format!("{}{}", crate::render::rows(&columns, &cells), sum(rows));
    let document = Document {
        value: json!({"apiVersion": API_VERSION, "kind": "ClusterTest", "server": server, "namespace": namespace,
            "image": image, "passed": failed == 0, "counts": {"passed": passed, "failed": failed, "notRun": not_run},
            "items": rows.iter().map(Row::json).collect::<Vec<_>>()}),
        names: rows.iter().map(|row| format!("step/{}", row.step.name())).collect(),
        text: Some(text),
        columns,
        rows: cells,
    };
    let mut report = Report::document(document);
    report.code = if failed == 0 { 0 } else { Code::Unhealthy.number() };
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Body;

    fn row(step: Step, outcome: Outcome, millis: u64) -> Row {
        Row { step, outcome, took: Duration::from_millis(millis) }
    }

    fn shown(report: &Report) -> String {
        match &report.body {
            Body::Document(document) => document.text.clone().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_step_that_did_not_run_has_not_passed() {
        let rows = [
            row(Step::Create, Outcome::Passed("on n1".into()), 3210),
            row(Step::Migrate, Outcome::NotRun("one node runs VMs".into()), 0),
        ];
        let report = report(&rows, "i:1", "ns", "https://a");
        assert_eq!(report.code, 0);
        let wanted = "STEP     RESULT   TIME  DETAIL\n\
                      create   passed   3.2s  on n1\n\
                      migrate  not run     -  one node runs VMs\n\
                      the cluster passed: 1 passed, 0 failed, 1 not run, in 3.2 s";
        assert_eq!(shown(&report), wanted);
    }

    #[test]
    fn a_failure_is_the_verdict_and_has_its_reason_and_its_remedy() {
        let error = Error::new(Code::Timeout, "no pod").cause("ErrImagePull").hint("push it");
        let rows = [row(Step::Create, Outcome::Failed(error), 100)];
        let report = report(&rows, "i:1", "ns", "https://a");
        assert_eq!(report.code, 7);
        let text = shown(&report);
        assert!(text.contains("no pod: ErrImagePull\n") && text.contains("  hint: push it\n"), "{text}");
        assert!(text.ends_with("the cluster failed: 0 passed, 1 failed, 0 not run, in 0.1 s"), "{text}");
    }

    #[test]
    fn what_is_left_out_has_a_reason() {
        let only = ["load".to_owned()];
        let left = |step: Step, keep: bool, has_vm: bool| step.left_out(&only, keep, has_vm);
        assert_eq!(left(Step::Scale, false, true), Some("omitted by --only"));
        assert_eq!(left(Step::Load, false, true), None);
        assert_eq!(left(Step::Load, false, false), Some("there is no running VM"));
        assert_eq!(left(Step::Create, false, false), None);
        assert_eq!(left(Step::Checks, false, false), Some("omitted by --only"));
        assert_eq!(Step::Checks.left_out(&[], false, false), None);
        assert_eq!((left(Step::Delete, false, true), left(Step::CleanUp, false, false)), (None, None));
        assert_eq!(left(Step::Delete, true, true), Some("omitted by --keep"));
        assert_eq!(Step::Scale.left_out(&[], false, true), None);
    }
}
