//! Events for billing: all of them are sent, also when the agent ends.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Arc, Mutex};

use neonvm_api::names::annotation::BILLING_ENDPOINT_ID;
use ring::{digest, hmac};
use serde_json::{Value, json};

use crate::cluster::eventually;
use crate::web::{Reply, Request, Web};
use crate::world::{World, set};

fn push() -> Value {
    json!({ "pushEverySeconds": 1, "pushRequestTimeoutSeconds": 2, "maxBatchSize": 10 })
}

fn client(own: Value) -> Value {
    let mut client = push();
    client.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    client
}

/// Billing that closes its windows after an hour: only the end of the agent can close one.
fn billing(settings: &mut Value, accumulate: u64, clients: Value) {
    let billing = json!({ "cpuMetricName": "cpu", "activeTimeMetricName": "active", "collectEverySeconds": 1,
        "accumulateEverySeconds": accumulate, "clients": clients });
    set(settings, "billing", billing);
}

fn scaling_events(settings: &mut Value, clients: Value) {
    let events =
        json!({ "cuMultiplier": 0.25, "rereportThreshold": 0.25, "regionName": "r", "clients": clients });
    set(settings, "scalingEvents", events);
}

async fn billed_vm(world: &World) {
    world.cluster.annotate("v0", BILLING_ENDPOINT_ID, Some("ep-x")).await;
    world.cluster.patch("v0", json!({ "metadata": { "labels": { "neon/endpoint-id": "ep-x" } } })).await;
}

