//! H7: the author of a PodAutoscaler against the service that reads the metrics of all.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use neonvm_e2e::client::Resource;
use neonvm_test_support::eventually_blocking;
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// Most memory of the service, in KiB: half of its limit in the manifest.
const MOST: u64 = 128 << 10;

/// A Deployment and an autoscaler of it with 32 sources at these endpoints.
fn apply(cluster: &Cluster, name: &str, endpoint: impl Fn(usize) -> String) {
    let source = |number: usize| {
        json!({"metricSourceType": "external", "protocolType": "http", "endpoint": endpoint(number), "path": format!("/{number}"),
            "targetMetric": "m", "targetValue": "10"})
    };
    let sources: Vec<Value> = (0..32).map(source).collect();
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let autoscaler = json!({"apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler", "metadata": {"name": name},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "minReplicas": 1,
            "maxReplicas": 4, "scalingStrategy": "APA", "syncPeriodSeconds": 1, "metricsSources": sources}});
    for object in [deployment, autoscaler] {
        cluster.client().apply(&object.to_string()).unwrap();
    }
}

/// The error of each source in the status, once the status has all.
fn errors(cluster: &Cluster, name: &str) -> Vec<String> {
    let what = || format!("errors of {name}");
    eventually_blocking(what, || {
        let object = cluster.client().get(Resource::POD_AUTOSCALER, name).ok()?;
        let metrics = object["status"]["currentMetrics"].as_array()?.clone();
        let errors = metrics.iter().map(|metric| metric["error"].as_str().unwrap_or_default().to_owned());
        let errors: Vec<String> = errors.filter(|error| !error.is_empty()).collect();
        (errors.len() == 32).then_some(errors)
    })
}

/// Answers with 16 MiB, but for the last byte.
fn flood(listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        std::thread::spawn(move || {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 16777216\r\n\r\n");
            let _ = stream.write_all(&vec![b'#'; (16 << 20) - 1]);
            // Until the other side has enough.
            let _ = stream.read(&mut [0; 1]);
        });
    }
}

#[test]
fn hostile_endpoints_neither_exhaust_nor_explore() {
    let cluster = Cluster::start(1);
    let autoscaler = cluster.process("pod-autoscaler");
    // Where the pods of local clusters are: what listens there is scraped.
    let listener = TcpListener::bind("127.190.1.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || flood(&listener));
    for name in ["greedy", "greedier"] {
        apply(&cluster, name, |_| address.clone());
    }
    for name in ["greedy", "greedier"] {
        let errors = errors(&cluster, name);
        assert!(errors.iter().all(|error| error.contains("TimedOut")), "{errors:?}");
    }
    let peak = autoscaler.peak_memory();
    println!("peak memory of the pod-autoscaler: {} MiB", peak >> 10);
    assert!(peak < MOST, "{peak} KiB");
    assert_eq!(cluster.process("pod-autoscaler").pid, autoscaler.pid, "it was not started again");
    // One of both listens: the messages must not reveal which.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    apply(&cluster, "curious", |number| {
        if number % 2 == 0 { format!("127.0.0.1:{port}") } else { format!("localhost:{port}") }
    });
    let refused = errors(&cluster, "curious");
    assert!(refused.iter().all(|error| error.contains("--scrape-allow")), "{refused:?}");
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err(), "nothing was connected to");
}
