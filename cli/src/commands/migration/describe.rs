//! `migration describe`

use crate::commands::resource::{document, name_of};
use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use neonvm_api::VirtualMachineMigration;
use neonvm_api::migration_policy::{MigrationPolicy, MigrationPolicySpec};

use super::is_over;
use super::show::{asked_by, ending, percent, phase_word, reason, size, status, took, write_limit};
use crate::args::migration::Describe;
use crate::commands::resource::NamespaceClient;
use crate::connect::block_on;
use crate::error::Result;
use crate::render::one_line;
use crate::report::{Document, Report};
use crate::settings::Settings;

pub(crate) fn run(settings: &Settings, args: &Describe) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let migration = client.find(&args.name).await?;
        let policy = policy(&client, &migration).await;
        let text = describe(&migration, policy.as_deref(), Timestamp::now());
        let document = document(&[migration]);
        Ok(Report::document(Document { text: Some(text), ..document }))
    })
}

/// The limits of the policy of a migration in words; none without a policy.
async fn policy(client: &NamespaceClient, migration: &VirtualMachineMigration) -> Option<String> {
    let name = status(migration).policy;
    if name.is_empty() {
        return None;
    }
    let api: Api<MigrationPolicy> = Api::all(client.connection.client());
    Some(match client.connection.within("cannot read the policy", api.get_opt(&name)).await {
        Ok(Some(policy)) => policy_limits(&policy.spec),
        Ok(None) => "the policy was deleted".to_owned(),
        Err(error) => [vec![error.message], error.causes].concat().join(": "),
    })
}

fn describe(migration: &VirtualMachineMigration, policy: Option<&str>, now: Timestamp) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "{key:<13} {}", one_line(&value));
        }
    };
    let (spec, status) = (&migration.spec, status(migration));
    let namespace = migration.metadata.namespace.clone().unwrap_or_default();
    line("Name", format!("{} (namespace {namespace})", name_of(migration)));
    line("VM", format!("{}, requested by {}", spec.vm_name, asked_by(migration)));
    let took = took(migration, now).map(|took| format!(" ({took})")).unwrap_or_default();
    line("Phase", format!("{}{took}: {}", phase_word(migration), reason(migration)));
    let place = |node: &str, pod: &str| match (node, pod) {
        ("", "") => String::new(),
        ("", pod) => format!("pod {pod}"),
        (node, pod) => format!("{node}, pod {pod}"),
    };
    line("From", place(&status.source_node, &status.source_pod_name));
    line("To", place(&status.target_node, &status.target_pod_name));
    line("Policy", status.policy.clone());
    line("Mode", status.mode.clone());
    for dropped in &status.dropped {
        line("Not used", dropped.clone());
    }
    let info = &status.info;
    if info.disk.total > 0 {
        line("Disks", format!("{} of {}", size(info.disk.transferred), size(info.disk.total)));
    }
    if info.ram.total > 0 {
        let percent = percent(migration).unwrap_or(0);
        line(
            "Memory",
            format!(
                "{percent}% of {}, {} iterations, {} sent, {}/s, dirty rate {}/s",
                size(info.ram.total),
                info.passes,
                size(info.ram.transferred),
                size(info.throughput),
                size(info.dirty_rate)
            ),
        );
    }
    if info.throttle_percent > 0 {
        line("Throttled by", format!("{}%", info.throttle_percent));
    }
    if let Some(limit) = write_limit(info) {
        line("Disk writes", limit);
    }
    line("Limits", limits(migration));
    line("Policy limits", policy.unwrap_or_default().to_owned());
    for condition in &status.conditions {
        let message =
            if condition.message.is_empty() { String::new() } else { format!(": {}", condition.message) };
        line(
            "Condition",
            format!("{} {} ({}){message}", condition.type_, condition.status, condition.reason),
        );
    }
    if is_over(migration) {
        line("Result", ending(migration));
    }
    text.trim_end().to_owned()
}

fn limits(migration: &VirtualMachineMigration) -> String {
    let spec = &migration.spec;
    let mut parts = vec![format!("{} s", spec.completion_timeout), format!("{}/s", spec.max_bandwidth)];
    if let Some(pause) = spec.tuning.downtime_limit_ms {
        parts.push(format!("downtime {pause} ms"));
    }
    if spec.priority != 0 {
        parts.push(format!("priority {}", spec.priority));
    }
    parts.join(", ")
}

/// The limits of a policy, in the order of those of a migration. The lower of two holds for time and bandwidth; a migration's own
/// downtime wins.
fn policy_limits(policy: &MigrationPolicySpec) -> String {
    let time = policy.completion_timeout.map(|seconds| format!("{seconds} s"));
    let bandwidth = policy.max_bandwidth.as_ref().map(|bandwidth| format!("{bandwidth}/s"));
    let downtime = policy.tuning.downtime_limit_ms.map(|pause| format!("downtime {pause} ms"));
    let all: Vec<String> = [time, bandwidth, downtime].into_iter().flatten().collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_move_in_words() {
        let migration: VirtualMachineMigration = serde_json::from_value(json!({
            "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration",
            "metadata": { "name": "pg-1", "namespace": "db" },
            "spec": { "vmName": "pg", "priority": 3, "completionTimeout": 60 },
            "status": { "phase": "Succeeded", "reason": "Completed", "sourceNode": "n1", "targetNode": "n3",
                "sourcePodName": "pg-a", "targetPodName": "pg-b", "mode": "multifd x4, zstd", "policy": "databases",
                "dropped": ["postcopy: not allowed"], "startTime": "2026-01-01T00:00:00Z",
                "completionTime": "2026-01-01T00:01:00Z",
                "info": { "downtimeMs": 71, "passes": 3, "ram": { "total": 1 << 30, "transferred": 1 << 29 } } } }))
        .unwrap();
        let policy: MigrationPolicySpec = serde_json::from_value(
            json!({ "maxBandwidth": "512Mi", "downtimeLimitMs": 80, "completionTimeout": 300 }),
        )
        .unwrap();
        let text = describe(&migration, Some(&policy_limits(&policy)), Timestamp::UNIX_EPOCH);
        assert_eq!(policy_limits(&MigrationPolicySpec::default()), "none");
        let flat: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "VM pg, requested by user",
            "Phase Succeeded (1m): Completed",
            "From n1, pod pg-a",
            "To n3, pod pg-b",
            "Policy databases",
            "Not used postcopy: not allowed",
            "Memory 100% of 1Gi, 3 iterations, 512Mi sent, 0/s, dirty rate 0/s",
            "Limits 60 s, 1Gi/s, priority 3",
            "Policy limits 300 s, 512Mi/s, downtime 80 ms",
            "Result succeeded: pg runs on n3 (downtime 71 ms)",
        ] {
            assert!(flat.iter().any(|own| own == line), "{line}\n{text}");
        }
    }
}
