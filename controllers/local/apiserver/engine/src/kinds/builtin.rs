//! The table of built-in kinds. A new one is one row.

use std::sync::{Arc, OnceLock};

use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authn,
    authorization::v1 as authz, autoscaling::v1 as autoscaling1, autoscaling::v2 as autoscaling2,
    batch::v1 as batch, certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core,
    discovery::v1 as discovery, events::v1 as events, networking::v1 as networking, policy::v1 as policy,
    rbac::v1 as rbac, scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions;

use super::{Kind, Source, Subresource, Verbs};
use crate::schema::builtin::builtin;

/// Group, version, kind, plural, short names (comma separated), categories, flags, subresources, field selectors.
///
/// Flags: `n` namespaced, `g` counts generations, `u` PUT may create, `c` create only,
/// `v` a PUT must name the version it replaces, `d` no deletion of a whole collection.
struct Row(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    fn() -> crate::schema::SchemaRef,
);

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    vec![
    Row("", "v1", "Binding", "bindings", "", "", "nc", "", "", builtin::<core::Binding>),
    Row("", "v1", "ConfigMap", "configmaps", "cm", "", "n", "", "", builtin::<core::ConfigMap>),
    Row("", "v1", "Endpoints", "endpoints", "ep", "", "nu", "", "", builtin::<core::Endpoints>),
    Row("", "v1", "Event", "events", "ev", "", "nu", "", "involvedObject.kind,involvedObject.namespace,involvedObject.name,involvedObject.uid,involvedObject.apiVersion,involvedObject.resourceVersion,involvedObject.fieldPath,reason,reportingComponent,source,type", builtin::<core::Event>),
    Row("", "v1", "Namespace", "namespaces", "ns", "", "d", "finalize,status", "status.phase", builtin::<core::Namespace>),
    Row("", "v1", "Node", "nodes", "no", "", "", "proxy,status", "spec.unschedulable", builtin::<core::Node>),
    Row("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", "", "n", "status", "", builtin::<core::PersistentVolumeClaim>),
    Row("", "v1", "PersistentVolume", "persistentvolumes", "pv", "", "", "status", "", builtin::<core::PersistentVolume>),
    Row("", "v1", "Pod", "pods", "po", "all", "ng", "attach,binding,eviction,exec,log,portforward,proxy,resize,status", "spec.host,spec.nodeName,spec.restartPolicy,spec.schedulerName,spec.serviceAccountName,spec.hostNetwork,status.phase,status.podIP,status.podIPs,status.nominatedNodeName", builtin::<core::Pod>),
    Row("", "v1", "ResourceQuota", "resourcequotas", "quota", "", "n", "status", "", builtin::<core::ResourceQuota>),
    Row("", "v1", "Secret", "secrets", "", "", "n", "", "type", builtin::<core::Secret>),
    Row("", "v1", "ServiceAccount", "serviceaccounts", "sa", "", "n", "token", "", builtin::<core::ServiceAccount>),
    Row("", "v1", "Service", "services", "svc", "all", "nu", "proxy,status", "spec.clusterIP,spec.type", builtin::<core::Service>),
    Row("apps", "v1", "DaemonSet", "daemonsets", "ds", "all", "ng", "status", "", builtin::<apps::DaemonSet>),
    Row("apps", "v1", "Deployment", "deployments", "deploy", "all", "ng", "scale,status", "", builtin::<apps::Deployment>),
    Row("apps", "v1", "ReplicaSet", "replicasets", "rs", "all", "ng", "scale,status", "", builtin::<apps::ReplicaSet>),
    Row("apps", "v1", "StatefulSet", "statefulsets", "sts", "all", "ng", "scale,status", "", builtin::<apps::StatefulSet>),
    Row("events.k8s.io", "v1", "Event", "events", "ev", "", "nu", "", "reason,regarding.kind,regarding.namespace,regarding.name,regarding.uid,regarding.apiVersion,regarding.resourceVersion,regarding.fieldPath,reportingController,type", builtin::<events::Event>),
    Row("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", "", "", "c", "", "", builtin::<authn::SelfSubjectReview>),
    Row("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", "", "", "c", "", "", builtin::<authn::TokenReview>),
    Row("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", "", "", "c", "", "", builtin::<authz::SelfSubjectAccessReview>),
    Row("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", "", "", "c", "", "", builtin::<authz::SelfSubjectRulesReview>),
    Row("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", "", "", "c", "", "", builtin::<authz::SubjectAccessReview>),
    Row("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", "all", "n", "status", "", builtin::<autoscaling2::HorizontalPodAutoscaler>),
    Row("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", "all", "n", "status", "", builtin::<autoscaling1::HorizontalPodAutoscaler>),
    Row("batch", "v1", "Job", "jobs", "", "all", "ng", "status", "status.successful", builtin::<batch::Job>),
    Row("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", "csr", "", "", "approval,status", "spec.signerName", builtin::<certificates::CertificateSigningRequest>),
    Row("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "netpol", "", "ng", "", "", builtin::<networking::NetworkPolicy>),
    Row("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", "", "ngv", "status", "", builtin::<policy::PodDisruptionBudget>),
    Row("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", "", "", "u", "", "", builtin::<rbac::ClusterRoleBinding>),
    Row("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "", "", "u", "", "", builtin::<rbac::ClusterRole>),
    Row("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "", "", "nu", "", "", builtin::<rbac::RoleBinding>),
    Row("rbac.authorization.k8s.io", "v1", "Role", "roles", "", "", "nu", "", "", builtin::<rbac::Role>),
    Row("storage.k8s.io", "v1", "StorageClass", "storageclasses", "sc", "", "", "", "", builtin::<storage::StorageClass>),
    Row("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "", "api-extensions", "gv", "", "", builtin::<admission::MutatingWebhookConfiguration>),
    Row("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "", "api-extensions", "gv", "", "", builtin::<admission::ValidatingWebhookConfiguration>),
    Row("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "crd,crds", "api-extensions", "gv", "status", "", builtin::<extensions::CustomResourceDefinition>),
    Row("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "pc", "", "g", "", "", builtin::<scheduling::PriorityClass>),
    Row("coordination.k8s.io", "v1", "Lease", "leases", "", "", "nuv", "", "", builtin::<coordination::Lease>),
    Row("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "", "", "ng", "", "", builtin::<discovery::EndpointSlice>),
    ]
}

pub(super) fn table() -> Vec<Kind> {
    rows().into_iter().map(Kind::from).collect()
}

impl From<Row> for Kind {
    fn from(row: Row) -> Self {
        let Row(group, version, kind, plural, short, categories, flags, subresources, fields, schema) = row;
        let list = |text: &str| -> Vec<String> {
            text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
        };
        let verbs = if flags.contains('c') { Verbs::Create } else { Verbs::All };
        // Two groups show the same events, two versions the same autoscalers: one table each.
        let (table, storage) = match (group, plural) {
            ("events.k8s.io", _) => ("/events".to_owned(), "v1".to_owned()),
            ("autoscaling", _) => (format!("{group}/{plural}"), "autoscaling/v2".to_owned()),
            ("", _) => (format!("/{plural}"), version.to_owned()),
            _ => (format!("{group}/{plural}"), format!("{group}/{version}")),
        };
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            list_kind: format!("{kind}List"),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            short_names: list(short),
            categories: list(categories),
            namespaced: flags.contains('n'),
            verbs,
            subresources: list(subresources).iter().map(|name| subresource(group, kind, name)).collect(),
            table: table.into(),
            storage,
            has_generation: flags.contains('g'),
            create_on_update: flags.contains('u'),
            needs_version: flags.contains('v'),
            deletes_collection: !flags.contains('d'),
            fields: list(fields),
            since: 0,
            custom: None,
            source: Source::Builtin(schema, Arc::new(OnceLock::new())),
        }
    }
}

fn subresource(group: &str, kind: &str, name: &str) -> Subresource {
    const WRITE: &[&str] = &["get", "patch", "update"];
    const CONNECT: &[&str] = &["create", "get"];
    const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];
    let (body, body_group, version, verbs): (&str, Option<&'static str>, Option<&'static str>, _) = match name
    {
        "scale" => ("Scale", Some("autoscaling"), Some("v1"), WRITE),
        "binding" => ("Binding", None, None, &["create"][..]),
        "eviction" => ("Eviction", Some("policy"), Some("v1"), &["create"][..]),
        "token" => ("TokenRequest", Some("authentication.k8s.io"), Some("v1"), &["create"][..]),
        "attach" => ("PodAttachOptions", None, None, CONNECT),
        "exec" => ("PodExecOptions", None, None, CONNECT),
        "portforward" => ("PodPortForwardOptions", None, None, CONNECT),
        "proxy" if kind == "Node" => ("NodeProxyOptions", None, None, PROXY),
        "proxy" if kind == "Service" => ("ServiceProxyOptions", None, None, PROXY),
        "proxy" => ("PodProxyOptions", None, None, PROXY),
        "log" => (kind, None, None, &["get"][..]),
        "finalize" => (kind, None, None, &["update"][..]),
        _ => (kind, None, None, WRITE),
    };
    let _ = group;
    Subresource { name: name.into(), kind: body.into(), group: body_group, version, verbs }
}
