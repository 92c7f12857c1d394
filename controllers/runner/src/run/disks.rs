//! Disks on claims that grow while the guest runs: first the disk, by QEMU, then the file system, by the guest's daemon.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use neonvm_hypervisor::machine::Machine;
use neonvm_types::Bytes;
use neonvm_types::guest::FileSystem;
use neonvm_types::runner_protocol::{DiskRequest, RunnerState};

use super::{Daemon, Event, Loop, Moving, Refusal, Volume};

/// Time for the guest's kernel to take note of a larger disk.
const NOTICED: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

impl Loop {
    /// Reports the disks on claims that the guest writes.
    pub(super) async fn find_disks(&mut self) {
        let mut sizes = BTreeMap::new();
        for (name, claim) in &self.pod.config.claims {
            let Some(index) = disk_number(&self.machine, name) else { continue };
            match self.machine.used_volume(index, claim.size).await {
                Ok(size) => sizes.extend([(name.clone(), size)]),
                Err(error) => tracing::warn!(disk = name, %error, "the disk grows at the next start only"),
            }
        }
        if !sizes.is_empty() {
            self.take(Event::Disks(sizes));
        }
    }

    /// A disk keeps its size while its VM is being migrated: the other runner has it as well, or gets a copy of this size.
    pub(super) fn accept_growth(&mut self, request: DiskRequest) -> Result<(), Refusal> {
        self.core.check_disk(&request).map_err(Refusal::Wrong)?;
        let moves = self.moving.as_ref().map(Moving::status).is_some_and(|status| !status.state.is_over());
        if moves || self.core.is_held() {
            return Err(Refusal::Conflict(
                "the VM is being migrated: its disks can grow afterwards".to_owned(),
            ));
        }
        if self.core.is_paused() {
            return Err(Refusal::Conflict(
                "the VM is paused: its disks can grow when it is resumed".to_owned(),
            ));
        }
        let state = self.core.status().state;
        if state != RunnerState::Running {
            return Err(Refusal::Conflict(format!("the VM is {state:?}: its disks can grow when it runs")));
        }
        tracing::info!(disk = request.disk, size = %request.size, "the volume of a disk has grown");
        self.take(Event::GrowDisk(request));
        Ok(())
    }

    pub(super) fn grow_disk(&self, request: DiskRequest) {
        let volumes = Arc::clone(&self.volumes);
        self.spawn(move |machine, daemon| async move {
            Some(match grow(&machine, &daemon, &volumes, &request).await {
                Ok(later) => {
                    tracing::info!(disk = request.disk, size = %request.size, later, "the disk has grown");
                    Event::DiskGrown(request, later)
                }
                Err(error) => {
                    tracing::warn!(disk = request.disk, error, "the disk has not grown");
                    Event::DiskNotGrown(request, error)
                }
            })
        });
    }
}

fn disk_number(machine: &Machine, name: &str) -> Option<usize> {
    machine.plan().disks.iter().position(|disk| disk.name == name && !disk.read_only)
}

/// Grows the disk, then the file system on it; the reason if that grows at the next start only.
async fn grow(
    machine: &Machine,
    daemon: &Daemon,
    volumes: &[Volume],
    request: &DiskRequest,
) -> Result<Option<String>, String> {
    let name = &request.disk;
    let index = disk_number(machine, name).ok_or("the VM has no such disk")?;
    let size = machine.grow_disk(index, request.size).await.map_err(|error| error.to_string())?;
    volumes.iter().filter(|volume| volume.info.name == *name).for_each(|volume| volume.grow_to(size));
    let until = Instant::now() + NOTICED;
    loop {
        let listed = daemon
            .grow()
            .await
            .map_err(|error| format!("the guest does not grow its file system: {error}"))?;
        match found(listed.as_deref(), name, size) {
            Found::Whole => return Ok(None),
            Found::Later(why) => return Ok(Some(why)),
            Found::Failed(why) => return Err(why),
            Found::NotYet if Instant::now() > until => {
                return Err("the guest's kernel does not take note of the disk's new size".to_owned());
            }
            Found::NotYet => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// What the guest's list shows of a disk.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// The file system has all of it.
    Whole,
    /// It grows at the next start.
    Later(String),
    Failed(String),
    /// The guest's kernel has the size from before.
    NotYet,
}

fn found(listed: Option<&[FileSystem]>, disk: &str, size: Bytes) -> Found {
    let Some(listed) = listed else {
        let why = "its file system grows at the next start: the guest program is of a version that grows none before";
        return Found::Later(why.to_owned());
    };
    match listed.iter().find(|one| one.serial == disk) {
        None => Found::Later("the guest has no ext4 file system of it mounted, which could grow".to_owned()),
        Some(one) if one.disk < size.get() => Found::NotYet,
        Some(one) if !one.problem.is_empty() => {
            Found::Failed(format!("the guest cannot grow its file system: {}", one.problem))
        }
        Some(_) => Found::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_grown_when_the_guest_has_all_of_it() {
        let one = |serial: &str, disk, problem: &str| FileSystem {
            serial: serial.into(),
            disk,
            size: 1,
            problem: problem.into(),
        };
        let size = Bytes::new(2);
        let of = |list: &[FileSystem]| found(Some(list), "data", size);
        assert_eq!(of(&[one("log", 1, ""), one("data", 2, "")]), Found::Whole);
        assert_eq!(of(&[one("data", 1, "")]), Found::NotYet);
        assert_eq!(of(&[one("data", 1, "no room")]), Found::NotYet);
        assert!(matches!(of(&[one("data", 2, "no room")]), Found::Failed(why) if why.ends_with(": no room")));
        assert!(matches!(of(&[one("log", 9, "")]), Found::Later(_)));
        assert!(matches!(found(None, "data", size), Found::Later(why) if why.contains("at the next start")));
    }
}
