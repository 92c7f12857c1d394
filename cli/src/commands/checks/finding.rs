//! What a check has found, and the table of findings.

use serde_json::{Value, json};

use crate::error::Code;
use crate::report::{API_VERSION, Document, Report, left};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    /// It works, but worse than it could.
    Warn,
    Fail,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) name: &'static str,
    /// What it is part of: `host`, `cluster`, `preflight`, `services` or `objects`.
    pub(crate) group: &'static str,
    /// Where: `local`, `client`, `cluster`, or the name of a node, a VM or a pod.
    pub(crate) place: String,
    pub(crate) verdict: Verdict,
    pub(crate) detail: String,
    /// What to do; empty if nothing need be done.
    pub(crate) remedy: String,
}

fn finding(
    name: &'static str,
    verdict: Verdict,
    detail: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    Finding {
        name,
        group: "host",
        place: "local".to_owned(),
        verdict,
        detail: detail.into(),
        remedy: remedy.into(),
    }
}

pub(crate) fn ok(name: &'static str, detail: impl Into<String>) -> Finding {
    finding(name, Verdict::Ok, detail, "")
}

pub(crate) fn warn(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Finding {
    finding(name, Verdict::Warn, detail, remedy)
}

pub(crate) fn fail(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Finding {
    finding(name, Verdict::Fail, detail, remedy)
}

impl Finding {
    /// The same, elsewhere than on this machine.
    pub(crate) fn at(self, place: impl Into<String>) -> Self {
        Self { place: place.into(), ..self }
    }

    /// The same with another remedy; none if it is empty.
    pub(crate) fn remedied(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }

    pub(crate) fn in_group(self, group: &'static str) -> Self {
        Self { group, ..self }
    }

    /// In one line: where it is not the whole cluster, what was found, and what to do.
    pub(crate) fn line(&self) -> String {
        let place = match self.place.as_str() {
            "cluster" | "client" => String::new(),
            place => format!("{place}: "),
        };
        format!("{place}{}: {}", self.detail, self.remedy)
    }

    /// A lesser evil.
    pub(crate) fn at_most_warn(mut self) -> Self {
        if self.verdict == Verdict::Fail {
            self.verdict = Verdict::Warn;
        }
        self
    }
}

fn count(findings: &[Finding], verdict: Verdict) -> usize {
    findings.iter().filter(|found| found.verdict == verdict).count()
}

/// Every check as a table and a list; the exit code is the verdict.
pub(crate) fn report(findings: &[Finding]) -> Report {
    let good = count(findings, Verdict::Fail) == 0;
    let items: Vec<Value> = findings
        .iter()
        .map(|found| {
            json!({ "group": found.group, "name": found.name, "where": found.place, "result": found.verdict.word(), "detail": found.detail,
                "remedy": found.remedy })
        })
        .collect();
    let document = Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "Diagnosis", "ready": good, "items": items }),
        names: findings.iter().map(|found| format!("check/{}", found.name)).collect(),
        text: None,
        columns: vec![left("GROUP"), left("CHECK"), left("WHERE"), left("RESULT"), left("DETAIL")],
        rows: findings.iter().flat_map(rows).collect(),
    };
    let mut report = Report::document(document);
    report.code = if good { 0 } else { Code::Unhealthy.number() };
    report
}

/// A check's row, and below it what to do: beside it lines would be too long for any terminal.
fn rows(found: &Finding) -> Vec<Vec<String>> {
    let detail = if found.detail.is_empty() { "-" } else { &found.detail };
    let word = found.verdict.word();
    let mut rows = vec![[found.group, found.name, &found.place, word, detail].map(str::to_owned).to_vec()];
    if !found.remedy.is_empty() {
        let empty = String::new;
        rows.push(vec![empty(), empty(), empty(), empty(), format!("  hint: {}", found.remedy)]);
    }
    rows
}

/// `1 failed, 2 warnings`.
pub(crate) fn sum(findings: &[Finding]) -> String {
    let (failed, warned) = (count(findings, Verdict::Fail), count(findings, Verdict::Warn));
    let warnings = match warned {
        0 => String::new(),
        1 => "1 warning".to_owned(),
        _ => format!("{warned} warnings"),
    };
    match (failed, warned) {
        (0, 0) => "no warnings".to_owned(),
        (0, _) => warnings,
        (_, 0) => format!("{failed} failed"),
        _ => format!("{failed} failed, {warnings}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_do_not_fail_and_failures_do() {
        let mut checks = vec![ok("a", "fine"), warn("b", "slow", "make it fast").at("n1")];
        assert_eq!((report(&checks).code, sum(&checks).as_str()), (0, "1 warning"));
        checks.push(fail("c", "broken", "mend it"));
        assert_eq!((report(&checks).code, sum(&checks).as_str()), (7, "1 failed, 1 warning"));
        assert_eq!(sum(&checks[..1]), "no warnings");
    }
}
