use std::sync::Mutex;

use futures_util::AsyncReadExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const HIDDEN: &str = "c2VjcmV0";

/// The lines of what `ask` does with a client whose server returns this.
fn lines<F: Future<Output = ()>>(
    verbosity: Verbosity,
    status: u16,
    answer: &'static str,
    ask: impl FnOnce(Client) -> F,
) -> Vec<String> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = tower::service_fn(move |_: Request<Body>| async move {
            let body = Body::from(answer.as_bytes().to_vec());
            Ok::<_, std::io::Error>(Response::builder().status(status).body(body).unwrap())
        });
        let client = Client::new(server, "space");
        let push = move |line: &str| {
            // The time differs from run to run.
            let line = match line.strip_suffix(" ms").and_then(|line| line.rsplit_once(' ')) {
                Some((head, _)) => format!("{head} N ms"),
                None => line.to_owned(),
            };
            sink.lock().unwrap().push(line);
        };
        let client = traced_to(client, verbosity, Arc::new(push));
        assert_eq!(client.default_namespace(), "space");
        ask(client).await;
    });
    let seen = seen.lock().unwrap();
    seen.clone()
}

fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).unwrap()
}

#[test]
fn a_request_is_one_line() {
    let path = "/apis/vm.neon.tech/v1/virtualmachines?limit=5";
    let ask = async |client: Client| {
        assert_eq!(client.request_text(get(path)).await.unwrap(), "{}");
    };
    assert_eq!(lines(Verbosity::Requests, 200, "{}", ask), [format!("GET {path} 200 N ms")]);
    assert!(lines(Verbosity::Off, 200, "{}", ask).is_empty());
}

#[test]
fn errors_pass_and_are_shown() {
    let status =
        r#"{"kind":"Status","status":"Failure","code":404,"reason":"NotFound","message":"no such VM"}"#;
    let seen = lines(Verbosity::Requests, 404, status, async |client| {
        let error = client.request_text(get("/x")).await.unwrap_err();
        assert!(matches!(error, kube::Error::Api(status) if status.code == 404));
    });
    assert_eq!(seen, ["GET /x 404 N ms"]);
}

#[test]
fn bodies_are_shown_without_secrets() {
    let answer = r#"{"kind":"Secret","data":{"key":"c2VjcmV0"}}"#;
    let seen = lines(Verbosity::Bodies, 200, answer, async |client| {
        let body = json!({ "kind": "Secret", "stringData": { "a": HIDDEN } }).to_string().into_bytes();
        let request = Request::post("/api/v1/namespaces/x/secrets").body(body).unwrap();
        // The caller gets everything.
        assert_eq!(client.request_text(request).await.unwrap(), answer);
    });
    let hidden = "REDACTED (8 bytes)";
    assert_eq!(
        seen,
        [
            "POST /api/v1/namespaces/x/secrets 200 N ms".to_owned(),
            format!("  sent: {}", json!({ "kind": "Secret", "stringData": { "a": hidden } })),
            format!("  received: {}", json!({ "data": { "key": hidden }, "kind": "Secret" })),
        ]
    );
}

#[test]
fn of_a_watch_each_line_is_shown() {
    let answer = "{\"type\":\"ADDED\"}\n{\"type\":\"MODIFIED\"}\n";
    let seen = lines(Verbosity::Bodies, 200, answer, async |client| {
        let mut all = String::new();
        let stream = client.request_stream(get("/api/v1/pods?watch=true")).await.unwrap();
        std::pin::pin!(stream).read_to_string(&mut all).await.unwrap();
        assert_eq!(all, answer);
    });
    let rest = ["  received: {\"type\":\"ADDED\"}", "  received: {\"type\":\"MODIFIED\"}"];
    assert_eq!(seen[1..], rest);
}

#[test]
fn what_is_not_json_is_counted() {
    assert_eq!(shown_body("/log", b"password", 8).unwrap(), "8 bytes that are not JSON");
    assert_eq!(shown_body("/log", b"", 0), None);
    let long = json!({ "a": "ü".repeat(LONGEST) }).to_string();
    let shown = shown_body("/x", long.as_bytes(), long.len()).unwrap();
    assert!(shown.chars().count() < LONGEST + 50 && shown.ends_with("bytes in all)"), "{}", shown.len());
}

#[test]
fn secrets_are_found_wherever_they_are() {
    for (target, body) in [
        ("/api/v1/secrets", json!({ "kind": "SecretList", "items": [{ "data": { "x": HIDDEN } }] })),
        ("/x", json!({ "type": "ADDED", "object": { "kind": "Secret", "data": { "x": HIDDEN } } })),
        ("/api/v1/namespaces/a/secrets/b", json!({ "data": { "x": HIDDEN } })),
        ("/api/v1/namespaces/a/secrets/b?x=y", json!([{ "op": "add", "path": "/data/x", "value": HIDDEN }])),
        ("/x", json!({ "kind": "TokenRequest", "status": { "token": HIDDEN } })),
        ("/x", json!({ "users": [{ "user": { "client-key-data": HIDDEN } }] })),
        ("/x", json!({ "env": [{ "name": "PG_PASSWORD", "value": HIDDEN }] })),
        ("/x", json!({ "annotations": { "kubectl.kubernetes.io/last-applied-configuration": HIDDEN } })),
        ("/x", json!({ "a": format!("-----BEGIN PRIVATE KEY-----{HIDDEN}") })),
    ] {
        let mut value = body.clone();
        redact::redact(target, &mut value);
        assert!(!value.to_string().contains(HIDDEN), "{value}");
    }
    let mut kept =
        json!({ "kind": "ConfigMap", "data": { "x": HIDDEN }, "automountServiceAccountToken": true });
    let before = kept.clone();
    redact::redact("/x", &mut kept);
    assert_eq!(kept, before);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), Just(Value::from(HIDDEN))];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let key = prop_oneof!["[a-z]{1,3}", Just("kind".to_owned()), Just("op".to_owned())];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #[test]
    fn data_of_a_secret_never_appear(data in any_value()) {
        let mut value = json!({ "items": [{ "kind": "Secret", "data": data, "stringData": { "x": data } }] });
        redact::redact("/x", &mut value);
        prop_assert!(!value.to_string().contains(HIDDEN));
    }
}
