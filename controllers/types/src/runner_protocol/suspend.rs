//! Suspension: the memory of the guest is in a file of the pod, and no QEMU runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::SizeRequest;
use crate::{Bytes, MilliCpu};

/// What a suspended VM counts for on its node: its runner has less than 12 MiB.
pub const ASLEEP: SizeRequest = SizeRequest { cpu: MilliCpu::new(10), memory: Bytes::mib(32) };

/// How long a VM that is needed waits for the answer whether its node has room, if no answer comes.
pub const ROOM_PATIENCE: Duration = Duration::from_secs(1);

/// Body of `PUT /v1/suspend`: whether the VM is to be suspended, now or when it is idle. A guest that boots is suspended when it is up.
/// Answered at once with the status; progress is in the stream. Refused (409) while the VM is being migrated or has no tap device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuspendRequest {
    /// `true`: its memory goes to a file and QEMU ends; `false`: it runs.
    pub suspended: bool,
    /// Number of the request, which [`SuspendStatus::request`] repeats: the generation of the object. A request of this number is carried out
    /// once, so that a VM that was woken is not suspended again.
    pub request: i64,
    /// Suspend it also by itself after so many milliseconds without work and without packets; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_after_ms: Option<u64>,
    /// Only commands and requests wake it, packets do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deaf: bool,
    /// Before it wakes it waits for [`Self::room`], for [`ROOM_PATIENCE`] if there is no answer. One that is to shut down does not wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
    /// Whether its node has room for the wake it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<WakeRoom>,
}

/// Whether the node of a suspended VM has room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WakeRoom {
    /// Which wake this is about: [`SuspendStatus::wakes`] before it.
    pub wake: u64,
    /// `false`: there is none, and the VM waits until there is.
    pub granted: bool,
}

/// Whether a VM is suspended, and what its last suspensions were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuspendStatus {
    /// Whether it is to be suspended. The runner clears it when the VM is woken.
    pub asked: bool,
    /// Whether that is so because it was idle, and not by a request.
    pub idle: bool,
    /// Number of the last request.
    pub request: i64,
    /// Time without work and packets after which it is suspended; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_after_ms: Option<u64>,
    /// Only commands and requests wake it, packets do not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deaf: bool,
    /// Before it wakes it waits for the answer whether its node has room.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
    /// The last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<WakeRoom>,
    /// How far it is.
    pub state: SuspendState,
    /// Why the guest denies to be suspended now; absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
    /// How often it was woken.
    pub wakes: u64,
    /// Why it was woken the last time; absent if it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub woken_by: Option<WokenBy>,
    /// Time from that to the moment at which the guest ran, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub woke_in_ms: Option<u64>,
    /// Bytes of the file with the memory, while it is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored: Option<Bytes>,
    /// Time that the last suspension took, from the stop of the guest to the end of QEMU, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_in_ms: Option<u64>,
}

impl SuspendStatus {
    /// Whether the VM is suspended, is to be, or is on its way there or back: it is neither resized nor migrated.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.asked || self.state != SuspendState::Awake
    }

    /// Whether its memory is in a file, and no QEMU runs.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.state == SuspendState::Suspended
    }

    /// Whether its memory is in a file and is not needed, so that it takes next to nothing of its node.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.is_stored() && self.asked
    }

    /// Whether it is needed, and waits for the answer whether its node has room.
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.is_stored() && !self.asked
    }

    /// The answer for the next wake, if there was one.
    #[must_use]
    pub fn room(&self) -> Option<bool> {
        self.room.filter(|room| room.wake == self.wakes).map(|room| room.granted)
    }
}

/// How far the suspension of a VM is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SuspendState {
    /// The guest runs.
    #[default]
    Awake,
    /// Its memory is being stored; it still runs, or can continue at once.
    Suspending,
    /// Its memory is in a file, and no QEMU runs.
    Suspended,
    /// QEMU starts from the file.
    Waking,
    /// A state of a newer runner.
    #[serde(other)]
    Unknown,
}

/// Why a VM was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WokenBy {
    /// Its object requests that it runs.
    Request,
    /// A packet for the guest arrived.
    Network,
    /// A command that needs the guest: a connection to one of its ports, or its console.
    Command,
    /// It is to stop, for which the guest has to run.
    Stop,
    /// A reason of a newer runner.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner_protocol::RunnerStatus;

    #[test]
    fn a_vm_that_was_never_suspended_has_no_word_about_it() {
        let mut status = RunnerStatus::default();
        assert!(!serde_json::to_string(&status).unwrap().contains("suspend"));
        let suspend = SuspendStatus {
            asked: true,
            request: 4,
            state: SuspendState::Suspended,
            stored: Some(Bytes::mib(160)),
            ..SuspendStatus::default()
        };
        status.suspend = Some(suspend);
        let text = serde_json::to_string(&status).unwrap();
        assert!(
            text.contains(
                r#""suspend":{"asked":true,"idle":false,"request":4,"state":"Suspended","wakes":0,"#
            ),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<RunnerStatus>(&text).unwrap(), status);
    }

    #[test]
    fn states_of_newer_runners_are_read() {
        let text = r#"{"state":"Dreaming","wokenBy":"Alarm"}"#;
        let status: SuspendStatus = serde_json::from_str(text).unwrap();
        assert_eq!((status.state, status.woken_by), (SuspendState::Unknown, Some(WokenBy::Unknown)));
    }
}
