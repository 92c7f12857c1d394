use std::convert::Infallible;

use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use neonvm_kit::ca::{Authority, Identity};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::{Config, Server};

/// A server with a node behind it that answers logs with the requested path, and upgrades with an echo.
struct World {
    url: String,
    client: Arc<rustls::ClientConfig>,
    stop: Option<oneshot::Sender<()>>,
    _directory: tempfile::TempDir,
}

async fn node(authority: &Authority) -> u16 {
    let identity = authority.server("node", &["127.0.0.1".into()]).unwrap();
    let tls = neonvm_kit::tls::server(&identity, authority.certificate()).unwrap();
    let mut tls = tls;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.unwrap();
                assert!(stream.get_ref().1.peer_certificates().is_some(), "the server shows who it is");
                hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                    .serve_connection_with_upgrades(TokioIo::new(stream), service_fn(answer))
                    .await
                    .ok();
            });
        }
    });
    port
}

async fn answer(mut request: hyper::Request<Incoming>) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let uri = request.uri().to_string();
    if !request.headers().contains_key(header::UPGRADE) {
        return Ok(hyper::Response::new(Full::from(format!("{} {uri}\n", request.method()))));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
        tokio::io::copy(&mut reader, &mut writer).await.ok();
    });
    let response = hyper::Response::builder()
        .status(101)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "SPDY/3.1")
        .header("x-seen", uri);
    Ok(response.body(Full::default()).unwrap())
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            directory: directory.path().to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            names: Vec::new(),
            faults: false,
            has_hpa_controller: true,
        };
        let server = Server::start(&config).await.unwrap();
        let authority = Authority::open(directory.path()).unwrap();
        let port = node(&authority).await;
        let (admin, ca) = server.admin();
        let admin = Identity { certificate: admin.certificate.clone(), key: admin.key.clone() };
        let client = neonvm_kit::tls::client(Some(&admin), ca.as_bytes()).unwrap();
        let url = server.address().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(server.run(async move {
            stopped.await.ok();
        }));
        let world = Self { url, client: Arc::new(client), stop: Some(stop), _directory: directory };
        world
            .post(
                "/api/v1/nodes",
                &json!({ "metadata": { "name": "n1" }, "status": {
            "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": port } } } }),
            )
            .await;
        let pod = |name: &str, node: Option<&str>| {
            json!({ "metadata": { "name": name }, "spec": { "nodeName": node, "automountServiceAccountToken": false,
                "containers": [{ "name": "main", "image": "i" }] } })
        };
        world.post("/api/v1/namespaces/default/pods", &pod("p", Some("n1"))).await;
        world.post("/api/v1/namespaces/default/pods", &pod("unbound", None)).await;
        world
    }

    async fn send(&self, request: hyper::Request<Full<Bytes>>) -> hyper::Response<Incoming> {
        let stream = TcpStream::connect(&self.url).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TlsConnector::from(Arc::clone(&self.client)).connect(name, stream).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.unwrap()
    }

    async fn post(&self, path: &str, body: &Value) {
        let request = hyper::Request::post(path).header("content-type", "application/json");
        let response = self.send(request.body(Full::from(body.to_string())).unwrap()).await;
        assert_eq!(response.status(), 201);
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let response = self.send(hyper::Request::get(path).body(Full::default()).unwrap()).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop.send(()).ok();
        }
    }
}

#[tokio::test]
async fn logs_come_from_the_node() {
    let world = World::new().await;
    let pods = "/api/v1/namespaces/default/pods";
    let (code, body) = world.get(&format!("{pods}/p/log?tailLines=5")).await;
    assert_eq!((code, body.as_str()), (200, "GET /containerLogs/default/p/main?tailLines=5\n"));
    let (code, body) = world.get(&format!("{pods}/p/log?container=other")).await;
    assert_eq!(code, 400);
    assert!(body.contains("container other is not valid for pod p"), "{body}");
    let (code, body) = world.get(&format!("{pods}/unbound/log")).await;
    assert_eq!(code, 400);
    assert!(body.contains("does not have a host assigned"), "{body}");
    assert_eq!(world.get(&format!("{pods}/missing/log")).await.0, 404);
}

#[tokio::test]
async fn exec_is_joined_byte_for_byte() {
    let world = World::new().await;
    let path =
        "/api/v1/namespaces/default/pods/p/exec?command=sh&command=-c&stdin=true&stdout=true&tty=false";
    let request = hyper::Request::post(path)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "SPDY/3.1")
        .body(Full::default())
        .unwrap();
    let mut response = world.send(request).await;
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["x-seen"], "/exec/default/p/main?command=sh&command=-c&input=1&output=1");
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    stream.write_all(b"to the node and back").await.unwrap();
    let mut back = [0; 20];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"to the node and back");
}
