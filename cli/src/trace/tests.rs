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
    let long = json!({ "name": "ü".repeat(LONGEST) }).to_string();
    let shown = shown_body("/x", long.as_bytes(), long.len()).unwrap();
    assert!(shown.chars().count() < LONGEST + 50 && shown.ends_with("bytes in all)"), "{}", shown.len());
}

#[test]
fn only_values_of_known_fields_are_shown() {
    let env = |name: &str| json!({ "spec": { "guest": { "env": [{ "name": name, "value": HIDDEN }], "args": ["--key", HIDDEN] } } });
    for (target, body) in [
        ("/api/v1/secrets", json!({ "kind": "SecretList", "items": [{ "data": { "x": HIDDEN } }] })),
        ("/x", json!({ "type": "ADDED", "object": { "kind": "Secret", "data": { "x": HIDDEN } } })),
        ("/api/v1/namespaces/a/secrets/b", json!({ "data": { "name": HIDDEN } })),
        ("/api/v1/namespaces/a/secrets/b?x=y", json!([{ "op": "add", "path": "/data/x", "value": HIDDEN }])),
        ("/x", json!([{ "op": "add", "path": "/data", "value": { "name": HIDDEN } }])),
        (
            "/x",
            json!([{ "op": "add", "path": "/spec/guest/env/0", "value": { "name": "X", "value": HIDDEN } }]),
        ),
        ("/x", json!([{ "op": "add", "path": "/spec/guest/env/0/name", "value": HIDDEN }])),
        ("/x", json!([{ "op": "add", "path": "", "value": { "data": { "name": HIDDEN } } }])),
        ("/api/v1/secrets/b", json!({ "kind": "Status", "message": format!("invalid: {HIDDEN}") })),
        ("/x", json!({ "kind": "TokenRequest", "status": { "token": HIDDEN } })),
        ("/x", json!({ "users": [{ "user": { "client-key-data": HIDDEN } }] })),
        ("/x", json!({ "kind": "ConfigMap", "data": { "name": HIDDEN, "status": { "phase": HIDDEN } } })),
        ("/x", json!({ "metadata": { "annotations": { "name": HIDDEN } } })),
        ("/x", json!({ "spec": { "labels": { "a": { "name": HIDDEN } } } })),
        ("/x", json!({ "spec": { "appendKernelCmdline": HIDDEN, "initScript": HIDDEN, "url": HIDDEN } })),
        ("/x", json!(HIDDEN)),
        ("/x", json!([HIDDEN, [HIDDEN]])),
        ("/x", env("AWS_SECRET_ACCESS_KEY")),
        ("/x", env("DATABASE_URL")),
        ("/x", env("MYSQL_PWD")),
        ("/x", env("CLIENT_SECRET")),
        ("/x", env("SECRET")),
    ] {
        let mut value = body.clone();
        redact(target, &mut value);
        assert!(!value.to_string().contains(HIDDEN), "{value}");
    }
    for shown in [
        json!({ "kind": "VirtualMachine", "metadata": { "name": "a", "labels": { "app": "x" }, "generation": 3 },
            "spec": { "guest": { "cpus": { "min": 1, "use": "250m" } } },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True", "message": "up" }] } }),
        json!([{ "op": "replace", "path": "/spec/guest/cpus/use", "value": 2 }]),
        json!({ "kind": "Status", "status": "Failure", "message": "no such VM", "code": 404 }),
    ] {
        let mut value = shown.clone();
        redact("/x", &mut value);
        assert_eq!(value, shown);
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), Just(Value::from(HIDDEN))];
    leaf.prop_recursive(4, 32, 4, |inner| {
        const KNOWN: [&str; 8] = ["kind", "op", "path", "name", "spec", "labels", "metadata", "value"];
        let key =
            prop_oneof!["[a-z]{1,3}".boxed(), prop::sample::select(&KNOWN).prop_map(str::to_owned).boxed()];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #[test]
    fn what_an_author_writes_freely_never_appears(data in any_value(), key in "(data|env|args|annotations|value|[b-z]{4})") {
        let mut value = json!({ "items": [{ "kind": "Any", "spec": { "guest": {} }, "data": {} }] });
        for place in ["/items/0", "/items/0/spec", "/items/0/spec/guest"] {
            value.pointer_mut(place).unwrap()[&key] = json!({ "x": data });
        }
        redact("/x", &mut value);
        prop_assert!(!value.to_string().contains(HIDDEN));
    }
}
