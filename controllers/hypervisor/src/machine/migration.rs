//! Migrations of a VM between two QEMUs: what both can, numbers, memory, disks.
//!
//! QEMU connects only to sockets of its owner (see [`super::Resources::meeting`]); the transport to the other host is
//! not implemented here. A migration continues by events: [`super::MachineEvent::Migration`].

mod info;
mod mirror;
mod negotiate;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::Compression;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

pub use info::{MigrationInfo, MigrationPhase};
pub use mirror::JobEnd;
pub(super) use mirror::disk_of_job;
pub use negotiate::{Abilities, Agreement, RequestedFeatures, negotiate};

use super::{Machine, MachineEvent, RunState};
use crate::accelerator::Accelerator;
use crate::installation::Version;
use crate::qmp::QmpError;

/// Not a capability of QEMU's own list, but treated like one: compression by zstd in the channels of `multifd`.
pub(super) const ZSTD: &str = "multifd-compression-zstd";
/// Memory at fixed places of a file.
pub(super) const MAPPED_RAM: &str = "mapped-ram";
/// With `postcopy-preempt`, one target in ten of QEMU 7.2 crashed when a lost connection was made again, and with it the
/// machine; without, none did.
const PREEMPT_SINCE: Version = Version { major: 8, minor: 0, micro: 0 };
/// Time for commands that open or close connections.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest pause of a guest until QEMU has begun: it may wait for a target that does not answer.
const BEGIN: Duration = Duration::from_millis(250);
/// First announcement of the new place, pause up to the longest, and number: within a quarter of a second.
const ANNOUNCE: [(&str, u64); 4] =
    [("announce-initial", 10), ("announce-max", 200), ("announce-rounds", 5), ("announce-step", 50)];

/// Why QEMU does not migrate a VM.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigrationError {
    /// It was started without a directory for it.
    #[error("this machine was started without a directory for moves")]
    NoMeeting,
    /// There is no such disk.
    #[error("the machine has no disk {0:?} that is written")]
    Disk(String),
    /// QEMU refuses, or does not answer.
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Capabilities to be on; those of this crate that are not named are switched off.
    pub capabilities: BTreeSet<String>,
    /// Most bytes in a second.
    pub bandwidth: Bytes,
    /// Longest pause of the guest, in milliseconds. 0: QEMU copies memory once, and then sends the rest while the guest
    /// is paused; see [`Machine::sees_all_writes`].
    pub downtime_limit_ms: u32,
    /// Connections of `multifd`.
    pub channels: u8,
    pub compression: Compression,
}

/// Capabilities that this crate switches on and off.
const MANAGED: [&str; 8] = [
    "events",
    MAPPED_RAM,
    "return-path",
    "pause-before-switchover",
    "multifd",
    "auto-converge",
    "postcopy-ram",
    "postcopy-preempt",
];

/// Until the first pass begins, or never will.
async fn has_begun(events: &mut Receiver<MachineEvent>) {
    loop {
        match events.recv().await {
            Ok(MachineEvent::MigrationPass(_)) | Err(RecvError::Closed) => return,
            Ok(MachineEvent::Migration(phase)) if phase.is_over() => return,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
        }
    }
}

impl Machine {
    fn theirs(&self, name: &str) -> Result<String, MigrationError> {
        self.socket_of_qemu(name).ok_or(MigrationError::NoMeeting)
    }

    /// Address of a socket for QEMU.
    pub(super) fn address_of_socket(&self, name: &str) -> Result<String, MigrationError> {
        Ok(format!("unix:{}", self.theirs(name)?))
    }

