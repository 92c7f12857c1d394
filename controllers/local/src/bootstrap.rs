//! What every cluster has from its first moment.

use neonvm_core_apistore::access::bootstrap;
use neonvm_core_apistore::context::Context;
use neonvm_core_apistore::engine::Engine;
use serde_json::{Value, json};

fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut metadata = json!({ "name": name });
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata })
}

/// Makes what is missing; what is there stays as it is.
pub fn run(engine: &mut Engine, context: &Context, port: u16) {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let mut namespace = object("v1", "Namespace", "", name);
        namespace["metadata"]["labels"] = json!({ "kubernetes.io/metadata.name": name });
        namespace["spec"] = json!({ "finalizers": ["kubernetes"] });
        namespace["status"] = json!({ "phase": "Active" });
        engine.ensure("", "v1", "namespaces", namespace, context);
    }
    for (name, value) in [("system-cluster-critical", 2_000_000_000_i64), ("system-node-critical", 2_000_001_000)] {
        let mut class = object("scheduling.k8s.io/v1", "PriorityClass", "", name);
        class["value"] = json!(value);
        class["preemptionPolicy"] = json!("PreemptLowerPriority");
        engine.ensure("scheduling.k8s.io", "v1", "priorityclasses", class, context);
    }
    for rule in bootstrap::objects() {
        let plural = match rule.get("kind").and_then(Value::as_str) {
            Some("ClusterRole") => "clusterroles",
            Some("ClusterRoleBinding") => "clusterrolebindings",
            Some("Role") => "roles",
            _ => "rolebindings",
        };
        engine.ensure("rbac.authorization.k8s.io", "v1", plural, rule, context);
    }
    let mut service = object("v1", "Service", "default", "kubernetes");
    service["metadata"]["labels"] = json!({ "component": "apiserver", "provider": "kubernetes" });
    service["spec"] = json!({ "type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
        "sessionAffinity": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
        "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": port }] });
    service["status"] = json!({ "loadBalancer": {} });
    engine.ensure("", "v1", "services", service, context);
    engine.wake_chores();
}
