//! What is scraped: objects of prometheus-operator, and a configuration of Prometheus that gives the same labels.

use neonvm_api::names::{SYSTEM_NAMESPACE, label};
use serde_json::{Value, json};

use super::Target;

/// A label that the owner of a VM sets, and that runner pods take over from it.
const COUNTED: (&str, &str) = ("network-metrics", "enabled");

/// Labels of runner pods' series that name the VM, as the agents name it: where they come from.
const VM: [(&str, &str); 2] = [
    ("__meta_kubernetes_namespace", "vm_namespace"),
    ("__meta_kubernetes_pod_label_vm_neon_tech_name", "vm_name"),
];

/// A `PodMonitor` for each target. Pods, because the services have no `Service` for metrics.
pub(super) fn monitors(targets: &[Target]) -> Vec<Value> {
    targets.iter().map(monitor).collect()
}

fn monitor(target: &Target) -> Value {
    let copy = |from: &str, to: &str| json!({"sourceLabels": [from], "targetLabel": to});
    let mut relabelings = vec![
        json!({"targetLabel": "job", "replacement": target.name}),
        copy("__meta_kubernetes_pod_node_name", "node"),
    ];
    let mut selector = json!({label::APP_NAME: target.app});
    let mut endpoint = json!({"port": target.port, "path": "/metrics", "interval": target.interval});
    let mut namespaces = json!({"matchNames": [SYSTEM_NAMESPACE]});
    if target.runners {
        relabelings.extend(VM.map(|(from, to)| copy(from, to)));
        merge(&mut selector, json!({COUNTED.0: COUNTED.1}));
        // The certificate has the name of its own VM, which one setting for all cannot have. What is read is public.
        merge(&mut endpoint, json!({"scheme": "https", "tlsConfig": {"insecureSkipVerify": true}}));
        namespaces = json!({"any": true});
    } else {
        // node, namespace and endpoint of our series are not those of the pod that serves them.
        merge(&mut endpoint, json!({"honorLabels": true}));
    }
    merge(&mut endpoint, json!({"relabelings": relabelings}));
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {
            "name": target.name,
            "namespace": SYSTEM_NAMESPACE,
            "labels": {"app.kubernetes.io/part-of": "neonvm"},
        },
        "spec": {
            "namespaceSelector": namespaces,
            "selector": {"matchLabels": selector},
            "podMetricsEndpoints": [endpoint],
        },
    })
}

/// `scrape_configs` of Prometheus.
pub(super) fn config(targets: &[Target]) -> Value {
    let all: Vec<Value> = targets.iter().map(job).collect();
    json!({"scrape_configs": all})
}

fn job(target: &Target) -> Value {
    let copy = |from: &str, to: &str| json!({"source_labels": [from], "target_label": to});
    let keep = |from: &str, regex: &str| json!({"action": "keep", "source_labels": [from], "regex": regex});
    let mut relabel = vec![
        keep("__meta_kubernetes_pod_label_app_kubernetes_io_name", &target.app),
        keep("__meta_kubernetes_pod_container_port_name", &target.port),
        keep("__meta_kubernetes_pod_phase", "Running"),
        copy("__meta_kubernetes_namespace", "namespace"),
        copy("__meta_kubernetes_pod_name", "pod"),
        copy("__meta_kubernetes_pod_node_name", "node"),
    ];
    let mut job = json!({"job_name": target.name, "scrape_interval": target.interval});
    let mut discovery = json!({"role": "pod"});
    if target.runners {
        relabel.push(keep("__meta_kubernetes_pod_label_network_metrics", COUNTED.1));
        relabel.extend(VM.map(|(from, to)| copy(from, to)));
        merge(&mut job, json!({"scheme": "https", "tls_config": {"insecure_skip_verify": true}}));
    } else {
        merge(&mut job, json!({"honor_labels": true}));
        merge(&mut discovery, json!({"namespaces": {"names": [SYSTEM_NAMESPACE]}}));
    }
    merge(&mut job, json!({"kubernetes_sd_configs": [discovery], "relabel_configs": relabel}));
    job
}

fn merge(object: &mut Value, keys: Value) {
    if let (Value::Object(object), Value::Object(mut keys)) = (object, keys) {
        object.append(&mut keys);
    }
}
