//! What the builder has read of an image and the guest needs at every boot.

use serde::{Deserialize, Serialize};

/// Content of `/neonvm/config.json` in a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageConfig {
    /// The workload, from the source image.
    pub process: Process,
    /// Further commands, started beside the workload.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// Shell text that runs repeatedly at shutdown until the workload has ended; it requests the workload to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_hook: Option<String>,
    /// Where a login without password is offered on the serial line. Null: nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console: Option<Console>,
    /// The monitor for autoscaler-agents. Absent: it runs and counts the memory of all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<Monitor>,
    /// Reference of the source image with its digest, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// Configuration of the monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Monitor {
    /// Whether the project's monitor is started. An image with another monitor needs the port.
    pub enabled: bool,
    /// Control group below `/sys/fs/cgroup` whose memory counts. Absent: that of all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Connection string of a PostgreSQL whose file cache follows the size of the VM, such as
    /// `host=/run/postgresql user=cloud_admin dbname=postgres`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub postgres: Option<String>,
    /// Whether agents up to v0.17 of upstream are served too, with the informant's protocol.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub informant: bool,
    /// Limits that the control group gets: that of `cgroup`, or the workload's. If they are off, it has those of the informant
    /// while an agent with the informant's protocol is the current one.
    #[serde(skip_serializing_if = "MemoryLimits::is_off")]
    pub limits: MemoryLimits,
}

/// Memory limits of a control group that follow the size of the VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryLimits {
    /// None: memory is only watched.
    #[default]
    Off,
    /// `memory.high`, as the monitors of autoscaling v0.17 set it.
    High,
    /// `memory.high` and `memory.max`, as the informants of autoscaling v0.10 set them.
    HighAndMax,
}

impl MemoryLimits {
    /// Its name in specifications and flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::High => "high",
            Self::HighAndMax => "high-and-max",
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }
}

/// Not the name of limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of off, high and high-and-max")]
pub struct UnknownLimits(String);

impl std::str::FromStr for MemoryLimits {
    type Err = UnknownLimits;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = [Self::Off, Self::High, Self::HighAndMax];
        all.into_iter().find(|limits| limits.name() == text).ok_or_else(|| UnknownLimits(text.to_owned()))
    }
}

impl Default for Monitor {
    fn default() -> Self {
        Self { enabled: true, cgroup: None, postgres: None, informant: false, limits: MemoryLimits::Off }
    }
}

/// A program as OCI image configurations describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Process {
    /// `Entrypoint`: replaced by `command` of the VM.
    pub entrypoint: Vec<String>,
    /// `Cmd`: replaced by `args` of the VM, and dropped when only `command` is given (as Kubernetes does).
    pub cmd: Vec<String>,
    /// `Env`: `NAME=value` each; values are literal, never read by a shell.
    pub env: Vec<String>,
    /// `User`: `user`, `uid`, `user:group` or `uid:gid`. Empty: root.
    pub user: String,
    /// `WorkingDir`. Empty: `/`.
    pub working_dir: String,
    /// `StopSignal`, such as `SIGINT` or `2`. Empty: SIGTERM.
    pub stop_signal: String,
}

/// A command of the image specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// For people and logs.
    pub name: String,
    /// User it runs as.
    pub user: String,
    /// When it starts and whether it is started again.
    pub start: Start,
    /// Command line of the process.
    pub command: Command,
}

/// What a service runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Command {
    /// Text for the shell of the image.
    Shell(String),
    /// A program and its arguments.
    Exec(Vec<String>),
}

/// The actions of a System V inittab that `sysvInitAction` may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// Before everything else; boot waits for its end.
    Sysinit,
    /// After `sysinit`; boot waits for its end.
    Wait,
    /// Once, beside the rest.
    Once,
    /// Started again whenever it ends.
    Respawn,
    /// As `respawn`, on the console, after Enter was pressed.
    Askfirst,
    /// At shutdown, before the workload is stopped.
    Shutdown,
    /// When Ctrl-Alt-Del is pressed.
    Ctrlaltdel,
    /// When init is requested to restart itself.
    Restart,
}

/// A login on a serial line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Console {
    /// Device below `/dev`, such as `ttyS0`.
    pub device: String,
}
