//! Autoscalers of malicious authors, beside one that works.

use neonvm_api::pod_autoscaler::PodAutoscalerStatus;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::cluster::{Cluster, autoscaler};
use crate::fleet::Fleet;
use crate::outage::blind;

/// An autoscaler with 32 sources at this endpoint.
fn greedy(name: &str, endpoint: &str) -> Value {
    let mut object = autoscaler(name, name, 1, "APA");
    let source = |number: usize| {
        json!({"metricSourceType": "external", "protocolType": "http", "endpoint": endpoint, "path": format!("/{number}"),
            "targetMetric": "m", "targetValue": "10"})
    };
    object["spec"]["metricsSources"] = (0..32).map(source).collect();
    object
}

/// Sends 16 MiB to each client, but for the last byte.
async fn flood(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 16777216\r\n\r\n").await;
            let _ = stream.write_all(&vec![b'#'; (16 << 20) - 1]).await;
            std::future::pending::<()>().await;
        });
    }
}

fn errors(status: &PodAutoscalerStatus) -> Vec<&str> {
    status.current_metrics.iter().map(|metric| metric.error.as_str()).collect()
}

#[tokio::test]
async fn endpoints_that_flood_do_not_stop_the_others() {
    let cluster = Cluster::start().await;
    let listener = TcpListener::bind("127.100.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    tokio::spawn(flood(listener));
    let (fleet, _other) =
        (Fleet::start(&cluster.client, "web", 2).await, Fleet::start(&cluster.client, "greedy", 1).await);
    let _running = cluster.autoscaler();
    cluster.create(greedy("greedy", &endpoint)).await;
    cluster.until("greedy", "blind", blind).await;
    fleet.set_load(50);
    cluster.create(autoscaler("web", "web", fleet.port, "APA")).await;
    fleet.until_settled(5).await;
    let status = cluster.until("greedy", "blind", blind).await;
    assert!(errors(&status).iter().all(|error| error.contains("TimedOut")), "{:?}", errors(&status));
}

#[tokio::test]
async fn endpoints_of_this_host_are_refused_without_details() {
    let cluster = Cluster::start().await;
    let _other = Fleet::start(&cluster.client, "curious", 1).await;
    let _running = cluster.autoscaler();
    // The first sources are at an address where something listens; the others where nothing does.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut object = greedy("curious", "127.0.0.1");
    for (number, source) in object["spec"]["metricsSources"].as_array_mut().unwrap().iter_mut().enumerate() {
        source["path"] = json!("/metrics");
        source["port"] = json!(if number < 16 { port } else { 9 }.to_string());
    }
    cluster.create(object).await;
    let status = cluster.until("curious", "blind", blind).await;
    let errors: Vec<String> =
        errors(&status).iter().map(|error| error.replace(&format!(":{port}/"), ":9/")).collect();
    assert!(errors[0].contains("--scrape-allow"), "{errors:?}");
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
}
