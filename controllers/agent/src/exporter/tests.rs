//! Queues with a target that works, fails for a while, or never works.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use neonvm_kit::http::{FullRequest, serve_openly, text};
use tokio::net::TcpListener;

use super::*;
use crate::config::{Clients, HttpClient};

const NAMES: Names = Names { queue: "queue", took: "took", errors: "errors", dropped: "dropped" };

/// A server that fails so many times, and then takes everything.
async fn server(failures: usize) -> (String, Arc<std::sync::Mutex<Vec<u64>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let taken: Arc<std::sync::Mutex<Vec<u64>>> = Arc::default();
    let left = Arc::new(AtomicUsize::new(failures));
    let handler = {
        let taken = Arc::clone(&taken);
        move |request: FullRequest| {
            let (taken, left) = (Arc::clone(&taken), Arc::clone(&left));
            async move {
                if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    return text(StatusCode::BAD_GATEWAY, "text/plain", "not now");
                }
                let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
                let numbers = body["events"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap());
                taken.lock().unwrap().extend(numbers);
                text(StatusCode::OK, "text/plain", "")
            }
        }
    };
    tokio::spawn(serve_openly(listener, handler));
    (url, taken)
}

fn target(url: &str, most: u64) -> (Target, Push) {
    let http = HttpClient {
        url: url.to_owned(),
        push_every_seconds: 1,
        // A request that is abandoned may have been received, and would be sent again.
        push_request_timeout_seconds: 60,
        max_batch_size: most,
    };
    let clients = Clients { http: Some(http), ..Clients::default() };
    Target::all(&clients, Layout::Billing).unwrap().remove(0)
}

#[tokio::test]
async fn nothing_is_lost_and_nothing_is_sent_twice_while_a_server_fails() {
    let (url, taken) = server(2).await;
    let metrics = Metrics::default();
    let (target, push) = target(&url, 10);
    let (exporter, task) = Exporter::start_with(target, push, metrics.exporter(NAMES), 1000);
    for number in 0..95_u64 {
        exporter.send(number.to_string()).await;
    }
    // The end comes while it is failing: what is left is tried again.
    drop(exporter);
    task.await.unwrap();
    assert_eq!(*taken.lock().unwrap(), (0..95).collect::<Vec<_>>());
    let text = metrics.page().finish();
    assert!(text.contains("errors{client=\"http\",cause=\"HTTP status 502\"} 2"), "{text}");
    assert!(text.contains("queue{client=\"http\"} 0") && !text.contains("\ndropped{"), "{text}");
}

#[tokio::test]
async fn the_oldest_are_dropped_and_counted_when_a_server_never_works() {
    let metrics = Metrics::default();
    let closed = neonvm_kit::port::Reserved::loopback().unwrap();
    let (target, push) = target(&format!("http://{}", closed.address()), 10);
    let (exporter, task) = Exporter::start_with(target, push, metrics.exporter(NAMES), 50);
    for number in 0..1000_u64 {
        exporter.send(number.to_string()).await;
    }
    let dropped = async || metrics.page().finish().contains("dropped{client=\"http\"} 950");
    neonvm_test_support::eventually("950 dropped events", dropped).await;
    let text = metrics.page().finish();
    assert!(text.contains("dropped{client=\"http\"} 950"), "{text}");
    // The length of the queue is reported also while nothing can be sent.
    assert!(text.contains("queue{client=\"http\"} "), "{text}");
    task.abort();
}

#[tokio::test]
async fn events_that_do_not_fit_the_channel_are_counted() {
    let (exporter, _waiting) = Exporter::for_tests(2);
    assert_eq!((0..5).filter(|number| exporter.try_send(number.to_string())).count(), 2);
    assert!(exporter.metrics.dropped.with(["http"]).get() == 3.0);
}
