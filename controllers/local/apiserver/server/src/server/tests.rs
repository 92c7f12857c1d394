//! What clients see of a disk that fails.

#![allow(clippy::panic, reason = "tests")]

mod defence;

use std::path::Path;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use neonvm_apiserver_engine::answer::EngineResponse;

use super::*;

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

fn incoming(method: Method, path: &str, query: &str, body: &Value) -> Incoming {
    let user = User {
        name: "admin".into(),
        groups: vec!["system:masters".into(), "system:authenticated".into()],
        ..User::default()
    };
    Incoming {
        method,
        path: path.into(),
        query: query.into(),
        accept: "application/json".into(),
        content_type: "application/json".into(),
        user_agent: "test".into(),
        body: if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) },
        user: Arc::new(user),
    }
}

/// A server of its own, with fault switches.
fn config(directory: &Path) -> Config {
    let directory = directory.to_owned();
    Config {
        directory,
        listen: ([127, 0, 0, 1], 0).into(),
        names: Vec::new(),
        faults: true,
        has_hpa_controller: true,
    }
}

async fn create(shared: &Shared, name: &str) -> EngineResponse {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    match soon(shared.state.run(&incoming(Method::Post, "/api/v1/namespaces", "", &object))).await {
        Reply::Answer(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_disk_that_fails_ends_the_server_and_acknowledges_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let server = Server::start(&config).await.unwrap();
    let shared = Arc::clone(&server.shared);
    assert_eq!(create(&shared, "before").await.code, 201);
    let watch = incoming(Method::Get, "/api/v1/namespaces", "watch=1&resourceVersion=0", &Value::Null);
    let mut events = finish(&shared, soon(shared.state.run(&watch)).await).into_body();
    let mut seen = String::new();
    let mut next = async || {
        let frame = soon(events.frame()).await?;
        Some(String::from_utf8_lossy(frame.unwrap().data_ref().unwrap()).into_owned())
    };
    while !seen.contains("\"name\":\"before\"") {
        seen += &next().await.unwrap();
    }
    let health = |name: &str| own_path(&shared, &incoming(Method::Get, name, "", &Value::Null));
    assert!(health("/readyz").is_none());

    shared.state.disk().fail();
    // The first write meets the failure, the second is not begun.
    assert_eq!(create(&shared, "first").await.code, 500);
    let newest = shared.state.with(|engine| engine.store().revision());
    assert_eq!(create(&shared, "second").await.code, 500);
    assert_eq!(shared.state.with(|engine| engine.store().revision()), newest);
    // No client gets a state that will not be there after a restart.
    let list = incoming(Method::Get, "/api/v1/namespaces", "", &Value::Null);
    let Reply::Answer(answer) = soon(shared.state.run(&list)).await else { panic!("not an answer") };
    assert_eq!(answer.code, 500);
    while let Some(lines) = next().await {
        seen += &lines;
    }
    assert!(!seen.contains("\"name\":\"first\""), "{seen}");
    let last: Value = serde_json::from_str(seen.lines().next_back().unwrap()).unwrap();
    assert_eq!((&last["type"], &last["object"]["code"]), (&json!("ERROR"), &json!(500)));
    let Reply::Answer(answer) = soon(shared.state.run(&watch)).await else { panic!("a watch was begun") };
    assert_eq!(answer.code, 500);
    for name in ["/readyz", "/healthz", "/livez"] {
        assert_eq!(health(name).unwrap().status(), 500, "{name}");
    }
    // The server ends by itself; what was acknowledged is there in the next one.
    let ended = soon(server.run(std::future::pending())).await.unwrap_err();
    assert!(matches!(ended, Error::Failed(_)), "{ended}");
    drop(shared);
    let server = Server::start(&config).await.unwrap();
    assert_eq!(create(&server.shared, "before").await.code, 409);
    assert_eq!(create(&server.shared, "first").await.code, 201);
    soon(server.run(std::future::ready(()))).await.unwrap();
}

#[tokio::test]
async fn watches_end_whole_when_the_server_stops() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { faults: false, ..config(directory.path()) };
    let server = Server::start(&config).await.unwrap();
    let (address, (admin, authority)) = (server.address(), server.admin());
    let tls = neonvm_kit::tls::client(Some(admin), authority.as_bytes()).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async move { drop(stopped.await) }));
    let stream = TcpStream::connect(address).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let uri = "/api/v1/namespaces?watch=1&resourceVersion=0";
    let request = hyper::Request::get(uri).header("host", "localhost");
    let request = request.body(http_body_util::Empty::<Bytes>::new()).unwrap();
    let mut events = soon(client.send_request(request)).await.unwrap().into_body();
    assert!(soon(events.frame()).await.unwrap().unwrap().is_data());
    stop.send(()).unwrap();
    // Until its last chunk: a stream that is cut off ends with an error.
    while let Some(frame) = soon(events.frame()).await {
        frame.unwrap();
    }
    soon(running).await.unwrap().unwrap();
    soon(connection).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
