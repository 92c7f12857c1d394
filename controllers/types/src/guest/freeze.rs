//! Freezing file systems of the VM, so that copies of their volumes are consistent. The guest ends each freeze by itself.

use serde::{Deserialize, Serialize};

/// Path of the daemon that freezes file systems: POST, a [`FreezeRequest`]; the answer is [`Frozen`]. GET: [`FreezeState`]. Daemons of
/// earlier versions have no such path: 404.
pub const FREEZE_PATH: &str = "/disks/freeze";
/// Path of the daemon that ends a freeze: POST, without a body; the answer is [`Thawed`].
pub const THAW_PATH: &str = "/disks/thaw";
/// How the root file system is called among disks, whose names have no such character.
pub const ROOT: &str = "/";
/// Seconds of a freeze for which no time was requested.
pub const FREEZE_SECONDS: u32 = 30;
/// Longest freeze, in seconds: programs that write meanwhile wait.
pub const MOST_FREEZE_SECONDS: u32 = 300;

/// What to freeze, and for how long at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FreezeRequest {
    /// Serial numbers of disks, which are their names. For a runner none means: all on claims that are written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<String>,
    /// The root file system as well.
    pub root: bool,
    /// After so many seconds the guest thaws them: 1 to [`MOST_FREEZE_SECONDS`].
    pub seconds: u32,
}

impl FreezeRequest {
    /// The bound, or why it is none.
    ///
    /// # Errors
    /// If the freeze would be none, or too long.
    pub fn bound(&self) -> Result<std::time::Duration, String> {
        if (1..=MOST_FREEZE_SECONDS).contains(&self.seconds) {
            return Ok(std::time::Duration::from_secs(self.seconds.into()));
        }
        Err(format!("seconds: {} is not between 1 and {MOST_FREEZE_SECONDS}", self.seconds))
    }
}

/// What is frozen now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Frozen {
    /// The disks; [`ROOT`] is the root file system.
    pub disks: Vec<String>,
    /// After so many seconds the guest thaws them.
    pub seconds: u32,
}

/// Whether a freeze is in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FreezeState {
    /// Milliseconds until the guest ends it; absent: none is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

/// The end of a freeze.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Thawed {
    /// What was frozen; empty: nothing was.
    pub disks: Vec<String>,
    /// How long writes waited.
    pub frozen_ms: u64,
    /// The guest had thawed them before, because the time was over: what was copied since may not be consistent.
    pub expired: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freeze_has_a_bound() {
        let bound = |seconds| FreezeRequest { seconds, ..FreezeRequest::default() }.bound();
        assert_eq!(bound(300), Ok(std::time::Duration::from_secs(300)));
        for seconds in [0, 301, u32::MAX] {
            assert!(bound(seconds).unwrap_err().starts_with("seconds: "), "{seconds}");
        }
    }
}
