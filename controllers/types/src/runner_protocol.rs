//! Controller to runner. As ever: `GET /cpu_current` and `POST /cpu_change`, both `{"VCPUs":"250m"}`, and `/ready`. Beside
//! them `/v1/…`: status as a stream, size, statistics, console and guest ports. HTTP over mutual TLS; only `/ready` is
//! answered without a client certificate, because probes have none, and `/metrics`, where the VM counts its traffic.

mod exit;
pub mod facts;
mod limits;
mod machine;
mod migration;
mod status;
mod suspend;
mod workload;

pub use exit::{Exit, ExitReason, ProcessExit, TERMINATION_MESSAGE_BYTES};
pub use limits::{DiskBurst, DiskLimitStatus, DiskLimits, LimitRequest, LimitsByDisk};
pub use machine::{DEVICES, HostFacts, MachineInfo};
pub use migration::{
    Compression, MIGRATION_CANCEL_PATH, MIGRATION_NOT_IN_TIME, MIGRATION_PATH, MIGRATION_PORT,
    MIGRATION_RECOVER_PATH, MIGRATION_SETTLE_PATH, MigrationAnswer, MigrationCall, MigrationChannel,
    MigrationGuest, MigrationHello, MigrationOrder, MigrationParameters, MigrationProgress, MigrationRefusal,
    MigrationRequest, MigrationRole, MigrationState, MigrationStatus, MigrationVerdict, OnTimeout, PostCopy,
    VOLUME_PATH, VolumeInfo,
};
pub use status::{
    CpuStatus, DiskRequest, MemoryStatus, PauseRequest, PauseStatus, Problem, ProblemReason, RunnerState,
    RunnerStatistics, RunnerStatus, SizeRequest,
};
pub use suspend::{ASLEEP, ROOM_PATIENCE, SuspendRequest, SuspendState, SuspendStatus, WakeRoom, WokenBy};
pub use workload::WorkloadStatus;

use serde::{Deserialize, Serialize};

use crate::{
    DecodeError, MilliCpu,
    decode::{self, field},
};

/// Environment variable of a runner on a slow host: the factor of its deadlines.
pub const DEADLINE_FACTOR: &str = "NEONVM_DEADLINE_FACTOR";
/// TCP port of the runner.
pub const RUNNER_PORT: u16 = 25183;
/// Path of the CPU in force (GET).
pub const CPU_CURRENT_PATH: &str = "/cpu_current";
/// Path that changes it (POST).
pub const CPU_CHANGE_PATH: &str = "/cpu_change";
/// Path that reports whether the guest is up: 200 or 503.
pub const READY_PATH: &str = "/ready";
/// Path of [`RunnerStatus`] (GET); with `?watch=true` a line of JSON now and at each change.
pub const STATUS_PATH: &str = "/v1/status";
/// Path that takes a [`SizeRequest`] (PUT).
pub const SIZE_PATH: &str = "/v1/size";
/// Path that takes a [`PauseRequest`] (PUT).
pub const PAUSE_PATH: &str = "/v1/pause";
/// Path that takes a [`SuspendRequest`] (PUT).
pub const SUSPEND_PATH: &str = "/v1/suspend";
/// Path that wakes a suspended VM, as a packet for it does (POST); answered when it runs.
pub const WAKE_PATH: &str = "/v1/wake";
/// Path that takes a [`DiskRequest`] (PUT), and has a [`DiskReport`](crate::guest::DiskReport) (GET).
pub const DISKS_PATH: &str = "/v1/disks";
/// Path that takes a [`LimitRequest`] (PUT).
pub const LIMITS_PATH: &str = "/v1/disks/limits";
/// Path that takes a [`FreezeRequest`](crate::guest::FreezeRequest) and answers with [`Frozen`](crate::guest::Frozen) (POST).
pub const FREEZE_PATH: &str = "/v1/freeze";
/// Path that ends a freeze and answers with [`Thawed`](crate::guest::Thawed) (POST).
pub const THAW_PATH: &str = "/v1/thaw";
/// Path of the counters of the guest's traffic (GET), in the text format of Prometheus, if `spec.enableNetworkMonitoring` is on.
pub const METRICS_PATH: &str = "/metrics";
/// Path of [`RunnerStatistics`] (GET).
pub const STATISTICS_PATH: &str = "/v1/statistics";
/// Path that presses the power button (POST).
pub const POWER_OFF_PATH: &str = "/v1/power-off";
/// Path of the serial console (GET with an upgrade to [`STREAM_PROTOCOL`]).
pub const CONSOLE_PATH: &str = "/v1/console";
/// Path of a TCP port of the guest, followed by its number (GET with an upgrade to [`STREAM_PROTOCOL`]).
pub const GUEST_PORT_PATH: &str = "/v1/guest/";
/// MiB that QEMU may take for the translated code of an emulated guest.
pub const TRANSLATED_CODE_MIB: u32 = 128;
/// Level of x86-64 (1–4 of its psABI) that the CPU of an emulated VM has.
pub const EMULATED_LEVEL: u8 = 3;
/// Protocol of upgraded connections: bytes, both ways.
pub const STREAM_PROTOCOL: &str = "neonvm-stream";
/// Organisation in the certificate of a client that may use everything of a runner.
pub const CLIENT_ORGANISATION: &str = "neonvm:controllers";

/// DNS name in the certificate of the runner of the VM with this UID. It is not resolved; clients connect to the pod's address.
#[must_use]
pub fn server_name(uid: &str) -> String {
    format!("{uid}.vm.neon.tech")
}

/// CPU of a runner: the body of a change and the answer about the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerCpu {
    /// The CPU wanted or in force. Other components read keys without regard to case, hence the aliases.
    #[serde(rename = "VCPUs", alias = "vCPUs", alias = "vcpus", deserialize_with = "field::vcpus_upper")]
    pub vcpus: MilliCpu,
}

impl RunnerCpu {
    /// Reads a body. A missing key is an error, because it would mean no CPU at all.
    ///
    /// # Errors
    /// Names the field at fault.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        decode::from_slice("runner CPU", body)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn examples() {
        for (milli, json) in [(250, r#"{"VCPUs":"250m"}"#), (1000, r#"{"VCPUs":1}"#)] {
            let cpu = RunnerCpu { vcpus: MilliCpu::new(milli) };
            assert_eq!(serde_json::to_string(&cpu).unwrap(), json);
            assert_eq!(RunnerCpu::decode(json.as_bytes()), Ok(cpu));
        }
        assert_eq!(RunnerCpu::decode(br#"{"vcpus":0.5}"#), Ok(RunnerCpu { vcpus: MilliCpu::new(500) }));
    }

    #[test]
    fn errors_name_the_field() {
        for (json, part) in [
            ("{}", "missing field `VCPUs`"),
            (r#"{"VCPUs":-1}"#, "VCPUs: -1 is out of range"),
            (r#"{"VCPUs":[]}"#, "VCPUs: invalid type"),
        ] {
            let error = RunnerCpu::decode(json.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("cannot decode runner CPU: ") && error.contains(part), "{error}");
        }
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(milli: u32) {
            let cpu = RunnerCpu { vcpus: MilliCpu::new(milli) };
            prop_assert_eq!(RunnerCpu::decode(&serde_json::to_vec(&cpu).unwrap()), Ok(cpu));
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(body: Vec<u8>) {
            let _ = RunnerCpu::decode(&body);
        }
    }
}
