//! A move in words and numbers. Pure.

use crate::commands::resource::name_of;
use k8s_openapi::jiff::Timestamp as Instant;
use neonvm_api::VirtualMachineMigration;
use neonvm_api::migration::{MigrationInfo, MigrationPhase, MigrationReason, VirtualMachineMigrationStatus};
use neonvm_types::Bytes;

use super::phase;

pub(crate) fn status(migration: &VirtualMachineMigration) -> VirtualMachineMigrationStatus {
    migration.status.clone().unwrap_or_default()
}

/// An amount of bytes from the API, which counts in signed numbers.
pub(super) fn bytes(amount: i64) -> Bytes {
    Bytes::new(u64::try_from(amount).unwrap_or(0))
}

/// The same for people, as `11.9Gi`.
pub(crate) fn size(amount: i64) -> String {
    crate::render::bytes(bytes(amount).get())
}

/// The phase as people see it: one that was called off has not failed.
pub(crate) fn phase_word(migration: &VirtualMachineMigration) -> String {
    let status = status(migration);
    match status.phase {
        None => "Queued".to_owned(),
        Some(MigrationPhase::Failed) if status.reason == MigrationReason::Cancelled.as_str() => {
            "Cancelled".to_owned()
        }
        Some(MigrationPhase::Pending) if status.reason == MigrationReason::Queued.as_str() => {
            "Queued".to_owned()
        }
        Some(phase) => format!("{phase:?}"),
    }
}

/// Percent of the memory that need not be sent any more; absent before it is known.
pub(crate) fn percent(migration: &VirtualMachineMigration) -> Option<u64> {
    let status = status(migration);
    if status.phase == Some(MigrationPhase::Succeeded) {
        return Some(100);
    }
    let (total, remaining) = (bytes(status.info.ram.total).get(), bytes(status.info.ram.remaining).get());
    let done = total.saturating_sub(remaining);
    u64::try_from((u128::from(done) * 100).checked_div(u128::from(total))?).ok()
}

pub(super) fn took(migration: &VirtualMachineMigration, now: Instant) -> Option<String> {
    let status = status(migration);
    let start = status.start_time?.unix();
    let end = status.completion_time.map_or_else(|| now.as_second(), |time| time.unix());
    Some(crate::render::span(u64::try_from(end.saturating_sub(start)).unwrap_or(0)))
}

/// Why it is where it is: the word and, if there is one, the message.
pub(crate) fn reason(migration: &VirtualMachineMigration) -> String {
    let status = status(migration);
    match (status.reason.as_str(), status.message.as_str()) {
        ("", "") => "not reconciled yet; is vm-controller running?".to_owned(),
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{message} ({reason})"),
    }
}

pub(crate) fn state(migration: &VirtualMachineMigration) -> String {
    let status = status(migration);
    let passes = status.info.passes;
    match (phase(migration), percent(migration)) {
        (Some(MigrationPhase::Running), Some(percent)) => {
            format!("{}, iteration {passes}, {percent}%", status.reason.to_lowercase())
        }
        (Some(MigrationPhase::Succeeded | MigrationPhase::Failed), _) => ending(migration),
        _ => reason(migration),
    }
}

pub(crate) fn ending(migration: &VirtualMachineMigration) -> String {
    let status = status(migration);
    let vm = &migration.spec.vm_name;
    match status.phase {
        Some(MigrationPhase::Succeeded) => {
            let downtime = downtime(&status.info);
            format!("succeeded: {vm} runs on {} (downtime {downtime})", status.target_node)
        }
        Some(MigrationPhase::Failed) if status.reason == MigrationReason::Cancelled.as_str() => {
            match status.source_node.as_str() {
                "" => format!("cancelled before {vm} began to migrate"),
                node => format!("cancelled; {vm} stayed on {node}"),
            }
        }
        Some(MigrationPhase::Failed) => format!("failed: {}", reason(migration)),
        _ => state(migration),
    }
}

