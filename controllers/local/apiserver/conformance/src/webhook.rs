//! An HTTPS admission webhook on loopback that answers by the scenario.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use neonvm_kit::ca::Authority;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

#[derive(Debug)]
pub(crate) struct Webhook {
    /// `https://127.0.0.1:port`
    pub(crate) url: String,
    /// Authority of its certificate, as a `caBundle`.
    pub(crate) bundle: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    answers: Map<String, Value>,
    /// Path and review, in the order of the calls.
    calls: Mutex<Vec<(String, Value)>>,
}

impl Webhook {
    pub(crate) async fn start(answers: Map<String, Value>) -> anyhow::Result<Self> {
        let keys = tempfile::tempdir()?;
        let authority = Authority::open(keys.path())?;
        let identity = authority.server("localhost", &["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        let tls = neonvm_kit::tls::open_server(&identity)?;
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen for webhooks")?;
        let url = format!("https://{}", listener.local_addr()?);
        let shared = Arc::new(Shared { answers, calls: Mutex::default() });
        let server = tokio::spawn(accept(listener, acceptor, Arc::clone(&shared)));
        Ok(Self { url, bundle: STANDARD.encode(authority.certificate()), shared, server })
    }

    /// The reviews that came to a path since the last call.
    pub(crate) fn take(&self, path: &str) -> Vec<Value> {
        let mut calls = self.shared.calls.lock();
        let (taken, rest) = std::mem::take(&mut *calls).into_iter().partition(|(at, _)| at == path);
        *calls = rest;
        let taken: Vec<(String, Value)> = taken;
        taken.into_iter().map(|(_, review)| review).collect()
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { answer(&shared, request).await }
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // A caller that gave up waiting is part of what is tested.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> anyhow::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let mut review: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
    let uid = review.pointer("/request/uid").cloned().unwrap_or_default();
    if let Some(review) = review.as_object_mut() {
        review.insert("query".into(), json!(parts.uri.query().unwrap_or("")));
    }
    let path = parts.uri.path();
    shared.calls.lock().push((path.to_owned(), review));
    let nothing = Value::Null;
    let plan = shared.answers.get(path).unwrap_or(&nothing);
    if let Some(seconds) = plan.get("delay").and_then(Value::as_f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }
    let status =
        plan.get("http").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()).unwrap_or(200);
    let body = match plan.get("raw").and_then(Value::as_str) {
        Some(raw) => raw.to_owned(),
        None => reply(uid, plan.get("response")).to_string(),
    };
    Ok(Response::builder()
        .status(status)
        .header("Content-Type", "application/json")
        .body(Full::from(body))?)
}

fn reply(uid: Value, planned: Option<&Value>) -> Value {
    let mut response = Map::from_iter([("uid".to_owned(), uid), ("allowed".to_owned(), Value::Bool(true))]);
    response.extend(planned.and_then(Value::as_object).cloned().unwrap_or_default());
    if let Some(patch) = response.get("patch").map(Value::to_string) {
        response.insert("patchType".into(), json!("JSONPatch"));
        response.insert("patch".into(), json!(STANDARD.encode(patch)));
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
}