fn lines(compressed: &[u8]) -> Vec<Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(compressed).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// All files below a directory, by path.
fn files(directory: &std::path::Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().display().to_string();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// These mostly wait: together they take as long as the longest of them.
#[tokio::test]
async fn events_are_sent_once_and_all_of_them() {
    tokio::join!(
        the_last_interval_is_sent_when_the_agent_ends(),
        a_server_that_fails_for_a_while_gets_everything_once(),
        files_wait_for_their_directory(),
    );
}

/// Nothing was sent before the end: then the open window and all events about scaling are.
async fn the_last_interval_is_sent_when_the_agent_ends() {
    let world = World::start(1).await;
    billed_vm(&world).await;
    let directory = tempfile::tempdir().unwrap();
    // It fails at first, also at the end.
    let failures = Arc::new(Mutex::new(2));
    let server = Web::start(([127, 0, 0, 1], 0).into(), move |_| {
        let mut left = failures.lock().unwrap();
        if *left > 0 {
            *left -= 1;
            return Reply::Text(503, "not now".into());
        }
        Reply::Text(200, String::new())
    })
    .await;
    let mut settings = world.settings();
    billing(
        &mut settings,
        3600,
        json!({ "http": client(json!({ "url": format!("http://{}/", server.address), "pushRequestTimeoutSeconds": 8 })) }),
    );
    let file = json!({ "directory": directory.path(), "pushEverySeconds": 3600, "pushRequestTimeoutSeconds": 8, "maxBatchSize": 1000 });
    scaling_events(&mut settings, json!({ "file": file }));
    let agent = world.agent_with(&settings).await;
    world.guests[0].load(4);
    world.settles("v0", 4).await;
    world.reads_on().await;
    world.reads_on().await;
    assert_eq!((server.count(), files(directory.path()).len()), (0, 0));
    agent.stop().await;

    let requests = server.requests();
    assert_eq!(requests.len(), 3, "two tries failed, one did not");
    let last = requests.last().unwrap();
    assert_eq!((last.method.as_str(), last.path.as_str()), ("POST", "/usage_events"));
    assert_eq!(last.headers["content-type"], "application/json");
    assert!(last.headers["x-trace-id"].len() > 8);
    let body: Value = serde_json::from_slice(&last.body).unwrap();
    let events = body["events"].as_array().unwrap();
    let names: Vec<_> = events.iter().map(|event| event["metric"].as_str().unwrap()).collect();
    assert_eq!(names, ["cpu", "active"]);
    assert!(events.iter().all(|event| event["endpoint_id"] == "ep-x"), "{events:?}");
    // At least the time between the two last readings.
    let active = events[1]["value"].as_u64().unwrap();
    assert!(active >= 1, "{events:?}");

    let files = files(directory.path());
    let (name, bytes) = files.first_key_value().unwrap();
    assert_eq!(files.len(), 1);
    assert!(name.contains("/events_") && name.ends_with(".ndjson.gz"), "{name}");
    let events = lines(bytes);
    let actual: Vec<_> = events.iter().filter(|event| event["kind"] == "actual").collect();
    assert!(actual.iter().any(|event| event["target_cu"] == 1000), "{events:?}");
    assert!(events.iter().any(|event| event["kind"] == "hypothetical"), "{events:?}");
    assert!(
        events.iter().all(|event| event["endpoint_id"] == "ep-x" && event["region"] == "r"),
        "{events:?}"
    );
}

/// An exporter with a server that is silent, broken and refusing for a while loses nothing, and sends nothing twice.
async fn a_server_that_fails_for_a_while_gets_everything_once() {
    let world = World::start(1).await;
    billed_vm(&world).await;
    let replies = Arc::new(Mutex::new(vec![Reply::Text(202, "later".into()), Reply::Silence]));
    let server = Web::start(([127, 0, 0, 1], 0).into(), {
        let replies = Arc::clone(&replies);
        move |_| replies.lock().unwrap().pop().unwrap_or(Reply::Text(200, String::new()))
    })
    .await;
    let mut settings = world.settings();
    billing(
        &mut settings,
        1,
        // A request that is abandoned may have been received, and would be sent again: this applies only to the one
        // that is never answered.
        json!({ "http": client(json!({ "url": format!("http://{}", server.address), "pushRequestTimeoutSeconds": 8 })) }),
    );
    let agent = world.agent_with(&settings).await;
    let all = |requests: &[Request]| -> Vec<Value> {
        let bodies = requests.iter().map(|request| serde_json::from_slice::<Value>(&request.body).unwrap());
        bodies.flat_map(|body| body["events"].as_array().unwrap().clone()).collect()
    };
    eventually("three batches that are taken", async || (server.count() >= 5).then_some(())).await;
    let text = agent.metrics().await;
    agent.stop().await;
    let requests = server.requests();
    let events = all(&requests[2..]);
    // Each window begins where the one before ended: none is missing, and none came twice.
    let cpu: Vec<_> = events.iter().filter(|event| event["metric"] == "cpu").collect();
    assert!(cpu.len() >= 3, "{events:?}");
    for pair in cpu.windows(2) {
        assert_eq!(pair[0]["stop_time"], pair[1]["start_time"], "{events:?}");
    }
    let keys: std::collections::BTreeSet<_> =
        events.iter().map(|event| event["idempotency_key"].to_string()).collect();
    assert_eq!(keys.len(), events.len());
    for cause in ["HTTP status 202", "no answer within 8 s"] {
        let line =
            format!("autoscaling_agent_billing_send_errors_total{{client=\"http\",cause=\"{cause}\"}}");
        assert!(text.contains(&line), "{cause}: {text}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// Signs what came, as a store does: from the request alone.
fn signature(request: &Request, secret: &str) -> String {
    let headers = &request.headers;
    let (fields, signed) = headers["authorization"].split_once("SignedHeaders=").unwrap();
    let names = signed.split(',').next().unwrap();
    let scope = fields.split_once('/').unwrap().1.trim_end_matches([',', ' ']);
    let shown: String = names.split(';').map(|name| format!("{name}:{}\n", headers[name])).collect();
    let hash = &headers["x-amz-content-sha256"];
    let canonical = format!("{}\n{}\n\n{shown}\n{names}\n{hash}", request.method, request.path);
    let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{}", headers["x-amz-date"], sha(canonical.as_bytes()));
    let key = scope.split('/').fold(format!("AWS4{secret}").into_bytes(), |key, part| mac(&key, part));
    hex(&mac(&key, &text))
}

/// The keys of the object store.
const ACCESS: &str = "AKIATEST";
const SECRET: &str = "secret/with+signs";

/// The keys to a store come from the environment: the test runs itself again with them.
#[tokio::test]
async fn objects_are_put_with_a_signature_that_holds() {
    if std::env::var("AWS_ACCESS_KEY_ID").as_deref() == Ok(ACCESS) {
        puts_signed_objects().await;
    } else {
        in_a_process_with_keys("exporters::objects_are_put_with_a_signature_that_holds").await;
    }
}

/// Runs this test in a process whose environment has the keys.
async fn in_a_process_with_keys(test: &str) {
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env("AWS_ACCESS_KEY_ID", ACCESS)
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .kill_on_drop(true)
        .output();
    let done = child.await.unwrap();
    let shown = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && shown.contains("1 passed"), "{shown}");
}

async fn puts_signed_objects() {
    let world = World::start(1).await;
    billed_vm(&world).await;
    let store = Web::start(([127, 0, 0, 1], 0).into(), |_| Reply::Text(200, String::new())).await;
    let mut settings = world.settings();
    let s3 = json!({ "bucket": "usage", "region": "eu-west-9", "prefixInBucket": "pre fix/ä",
        "endpoint": format!("http://{}/store/", store.address) });
    billing(&mut settings, 1, json!({ "s3": client(s3) }));
    let agent = world.agent_with(&settings).await;
    eventually("an object", async || (store.count() > 0).then_some(())).await;
    agent.stop().await;
    for request in store.requests() {
        assert_eq!(request.method, "PUT");
        let path = "/store/usage/pre%20fix/%C3%A4/year%3D";
        assert!(request.path.starts_with(path) && request.path.ends_with(".ndjson.gz"), "{}", request.path);
        let authorization = &request.headers["authorization"];
        let credential = format!("AWS4-HMAC-SHA256 Credential={ACCESS}/");
        assert!(authorization.starts_with(&credential), "{authorization}");
        assert!(authorization.contains("/eu-west-9/s3/aws4_request"), "{authorization}");
        assert_eq!(request.headers["x-amz-content-sha256"], sha(&request.body));
        let (_, given) = authorization.split_once("Signature=").unwrap();
        assert_eq!(given, signature(&request, SECRET), "{request:?}");
        let keys = ["idempotency_key", "metric", "type", "start_time", "stop_time", "value"];
        for event in lines(&request.body) {
            assert!(
                event["endpoint_id"] == "ep-x" && keys.iter().all(|key| !event[key].is_null()),
                "{event}"
            );
        }
    }
}

/// A directory that cannot be written to, and then can.
async fn files_wait_for_their_directory() {
    let world = World::start(1).await;
    billed_vm(&world).await;
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("events");
    // A file where the directory should be.
    std::fs::write(&place, "in the way").unwrap();
    let mut settings = world.settings();
    billing(&mut settings, 1, json!({ "file": client(json!({ "directory": place })) }));
    let agent = world.agent_with(&settings).await;
    eventually("a failure", async || {
        agent
            .metrics()
            .await
            .contains("autoscaling_agent_billing_send_errors_total{client=\"file\"")
            .then_some(())
    })
    .await;
    std::fs::remove_file(&place).unwrap();
    eventually("a file", async || place.is_dir().then(|| files(&place)).filter(|found| !found.is_empty()))
        .await;
    agent.stop().await;
    let found = files(&place);
    assert!(found.keys().all(|name| name.starts_with("year=") && name.ends_with(".ndjson.gz")), "{found:?}");
    let mut events: Vec<Value> = found.values().flat_map(|bytes| lines(bytes)).collect();
    events.sort_by_key(|event| event["start_time"].to_string());
    let cpu: Vec<_> = events.iter().filter(|event| event["metric"] == "cpu").collect();
    assert!(cpu.windows(2).all(|pair| pair[0]["stop_time"] == pair[1]["start_time"]), "{cpu:?}");
}