pub(super) fn progress(migration: &VirtualMachineMigration) -> String {
    let info = status(migration).info;
    if info.ram.total == 0 {
        if info.disk.total > 0 {
            let done = format!("{}/{} of disks", size(info.disk.transferred), size(info.disk.total));
            return done + &held(&info);
        }
        return status(migration).message;
    }
    let mut text = format!(
        "iteration {} {} {}/{} {}/s dirty {}/s",
        info.passes,
        bar(percent(migration).unwrap_or(0)),
        size(info.ram.total - info.ram.remaining),
        size(info.ram.total),
        size(info.throughput),
        size(info.dirty_rate),
    );
    if let Some(seconds) = eta(&info) {
        text.push_str(&format!(" eta {}", crate::render::span(seconds)));
    }
    if info.throttle_percent > 0 {
        text.push_str(&format!(" throttled by {}%", info.throttle_percent));
    }
    text + &held(&info)
}

fn held(info: &MigrationInfo) -> String {
    write_limit(info).map(|limit| format!(", disk writes {limit}")).unwrap_or_default()
}

/// The write limit of each disk while disks are copied, if there is one.
pub(super) fn write_limit(info: &MigrationInfo) -> Option<String> {
    (info.disk_write_limit > 0).then(|| format!("limited to {}/s each", size(info.disk_write_limit)))
}

/// Seconds until the rest is sent, if it is sent faster than it changes.
fn eta(info: &MigrationInfo) -> Option<u64> {
    let gain = info.throughput - info.dirty_rate;
    (gain > 0 && info.ram.remaining > 0).then(|| bytes(info.ram.remaining / gain).get())
}

fn bar(percent: u64) -> String {
    let filled = usize::try_from(percent.min(100) / 5).unwrap_or(0);
    format!("[{}{}]", "#".repeat(filled), ".".repeat(20 - filled))
}

pub(super) fn step_result(migration: &VirtualMachineMigration, step: &str) -> String {
    let status = status(migration);
    let info = &status.info;
    if status.phase == Some(MigrationPhase::Failed) {
        return "not finished".to_owned();
    }
    match step {
        "prepare" => format!("target pod {} running", status.target_pod_name),
        "mirror" if info.disk.total > 0 => format!("{} of disks", size(info.disk.transferred)),
        "mirror" => status.mode.clone(),
        "copy" if info.passes > 0 => format!(
            "{} iterations, {}, dirty rate {}/s",
            info.passes,
            size(info.ram.transferred),
            size(info.dirty_rate)
        ),
        "switch" => format!("downtime {}", downtime(info)),
        _ => String::new(),
    }
}

pub(crate) fn downtime(info: &MigrationInfo) -> String {
    match info.downtime_ms {
        ..=0 => "unknown: the source was lost before it was reported".to_owned(),
        known => format!("{known} ms"),
    }
}

/// The step that a reason belongs to.
pub(super) fn step(migration: &VirtualMachineMigration) -> Option<&'static str> {
    if super::is_over(migration) {
        return None;
    }
    Some(match status(migration).reason.as_str() {
        "Queued" | "" => "queue",
        "Preparing" => "prepare",
        "Mirroring" => "mirror",
        "Copying" => "copy",
        "Switching" => "switch",
        "PostCopy" | "PostCopyPaused" => "post-copy",
        "Cancelling" => "cancel",
        _ => "wait",
    })
}

pub(crate) fn asked_by(migration: &VirtualMachineMigration) -> &'static str {
    let labels = migration.metadata.labels.as_ref();
    let has = |key: &str| labels.is_some_and(|labels| labels.contains_key(key));
    if has(neonvm_api::names::label::CREATED_BY_SCHEDULER) {
        "scheduler"
    } else if has(neonvm_api::names::label::CREATED_BY_EVICTION) {
        "eviction"
    } else if has(neonvm_api::names::label::CREATED_BY_DENIED_GROWTH) {
        "denied growth"
    } else {
        "user"
    }
}

/// From where to where, as far as known.
pub(super) fn way(migration: &VirtualMachineMigration) -> String {
    let status = status(migration);
    let known = |node: String| if node.is_empty() { "?".to_owned() } else { node };
    format!("migration/{} {} -> {}", name_of(migration), known(status.source_node), known(status.target_node))
}

#[cfg(test)]
mod tests;
