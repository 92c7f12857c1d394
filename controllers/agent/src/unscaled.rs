//! VMs that are not scaled are read for the use of their disks alone, rarely; of the others that is read with their load.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use neonvm_api::VirtualMachine;

use crate::config::seconds;
use crate::fleet::{Fleet, key};
use crate::guest::Route;
use crate::scrape::Scraper;
use crate::shared::Shared;

/// Pause between two readings of a VM.
const EVERY: Duration = Duration::from_secs(30);
/// VMs that are read at the same time.
const AT_ONCE: usize = 8;

/// Reads the VMs of the node that are not scaled; never returns.
pub(crate) async fn read(shared: &Arc<Shared>, fleet: &Fleet) {
    let mut turn = tokio::time::interval(EVERY);
    turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        let vms = stream::iter(fleet.unscaled());
        vms.for_each_concurrent(AT_ONCE, |vm| read_one(shared, vm)).await;
    }
}

async fn read_one(shared: &Arc<Shared>, vm: VirtualMachine) {
    let Some(route) = Route::from_vm(&vm) else { return };
    let settings = shared.config.metrics.system;
    let mut scraper = Scraper::new(route, settings.port, Arc::clone(&shared.tls));
    match scraper.read(seconds(settings.request_timeout_seconds)).await {
        Ok(page) => shared.disks.read(&key(&vm), &page, &vm.spec.mounted_disks()),
        Err(reason) => tracing::debug!(vm = %key(&vm), reason, "the use of its disks cannot be read"),
    }
}
