//! Where built-in lists and maps merge, as the Kubernetes 1.36 API declares it with `x-kubernetes-list-type`,
//! `x-kubernetes-list-map-keys`, `x-kubernetes-map-type`, `x-kubernetes-patch-strategy` and `…-merge-key`.
//! `k8s-openapi` does not carry these in its schemas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::{ListType, PatchStrategy};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Merge {
    pub(super) list: Option<ListType>,
    pub(super) map_atomic: bool,
    pub(super) patch: PatchStrategy,
}

/// Columns: type (without `io.k8s.api.`), field, server-side apply, strategic merge patch.
/// Apply: `set`, `map:<keys>`, `atomic` (of a map or object), `-`. Patch: `merge`, `merge:<key>`, `+retain`, `-`.
const FIELDS: &str = "
admissionregistration.v1.MutatingAdmissionPolicySpec matchConditions map:name merge:name
admissionregistration.v1.MutatingWebhook matchConditions map:name merge:name
admissionregistration.v1.MutatingWebhookConfiguration webhooks map:name merge:name
admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec validationActions set -
admissionregistration.v1.ValidatingAdmissionPolicySpec matchConditions map:name merge:name
admissionregistration.v1.ValidatingAdmissionPolicySpec variables map:name merge:name
admissionregistration.v1.ValidatingAdmissionPolicyStatus conditions map:type -
admissionregistration.v1.ValidatingWebhook matchConditions map:name merge:name
admissionregistration.v1.ValidatingWebhookConfiguration webhooks map:name merge:name
apps.v1.DaemonSetStatus conditions map:type merge:type
apps.v1.DeploymentSpec strategy - +retain
apps.v1.DeploymentStatus conditions map:type merge:type
apps.v1.ReplicaSetStatus conditions map:type merge:type
apps.v1.StatefulSetStatus conditions map:type merge:type
autoscaling.v2.HorizontalPodAutoscalerStatus conditions map:type merge:type
batch.v1.JobStatus conditions - merge:type
batch.v1.UncountedTerminatedPods failed set -
batch.v1.UncountedTerminatedPods succeeded set -
certificates.v1.CertificateSigningRequestStatus conditions map:type -
core.v1.Container env map:name merge:name
core.v1.Container ports map:containerPort,protocol merge:containerPort
core.v1.Container volumeDevices map:devicePath merge:devicePath
core.v1.Container volumeMounts map:mountPath merge:mountPath
core.v1.ContainerRestartRuleOnExitCodes values set -
core.v1.ContainerStatus allocatedResourcesStatus map:name merge:name
core.v1.ContainerStatus volumeMounts map:mountPath merge:mountPath
core.v1.EphemeralContainer env map:name merge:name
core.v1.EphemeralContainer ports map:containerPort,protocol merge:containerPort
core.v1.EphemeralContainer volumeDevices map:devicePath merge:devicePath
core.v1.EphemeralContainer volumeMounts map:mountPath merge:mountPath
core.v1.NamespaceStatus conditions map:type merge:type
core.v1.NodeSpec podCIDRs set merge
core.v1.NodeStatus addresses map:type merge:type
core.v1.NodeStatus conditions map:type merge:type
core.v1.PersistentVolumeClaimStatus conditions map:type merge:type
core.v1.PodSpec containers map:name merge:name
core.v1.PodSpec ephemeralContainers map:name merge:name
core.v1.PodSpec hostAliases map:ip merge:ip
core.v1.PodSpec imagePullSecrets map:name merge:name
core.v1.PodSpec initContainers map:name merge:name
core.v1.PodSpec nodeSelector atomic -
core.v1.PodSpec resourceClaims map:name merge:name+retain
core.v1.PodSpec schedulingGates map:name merge:name
core.v1.PodSpec topologySpreadConstraints map:topologyKey,whenUnsatisfiable merge:topologyKey
core.v1.PodSpec volumes map:name merge:name+retain
core.v1.PodStatus conditions map:type merge:type
core.v1.PodStatus hostIPs - merge:ip
core.v1.PodStatus podIPs map:ip merge:ip
core.v1.PodStatus resourceClaimStatuses map:name merge:name+retain
core.v1.ResourceRequirements claims map:name -
core.v1.ResourceStatus resources map:resourceID -
core.v1.ServiceAccount secrets map:name merge:name
core.v1.ServiceSpec ports map:port,protocol merge:port
core.v1.ServiceSpec selector atomic -
core.v1.ServiceStatus conditions map:type merge:type
discovery.v1.Endpoint addresses set -
policy.v1.PodDisruptionBudgetStatus conditions map:type merge:type
io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus conditions map:type -
io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps x-kubernetes-validations map:rule merge:rule
io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta finalizers set merge
io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta ownerReferences map:uid merge:uid
";

/// Object types that server-side apply replaces as a whole, wherever they are used.
const ATOMIC_TYPES: &str = "
admissionregistration.v1.NamedRuleWithOperations
admissionregistration.v1.ParamKind
admissionregistration.v1.ParamRef
autoscaling.v2.CrossVersionObjectReference
autoscaling.v1.CrossVersionObjectReference
core.v1.ConfigMapKeySelector
core.v1.EndpointAddress
core.v1.EndpointPort
core.v1.FileKeySelector
core.v1.LocalObjectReference
core.v1.NodeSelector
core.v1.NodeSelectorTerm
core.v1.ObjectFieldSelector
core.v1.ObjectReference
core.v1.ResourceFieldSelector
core.v1.ScopeSelector
core.v1.SecretKeySelector
core.v1.SecretReference
core.v1.TopologySelectorTerm
core.v1.TypedLocalObjectReference
discovery.v1.EndpointPort
networking.v1.ServiceBackendPort
rbac.v1.RoleRef
rbac.v1.Subject
io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector
io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference
";

type Table = BTreeMap<String, BTreeMap<&'static str, Merge>>;

fn full(name: &str) -> String {
    if name.starts_with("io.k8s.") { name.to_owned() } else { format!("io.k8s.api.{name}") }
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Table::new();
        for (owner, field, merge) in FIELDS.lines().filter_map(row) {
            table.entry(owner).or_default().insert(field, merge);
        }
        table
    })
}

fn row(line: &'static str) -> Option<(String, &'static str, Merge)> {
    let mut columns = line.split_whitespace();
    let (owner, field, apply, patch) = (columns.next()?, columns.next()?, columns.next()?, columns.next()?);
    let mut merge = Merge::default();
    match apply {
        "set" => merge.list = Some(ListType::Set),
        "atomic" => merge.map_atomic = true,
        _ => {
            if let Some(keys) = apply.strip_prefix("map:") {
                merge.list = Some(ListType::Map(keys.split(',').map(str::to_owned).collect()));
            }
        }
    }
    let strategy = patch.strip_suffix("+retain").unwrap_or(patch);
    merge.patch = PatchStrategy {
        merge: strategy.starts_with("merge"),
        retain_keys: patch.ends_with("+retain"),
        merge_key: strategy.strip_prefix("merge:").map(str::to_owned),
    };
    Some((full(owner), field, merge))
}

pub(super) fn lookup(owner: &str, field: &str) -> Option<&'static Merge> {
    table().get(owner)?.get(field)
}

pub(super) fn is_atomic_type(name: &str) -> bool {
    static NAMES: OnceLock<BTreeSet<String>> = OnceLock::new();
    NAMES.get_or_init(|| ATOMIC_TYPES.split_whitespace().map(full).collect()).contains(name)
}

#[cfg(test)]
pub(super) fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    table().iter().flat_map(|(owner, fields)| fields.keys().map(|field| (owner.as_str(), *field)))
}
