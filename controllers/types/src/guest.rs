//! Messages between the builder, the runner and the guest program inside a VM.
//!
//! The builder writes an [`ImageConfig`] into the disk, the runner puts a [`RuntimeConfig`] beside the files of older
//! runners on the runtime volume, and the guest reports [`Report`]s as lines of JSON on a port. All three are our own
//! formats: unknown keys are accepted, so that either side may be newer.

mod attach;
mod disk;
mod disk_use;
mod freeze;
mod image_config;
mod report;
mod runtime_config;
pub mod toolbox;

pub use attach::{
    ATTACH_PATH, ATTACH_PROTOCOL, Attach, FRAME_HEADER, Frame, LONGEST_FRAME, frame_header, read_frame_header,
};
pub use disk::{FileSystem, GROW_PATH};
pub use disk_use::{DiskReport, DiskUse, disks_in_use};
pub use freeze::{
    FREEZE_PATH, FREEZE_SECONDS, FreezeRequest, FreezeState, Frozen, MOST_FREEZE_SECONDS, ROOT, THAW_PATH,
    Thawed,
};

/// Path of the daemon (POST) at which the guest agrees to be suspended now: 200, or 409 with what it works at.
pub const SUSPEND_PATH: &str = "/suspend";
/// Path of the daemon (PUT) that sets the clock: the body has the nanoseconds since 1970 in decimal digits.
pub const CLOCK_PATH: &str = "/clock";

pub use image_config::{
    Command, Console, ImageConfig, MemoryLimits, Monitor, Process, Service, Start, UnknownLimits,
};
pub use report::{Report, ReportKind};
pub use runtime_config::{Mount, MountKind, Network, RestartPolicy, RuntimeConfig, Swap};

/// Where the builder puts the [`ImageConfig`] in the root file system.
pub const IMAGE_CONFIG_PATH: &str = "/neonvm/config.json";
/// File with the [`RuntimeConfig`] on the runtime volume.
pub const RUNTIME_CONFIG_FILE: &str = "neonvm.json";
/// File with a newer guest program on the runtime volume; preferred over the one in the disk if it runs.
pub const GUEST_PROGRAM_FILE: &str = "neonvm_guest";
/// The guest program in the disk; `/neonvm/bin/init` and the helper commands are links to it.
pub const GUEST_PROGRAM_PATH: &str = "/neonvm/bin/neonvm-guest";
/// Name of the virtio-serial port that carries logs to the host.
pub const LOG_PORT: &str = "tech.neon.log.0";
/// Name of the virtio-serial port that carries [`Report`]s to the host, one JSON object a line.
pub const REPORT_PORT: &str = "tech.neon.report.0";
/// TCP port of the daemon in the guest: CPU, files and the streams of the workload.
pub const DAEMON_PORT: u16 = 25183;
/// TCP port of the metrics of the guest.
pub const METRICS_PORT: u16 = 9100;
/// TCP port of the SSH server of the guest.
pub const SSH_PORT: u16 = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_newer_and_older_programs_are_read() {
        let image: ImageConfig = serde_json::from_str(r#"{"process":{"cmd":["a"]},"newer":1}"#).unwrap();
        assert_eq!(image.process.cmd, ["a"]);
        let runtime: RuntimeConfig = serde_json::from_str("{}").unwrap();
        assert_eq!(runtime, RuntimeConfig::default());
    }

    #[test]
    fn mounts_are_distinguished_by_their_kind() {
        let text =
            r#"{"path":"/data","kind":"disk","label":"data","discard":true,"quota":false,"readOnly":false}"#;
        let mount: Mount = serde_json::from_str(text).unwrap();
        assert_eq!(
            mount.kind,
            MountKind::Disk { label: "data".into(), discard: true, quota: false, persistent: false }
        );
        assert_eq!(
            serde_json::to_value(&mount).unwrap(),
            serde_json::from_str::<serde_json::Value>(text).unwrap()
        );
    }

    #[test]
    fn reports_are_flat_lines() {
        let kind = ReportKind::WorkloadExited { code: Some(3), signal: None, out_of_memory: false };
        let line = serde_json::to_string(&Report { uptime_ms: 12, kind }).unwrap();
        assert_eq!(line, r#"{"uptimeMs":12,"event":"workloadExited","code":3,"outOfMemory":false}"#);
    }
}
