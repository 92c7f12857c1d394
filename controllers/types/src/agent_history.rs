//! What an agent keeps of the past of a VM: lines of its files, and the document of `GET /v1/history`.
//!
//! Unknown keys are accepted and absent ones have a default, so that newer files and agents can be read by older programs and
//! the other way round.

use serde::{Deserialize, Serialize};

use crate::Resources;

/// What one agent keeps of one VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentHistory {
    /// The node for whose VMs the agent is responsible.
    pub node: String,
    /// Whether it keeps a history. Without a directory it keeps none.
    pub kept: bool,
    /// What happened, oldest first.
    pub records: Vec<Record>,
}

/// One line: exactly one of `began`, `decision` and `sample` is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// The agent began to scale the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Began>,
    /// The agent decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decided>,
    /// Sizes and load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

/// A run of a VM, as the agent found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Began {
    /// UID of the VM: it distinguishes VMs that had the same name one after another.
    pub uid: String,
    /// Its pod.
    pub pod: String,
}

/// A decision in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Decided {
    /// What came in and what was done about it.
    pub text: String,
    /// Which rule made the difference, where it was not the load alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A VM at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sample {
    /// The observed size.
    pub now: Resources,
    /// The size that metrics, requests and people call for, within the bounds.
    pub goal: Resources,
    /// What the scheduler permits; absent before the first permit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit: Option<Resources>,
    /// One-minute load average; absent before the first metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load1: Option<f64>,
    /// Memory in use without page cache, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_short_and_read_by_older_and_newer_programs() {
        let sample = Sample { load1: Some(0.25), ..Sample::default() };
        let record = Record { at: 5, sample: Some(sample), ..Record::default() };
        let line = serde_json::to_string(&record).unwrap();
        let zero = r#"{"vCPUs":0,"mem":0}"#;
        assert_eq!(line, format!(r#"{{"at":5,"sample":{{"now":{zero},"goal":{zero},"load1":0.25}}}}"#));
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
        let newer = r#"{"at":7,"dream":{},"decision":{"text":"t","mood":1}}"#;
        let read: Record = serde_json::from_str(newer).unwrap();
        assert_eq!((read.at, read.decision.unwrap().text.as_str()), (7, "t"));
    }
}
