//! What every cluster has from its first moment.

use neonvm_apiserver_engine::access::bootstrap;
use neonvm_apiserver_engine::context::Context;
use neonvm_apiserver_engine::engine::Engine;
use serde_json::{Value, json};

/// Makes what is missing; what is there stays as it is.
pub fn run(engine: &mut Engine, context: &Context, port: u16) {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
            "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" } });
        engine.ensure("", "v1", "namespaces", namespace, context);
    }
    for (name, value) in
        [("system-cluster-critical", 2_000_000_000_i64), ("system-node-critical", 2_000_001_000)]
    {
        let class = json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": { "name": name }, "value": value, "preemptionPolicy": "PreemptLowerPriority" });
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
    let service = json!({ "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "kubernetes", "namespace": "default",
            "labels": { "component": "apiserver", "provider": "kubernetes" } },
        "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
            "sessionAffinity": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": port }] },
        "status": { "loadBalancer": {} } });
    engine.ensure("", "v1", "services", service, context);
    engine.queue_all_tasks();
}
