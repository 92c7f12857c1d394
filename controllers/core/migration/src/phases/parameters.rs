//! Parameters of a migration: from the migration's spec, else from its policy, else defaults.

use std::cmp::Reverse;

use neonvm_api::virtual_machine::ClaimRetention;
use neonvm_api::{MigrationPolicy, VirtualMachine, VirtualMachineMigration};
use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{Compression, MigrationParameters, OnTimeout, PostCopy};

/// Most connections of a migration: with compression each takes 1.6 MiB of both QEMUs, which the overhead of their pods has room for.
const MOST_CHANNELS: u8 = 16;

/// The parameters of a VM's migration, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// For the source runner.
    pub parameters: MigrationParameters,
    /// Name of the policy that applied; empty: none did.
    pub policy: String,
    /// Requested options that cannot be combined, each with its reason.
    pub dropped: Vec<String>,
    /// Largest volume that is copied; `None`: any.
    pub max_volume_copy: Option<Bytes>,
    /// Claims that the VM leaves stay.
    pub retain_volumes: bool,
}

/// The migration names a policy that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {0} does not exist")]
pub struct PolicyMissing(pub String);

/// The policy for a VM: the one that is named, or of those that match the one with the most labels, then one that names
/// namespaces, then the first by name.
fn policy<'a>(
    migration: &VirtualMachineMigration,
    vm: &VirtualMachine,
    policies: &[&'a MigrationPolicy],
) -> Result<Option<&'a MigrationPolicy>, PolicyMissing> {
    let name = |policy: &MigrationPolicy| policy.metadata.name.clone().unwrap_or_default();
    let named = &migration.spec.policy;
    if !named.is_empty() {
        let found = policies.iter().find(|policy| name(policy) == *named).copied();
        return found.map(Some).ok_or_else(|| PolicyMissing(named.clone()));
    }
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    let labels = vm.metadata.labels.as_ref();
    let matches = |policy: &&&MigrationPolicy| {
        let spec = &policy.spec;
        let here = spec.namespaces.is_empty() || spec.namespaces.iter().any(|name| name == namespace);
        let has = |key: &String| labels.and_then(|labels| labels.get(key));
        here && spec.match_labels.iter().all(|(key, value)| has(key) == Some(value))
    };
    let rank = |policy: &&&MigrationPolicy| {
        let spec = &policy.spec;
        (Reverse(spec.match_labels.len()), spec.namespaces.is_empty(), name(policy))
    };
    Ok(policies.iter().filter(matches).min_by_key(rank).copied())
}

/// Resolves the parameters of the VM's migration.
///
/// # Errors
/// If the migration names a policy that does not exist.
pub fn resolve(
    migration: &VirtualMachineMigration,
    vm: &VirtualMachine,
    policies: &[&MigrationPolicy],
) -> Result<Resolved, PolicyMissing> {
    let spec = &migration.spec;
    let found = policy(migration, vm, policies)?;
    let rules = found.map(|policy| policy.spec.clone()).unwrap_or_default();
    let default = MigrationParameters::default();
    let (own, theirs) = (&spec.tuning, &rules.tuning);
    let mut bandwidth = Bytes::try_from(spec.max_bandwidth).unwrap_or(default.bandwidth);
    if let Some(most) = rules.max_bandwidth.and_then(|most| Bytes::try_from(most).ok()) {
        bandwidth = bandwidth.min(most);
    }
    let timeout = spec.completion_timeout.min(rules.completion_timeout.unwrap_or(i32::MAX)).max(1);
    let switch = spec.allow_post_copy.then_some(PostCopy::AfterFirstPass);
    let requested = own.on_timeout.or(theirs.on_timeout);
    let mut post_copy = own.post_copy.or(switch).or(theirs.post_copy);
    // Two fields can request post-copy on timeout; either is enough, unless the other forbids it.
    if requested == Some(OnTimeout::PostCopy) {
        post_copy = post_copy.or(Some(PostCopy::OnTimeout));
    }
    let on_timeout = match (requested, post_copy) {
        (Some(OnTimeout::PostCopy), Some(PostCopy::Never)) => OnTimeout::Abort,
        (Some(requested), _) => requested,
        (None, Some(PostCopy::OnTimeout)) => OnTimeout::PostCopy,
        (None, _) => default.on_timeout,
    };
    let mut post_copy = post_copy.unwrap_or(default.post_copy);
    if post_copy == PostCopy::OnTimeout && on_timeout != OnTimeout::PostCopy {
        post_copy = PostCopy::Never;
    }
    let mut parameters = MigrationParameters {
        bandwidth: bandwidth.max(Bytes::new(1)),
        downtime_limit_ms: own
            .downtime_limit_ms
            .or(theirs.downtime_limit_ms)
            .unwrap_or(default.downtime_limit_ms),
        auto_converge: spec.auto_converge && rules.auto_converge != Some(false),
        channels: own.channels.or(theirs.channels).unwrap_or(default.channels).max(1),
        compression: own.compression.or(theirs.compression).unwrap_or(default.compression),
        post_copy,
        completion_timeout_s: u32::try_from(timeout).unwrap_or(1),
        on_timeout,
    };
    let mut dropped = Vec::new();
    if parameters.channels > MOST_CHANNELS {
        let why = "more take more memory than the runner's pod has for them";
        dropped.push(format!("channels {}: {MOST_CHANNELS} at most, because {why}", parameters.channels));
        parameters.channels = MOST_CHANNELS;
    }
    if post_copy != PostCopy::Never {
        alone(
            &mut parameters,
            own.channels.or(theirs.channels),
            own.compression.or(theirs.compression),
            &mut dropped,
        );
    }
    let policy = found.and_then(|policy| policy.metadata.name.clone()).unwrap_or_default();
    let most = own.max_volume_copy.or(theirs.max_volume_copy);
    let old_volumes = own.old_volumes.or(theirs.old_volumes);
    Ok(Resolved {
        parameters,
        policy,
        dropped,
        max_volume_copy: most.and_then(|most| Bytes::try_from(most).ok()),
        retain_volumes: old_volumes == Some(ClaimRetention::Retain),
    })
}

/// Post-copy is had with one plain connection only.
fn alone(
    parameters: &mut MigrationParameters,
    channels: Option<u8>,
    compression: Option<Compression>,
    dropped: &mut Vec<String>,
) {
    if let Some(channels) = channels.filter(|channels| *channels > 1) {
        dropped.push(format!("channels {channels}: not together with post-copy"));
    }
    if compression == Some(Compression::Zstd) {
        dropped.push("compression zstd: not together with post-copy".to_owned());
    }
    parameters.channels = 1;
    parameters.compression = Compression::None;
}