    /// What this QEMU can. Capabilities that it supports but that this host refuses are among the refusals: so the
    /// target must be queried before it waits for data.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn migration_abilities(&self) -> Result<Abilities, QmpError> {
        let answer = self.session.execute("query-migrate-capabilities", Value::Null).await?;
        let names = answer.as_array().map(Vec::as_slice).unwrap_or_default();
        let name = |entry: &Value| entry.get("capability").and_then(Value::as_str).map(str::to_owned);
        let mut capabilities: BTreeSet<String> = names.iter().filter_map(name).collect();
        if self.version < PREEMPT_SINCE {
            capabilities.remove("postcopy-preempt");
        }
        let mut refused = BTreeMap::new();
        if capabilities.contains("postcopy-ram") && self.plan.incoming {
            match self.switch(&BTreeSet::from(["postcopy-ram".to_owned()]), &capabilities).await {
                Ok(()) => self.switch(&BTreeSet::new(), &capabilities).await?,
                Err(QmpError::Command { description, .. }) => {
                    let remedy = "is userfaultfd allowed there? sysctl vm.unprivileged_userfaultfd=1";
                    refused.insert("postcopy-ram".to_owned(), format!("{description} ({remedy})"));
                }
                Err(error) => return Err(error),
            }
        }
        if capabilities.contains(MAPPED_RAM) {
            // From a wake, or a suspension that was cancelled: it excludes compression.
            self.switch(&BTreeSet::new(), &capabilities).await?;
        }
        let zstd = json!({"multifd-compression": "zstd"});
        match self.session.execute("migrate-set-parameters", zstd).await {
            Ok(_) => {
                capabilities.insert(ZSTD.to_owned());
            }
            Err(QmpError::Command { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(Abilities { capabilities, refused })
    }

    async fn switch(&self, on: &BTreeSet<String>, known: &BTreeSet<String>) -> Result<(), QmpError> {
        let states: Vec<Value> = MANAGED
            .iter()
            .filter(|name| known.contains(**name))
            .map(|name| json!({"capability": name, "state": on.contains(*name)}))
            .collect();
        self.session.execute("migrate-set-capabilities", json!({"capabilities": states})).await.map(drop)
    }

    /// Sets how memory is migrated; on both sides before either begins.
    ///
    /// # Errors
    /// If QEMU refuses a capability or a number.
    pub async fn set_migration(&self, settings: &Settings) -> Result<(), QmpError> {
        let answer = self.session.execute("query-migrate-capabilities", Value::Null).await?;
        let names = answer.as_array().map(Vec::as_slice).unwrap_or_default();
        let name = |entry: &Value| entry.get("capability").and_then(Value::as_str).map(str::to_owned);
        if settings.capabilities.contains(MAPPED_RAM) {
            // QEMU looks at the compression that was set before.
            let none = json!({"multifd-compression": "none"});
            self.session.execute("migrate-set-parameters", none).await?;
        }
        self.switch(&settings.capabilities, &names.iter().filter_map(name).collect()).await?;
        let bandwidth = settings.bandwidth.get().clamp(1, i64::MAX.unsigned_abs());
        let mut parameters = json!({
            "max-bandwidth": bandwidth,
            "max-postcopy-bandwidth": bandwidth,
            "downtime-limit": settings.downtime_limit_ms,
        });
        let Some(map) = parameters.as_object_mut() else { return Ok(()) };
        map.extend(ANNOUNCE.map(|(name, value)| (name.to_owned(), value.into())));
        if settings.capabilities.contains("multifd") {
            map.insert("multifd-channels".to_owned(), settings.channels.max(1).into());
            let method = match settings.compression {
                Compression::None => "none",
                Compression::Zstd => "zstd",
            };
            map.insert("multifd-compression".to_owned(), method.into());
        }
        self.session.execute("migrate-set-parameters", parameters).await.map(drop)
    }

    /// Begins to send the machine to the socket of this name, on which the owner listens.
    ///
    /// # Errors
    /// If QEMU cannot begin; what happens later comes as events.
    pub async fn send_memory(&self, socket: &str) -> Result<(), MigrationError> {
        if self.sees_all_writes() || !matches!(self.status().await, Ok(RunState::Running)) {
            return self.migrate(socket, false).await;
        }
        // Before the first pass, too, marks are cleared; translation caches are emptied then, but a moment later.
        let mut events = self.events();
        self.stop().await?;
        let begun = self.migrate(socket, false).await;
        if begun.is_ok() {
            let _ = tokio::time::timeout(BEGIN, has_begun(&mut events)).await;
        }
        // It fails only if all memory is sent already, or if the migration failed and its caller cancels it.
        if let Err(error) = self.continue_().await {
            tracing::debug!(%error, "the guest stands still");
        }
        begun
    }

    /// The same for a guest that stands still, and is to; to any address.
    pub(super) async fn send_stopped(&self, address: &str) -> Result<(), MigrationError> {
        self.session.execute_within("migrate", json!({"uri": address}), CONNECT).await?;
        Ok(())
    }

    /// Continues a post-copy that lost its connection, by the socket of this name.
    ///
    /// # Errors
    /// If none is paused.
    pub async fn send_memory_again(&self, socket: &str) -> Result<(), MigrationError> {
        self.migrate(socket, true).await
    }

    async fn migrate(&self, socket: &str, resume: bool) -> Result<(), MigrationError> {
        let mut arguments = json!({"uri": self.address_of_socket(socket)?});
        if let Some(map) = arguments.as_object_mut()
            && resume
        {
            map.insert("resume".to_owned(), true.into());
        }
        self.session.execute_within("migrate", arguments, CONNECT).await?;
        Ok(())
    }

    /// Listens on the socket of this name; the owner connects to it.
    ///
    /// # Errors
    /// If QEMU was not started for it ([`crate::plan::MachinePlan::incoming`]) or listens already.
    pub async fn receive_memory(&self, socket: &str) -> Result<(), MigrationError> {
        self.receive_from(&self.address_of_socket(socket)?).await
    }

    /// The same from any address.
    pub(super) async fn receive_from(&self, address: &str) -> Result<(), MigrationError> {
        self.session.execute_within("migrate-incoming", json!({"uri": address}), CONNECT).await?;
        Ok(())
    }

    /// Listens again after a post-copy has lost its connection.
    ///
    /// # Errors
    /// If none is paused.
    pub async fn receive_memory_again(&self, socket: &str) -> Result<(), MigrationError> {
        let arguments = json!({"uri": self.address_of_socket(socket)?});
        self.session.execute_within("migrate-recover", arguments, CONNECT).await?;
        Ok(())
    }

    /// Changes the most bytes in a second during the migration.
    ///
    /// # Errors
    /// If QEMU refuses.
    pub async fn set_migration_bandwidth(&self, bandwidth: Bytes) -> Result<(), QmpError> {
        let bandwidth = bandwidth.get().clamp(1, i64::MAX.unsigned_abs());
        let parameters = json!({"max-bandwidth": bandwidth, "max-postcopy-bandwidth": bandwidth});
        self.session.execute("migrate-set-parameters", parameters).await.map(drop)
    }

    /// Cuts the connection of a post-copy, which pauses it: for a connection that is dead but not reported as such.
    ///
    /// # Errors
    /// If there is no post-copy.
    pub async fn pause_post_copy(&self) -> Result<(), QmpError> {
        self.session.execute_within("migrate-pause", Value::Null, CONNECT).await.map(drop)
    }

    /// Whether no write of a running guest is missed when its memory is copied more than once. QEMU's emulation misses
    /// some: it clears the dirty marks of pages without notifying its translation caches
    /// (`cpu_physical_memory_sync_dirty_bitmap`, 7.2), so a CPU that has such a page cached keeps writing it unnoticed.
    #[must_use]
    pub fn sees_all_writes(&self) -> bool {
        self.plan.accelerator != Accelerator::Tcg
    }

    /// Lets the guest run on the target before all its memory is there. Success means only that QEMU accepted the request; the
    /// event reports the switch.
    ///
    /// # Errors
    /// If the capability is off or no migration is running.
    pub async fn start_post_copy(&self) -> Result<(), QmpError> {
        self.session.execute("migrate-start-postcopy", Value::Null).await.map(drop)
    }

    /// Continues after [`MigrationPhase::PreSwitchover`].
    ///
    /// # Errors
    /// If that is not the phase.
    pub async fn switch_over(&self) -> Result<(), QmpError> {
        let arguments = json!({"state": "pre-switchover"});
        self.session.execute("migrate-continue", arguments).await.map(drop)
    }

    /// Cancels the migration; [`MigrationPhase::Cancelled`] or another end follows.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn cancel_migration(&self) -> Result<(), QmpError> {
        self.session.execute("migrate_cancel", Value::Null).await.map(drop)
    }

    /// Announces the guest's new location to the network, several times within a quarter of a second.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn announce(&self) -> Result<(), QmpError> {
        let rounds = ANNOUNCE.iter().filter_map(|(name, value)| {
            name.strip_prefix("announce-").map(|name| (name.to_owned(), Value::from(*value)))
        });
        self.session.execute("announce-self", Value::Object(rounds.collect())).await.map(drop)
    }

    /// The migration as QEMU reports it; phase [`MigrationPhase::None`] if there was none.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn migration(&self) -> Result<MigrationInfo, QmpError> {
        let answer = self.session.execute("query-migrate", Value::Null).await?;
        Ok(MigrationInfo::read(&answer))
    }
}
