//! Why a VM ended: the runner writes it as the termination message of its container, so that it outlives the pod's
//! processes and every component can read it.

use serde::{Deserialize, Serialize};

/// Most bytes of a termination message that Kubernetes keeps.
pub const TERMINATION_MESSAGE_BYTES: usize = 4096;

/// Why a VM ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// For programs.
    pub reason: ExitReason,
    /// For people, one line.
    #[serde(default)]
    pub message: String,
    /// How the workload ended, if that ended the VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<ProcessExit>,
    /// The last lines of the console, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub console: Vec<String>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessExit {
    /// Its exit code, if it ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal, if one ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the guest's kernel killed something of it for want of memory.
    pub out_of_memory: bool,
}

impl ProcessExit {
    /// The exit code, or 128 and the number of the signal that ended it, as shells and container engines have it.
    #[must_use]
    pub fn exit_code(self) -> Option<i32> {
        self.code.or_else(|| self.signal.map(|signal| signal.saturating_add(128)))
    }
}

/// Why a VM ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ExitReason {
    /// The workload ended, and the VM ends with it under its restart policy.
    WorkloadEnded,
    /// The guest powered itself off.
    PoweredOff,
    /// The guest requested a reboot. A new VM process is started in its place if the restart policy requires it.
    Rebooted,
    /// The runner was requested to stop, and the guest powered off.
    Stopped,
    /// The runner was requested to stop, and the guest did not power off in time.
    StoppedByForce,
    /// The guest's kernel panicked.
    GuestPanic,
    /// QEMU ended by itself.
    QemuEnded,
    /// The accelerator cannot run this guest.
    AcceleratorFailure,
    /// The VM could not be started: configuration, image, kernel, network.
    StartFailure,
    /// The VM lives on in the target pod of a migration.
    Migrated,
    /// This was the target of a migration that failed or was cancelled; no guest ever ran here.
    MigrationFailed,
    /// The runner ended without a word: it was killed.
    RunnerKilled,
    /// Kubernetes gave the room of the pod to a pod of higher priority. No runner reports this or the next two: they are read from
    /// the pod.
    Preempted,
    /// The pod was evicted: by its kubelet for want of a resource, by a taint, or through the API.
    Evicted,
    /// The node of the pod is gone.
    NodeLost,
    /// A reason of a newer runner.
    #[serde(other)]
    Unknown,
}

impl ExitReason {
    /// The word in the JSON form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WorkloadEnded => "WorkloadEnded",
            Self::PoweredOff => "PoweredOff",
            Self::Rebooted => "Rebooted",
            Self::Stopped => "Stopped",
            Self::StoppedByForce => "StoppedByForce",
            Self::GuestPanic => "GuestPanic",
            Self::QemuEnded => "QemuEnded",
            Self::AcceleratorFailure => "AcceleratorFailure",
            Self::StartFailure => "StartFailure",
            Self::Migrated => "Migrated",
            Self::MigrationFailed => "MigrationFailed",
            Self::RunnerKilled => "RunnerKilled",
            Self::Preempted => "Preempted",
            Self::Evicted => "Evicted",
            Self::NodeLost => "NodeLost",
            Self::Unknown => "Unknown",
        }
    }
}

impl Exit {
    /// An end with a reason and a line for people.
    #[must_use]
    pub fn new(reason: ExitReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), workload: None, console: Vec::new() }
    }

    /// Whether the VM ended well: then the pod succeeds, otherwise it fails.
    #[must_use]
    pub fn is_success(&self) -> bool {
        match self.reason {
            ExitReason::WorkloadEnded => self.workload.is_some_and(|exit| exit.code == Some(0)),
            ExitReason::PoweredOff | ExitReason::Rebooted | ExitReason::Stopped | ExitReason::Migrated => {
                true
            }
            ExitReason::StoppedByForce
            | ExitReason::GuestPanic
            | ExitReason::QemuEnded
            | ExitReason::AcceleratorFailure
            | ExitReason::StartFailure
            | ExitReason::MigrationFailed
            | ExitReason::RunnerKilled
            | ExitReason::Preempted
            | ExitReason::Evicted
            | ExitReason::NodeLost
            | ExitReason::Unknown => false,
        }
    }

    /// The termination message: JSON of at most [`TERMINATION_MESSAGE_BYTES`]; console lines are dropped, oldest first,
    /// until it fits.
    #[must_use]
    pub fn to_message(&self) -> String {
        let mut short = self.clone();
        loop {
            let text = serde_json::to_string(&short).unwrap_or_default();
            if text.len() <= TERMINATION_MESSAGE_BYTES {
                return text;
            }
            if short.console.is_empty() {
                // Cut between characters; the rest of the document is small.
                let mut end = short.message.len() / 2;
                while !short.message.is_char_boundary(end) {
                    end -= 1;
                }
                short.message.truncate(end);
            } else {
                short.console.remove(0);
            }
        }
    }

    /// Reads a termination message. `None` if it is not one.
    #[must_use]
    pub fn from_message(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_end_of_a_workload_is_judged_by_its_code() {
        let mut exit = Exit::new(ExitReason::WorkloadEnded, "ended");
        assert!(!exit.is_success());
        exit.workload = Some(ProcessExit { code: Some(0), ..ProcessExit::default() });
        assert!(exit.is_success());
        let by_signal = ProcessExit { signal: Some(9), ..ProcessExit::default() };
        assert_eq!((by_signal.exit_code(), ProcessExit::default().exit_code()), (Some(137), None));
        exit.workload = Some(ProcessExit { signal: Some(9), ..ProcessExit::default() });
        assert!(!exit.is_success());
    }

    proptest! {
        #[test]
        fn messages_fit_and_keep_the_reason(message in ".{0,6000}", console in proptest::collection::vec(".{0,300}", 0..40)) {
            let exit = Exit { console, ..Exit::new(ExitReason::GuestPanic, message) };
            let text = exit.to_message();
            prop_assert!(text.len() <= TERMINATION_MESSAGE_BYTES);
            let read = Exit::from_message(&text).unwrap();
            prop_assert_eq!(read.reason, exit.reason);
            prop_assert!(exit.console.ends_with(&read.console));
        }
    }
}
