//! The workload's state for the daemon and for people: a small file, rewritten as a whole whenever it changes.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

use super::Init;
use super::shutdown::Phase;
use super::unit::{Role, State, Unit};
use crate::daemon::STATUS_FILE;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LastExit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) signal: Option<i32>,
    pub(super) out_of_memory: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    /// `waiting`, `running`, `restarting`, `stopping`, `ended`, or `none`: there is no workload.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    restarts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_exit: Option<LastExit>,
}

impl Status {
    fn from_unit(unit: Option<&Unit>, phase: Phase, last_exit: Option<LastExit>) -> Self {
        let Some(unit) = unit else { return Self { state: "none", pid: None, restarts: 0, last_exit } };
        let (state, pid) = match unit.state {
            State::Running { process, .. } if phase == Phase::Running => ("running", Some(process)),
            State::Running { process, .. } => ("stopping", Some(process)),
            State::Idle | State::Waiting(_) if unit.starts == 0 => ("waiting", None),
            State::Idle | State::Waiting(_) => ("restarting", None),
            State::Ended => ("ended", None),
        };
        Self { state, pid, restarts: unit.starts.saturating_sub(1), last_exit }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let aside = path.with_extension("new");
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&aside, serde_json::to_vec(self)?)?;
        fs::rename(aside, path)
    }
}

impl Init {
    /// Writes the state if it is another one than before.
    pub(super) fn note_status(&mut self) {
        let unit = self.units.iter().find(|unit| unit.role == Role::Workload);
        let status = Status::from_unit(unit, self.shutdown.phase(), self.workload.last_exit);
        if self.workload.noted.replace(status) == Some(status) {
            return;
        }
        if let Err(error) = status.write(&Path::new("/").join(STATUS_FILE)) {
            self.reporter.failure(format!("write the status of the workload: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_file_follows_the_unit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("neonvm/status.json");
        let mut unit = Unit::helper("workload", Role::Workload, &[], "workload");
        let text = |unit: Option<&Unit>, phase, last| {
            Status::from_unit(unit, phase, last).write(&path).unwrap();
            fs::read_to_string(&path).unwrap()
        };
        assert_eq!(text(None, Phase::Running, None), r#"{"state":"none","restarts":0}"#);
        assert_eq!(text(Some(&unit), Phase::Running, None), r#"{"state":"waiting","restarts":0}"#);
        unit.state = State::Running { process: 7, since: Duration::ZERO };
        unit.starts = 3;
        let last = LastExit { code: None, signal: Some(9), out_of_memory: true };
        assert_eq!(
            text(Some(&unit), Phase::Running, Some(last)),
            r#"{"state":"running","pid":7,"restarts":2,"lastExit":{"signal":9,"outOfMemory":true}}"#
        );
        assert!(text(Some(&unit), Phase::Services, None).contains("stopping"));
        unit.state = State::Waiting(Duration::ZERO);
        assert!(text(Some(&unit), Phase::Running, None).contains("restarting"));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
