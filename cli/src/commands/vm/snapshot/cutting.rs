//! Making the parts of a snapshot while the VM's file systems are frozen. Whatever happens, the VM is thawed, and what is not consistent is
//! deleted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::runtime::watcher;
use neonvm_api::VirtualMachine;

use super::object::{self, Cut};
use super::{Plan, selector};
use crate::commands::job::Stop;
use crate::commands::resource::NamespaceClient;
use crate::commands::vm::freeze;
use crate::error::{Code, Error, Result};

/// Longest time for the snapshots of a VM that is off: no program of the guest waits for them.
const OFF: Duration = Duration::from_secs(300);
/// What is left of the bound for the thaw.
const MARGIN: Duration = Duration::from_secs(1);

/// Freezes, makes all parts, waits until each is cut, thaws. How long writes waited, in milliseconds; none if the VM is off.
pub(super) async fn cut_all(
    client: &NamespaceClient,
    machine: &VirtualMachine,
    plan: &Plan,
) -> Result<Option<u64>> {
    let mut stop = Stop::listen()?;
    let limit = match plan.bound {
        Some(bound) => {
            let frozen = freeze::freeze(client, machine, bound, false).await?;
            Duration::from_secs(frozen.seconds.into()).saturating_sub(MARGIN)
        }
        None => OFF,
    };
    let (started, created) = (Instant::now(), RefCell::default());
    let made = tokio::select! {
        made = make_all(client, plan, &created, (started, limit)) => made,
        () = stop.requested() => Err(Error::new(Code::Interrupted, "interrupted: no snapshot was made")),
    };
    let thawed = match plan.bound {
        Some(_) => freeze::thaw(client, machine).await.map(|thawed| Some(thawed.frozen_ms)),
        None => Ok(None),
    };
    match (made, thawed) {
        (Ok(()), Ok(waited)) => Ok(waited),
        (Err(error), _) | (Ok(()), Err(error)) => {
            remove_all(client, created.take()).await;
            Err(error)
        }
    }
}

async fn make_all(
    client: &NamespaceClient,
    plan: &Plan,
    created: &RefCell<Vec<String>>,
    (started, limit): (Instant, Duration),
) -> Result<()> {
    for (disk, claim) in &plan.disks {
        let value = object::object(&plan.vm, &plan.name, disk, claim, plan.class.as_deref());
        let wanted: DynamicObject = serde_json::from_value(value).map_err(|error| {
            Error::new(Code::Failed, "cannot make a VolumeSnapshot").cause(error.to_string())
        })?;
        let name = object::name_for(&plan.name, &disk.name);
        let attempt = format!("cannot create VolumeSnapshot {name}");
        let parameters = PostParams { field_manager: Some("neonctl".into()), ..PostParams::default() };
        client.connection.within(&attempt, object::api(client).create(&parameters, &wanted)).await?;
        created.borrow_mut().push(name);
    }
    until_cut(client, plan, limit.saturating_sub(started.elapsed())).await
}

/// Waits until each part is cut, by a watch: the guest waits for this.
async fn until_cut(client: &NamespaceClient, plan: &Plan, limit: Duration) -> Result<()> {
    let config = watcher::Config::default().labels(&selector(&plan.name));
    let mut stream = watcher(object::api(client), config).boxed();
    let names = plan.disks.iter().map(|(disk, _)| object::name_for(&plan.name, &disk.name));
    let mut parts: BTreeMap<String, Cut> = names.map(|name| (name, Cut::No)).collect();
    let deadline = tokio::time::sleep(limit);
    tokio::pin!(deadline);
    loop {
        let event = tokio::select! {
            event = stream.try_next() => event,
            () = &mut deadline => return Err(late(&parts, limit)),
        };
        let object = match event {
            Ok(Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => object,
            Ok(Some(_)) => continue,
            Ok(None) => return Err(Error::new(Code::Failed, "the watch ended")),
            // The watcher goes on by itself, with pauses; the deadline ends it.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let name = object.metadata.name.clone().unwrap_or_default();
        let Some(part) = parts.get_mut(&name) else { continue };
        *part = object::cut(&object);
        if let Cut::Failed(why) = part {
            return Err(Error::new(Code::Failed, format!("VolumeSnapshot {name} failed")).cause(why.clone()));
        }
        if parts.values().all(|part| *part == Cut::Yes) {
            return Ok(());
        }
    }
}

fn late(parts: &BTreeMap<String, Cut>, limit: Duration) -> Error {
    let missing: Vec<&str> =
        parts.iter().filter(|(_, cut)| **cut != Cut::Yes).map(|(name, _)| name.as_str()).collect();
    let text = format!("not cut within {}s: VolumeSnapshot {}", limit.as_secs(), missing.join(", "));
    Error::new(Code::Timeout, text).hint("does the snapshot-controller run, and the CSI driver's snapshotter? or let writes wait longer: --for")
}

/// What could not be made as a whole is not kept; only what was made here is deleted.
async fn remove_all(client: &NamespaceClient, created: Vec<String>) {
    for name in created {
        let delete = DeleteParams::default();
        let _ = client.connection.within("", object::api(client).delete(&name, &delete)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_named() {
        let parts = BTreeMap::from([("s-a".to_owned(), Cut::Yes), ("s-b".to_owned(), Cut::No)]);
        let error = late(&parts, Duration::from_secs(29));
        assert_eq!(error.message, "not cut within 29s: VolumeSnapshot s-b");
    }
}
