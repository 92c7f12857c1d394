//! What a cluster has behind its API server for metrics: `metrics.k8s.io` as metrics-server answers,
//! `custom.metrics.k8s.io` and `external.metrics.k8s.io` as an adapter does. All other requests are forwarded to the
//! real API server.

use neonvm_test_support::eventually;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::{Client, Config as ClientConfig};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::fleet::{Fleet, Shared as Workload};

/// What the APIs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// They report the load.
    Well,
    /// As `Well`, by an adapter without `v1beta2`.
    Old,
    /// They are not installed: the API server itself answers.
    NotInstalled,
    /// What provides them does not answer the API server.
    Unavailable,
    /// Values are no quantities.
    Garbage,
    /// Of the first pod only; of what is no pod, nothing.
    PartOfPods,
    /// No answer.
    Silent,
}

struct Shared {
    behind: Client,
    workloads: Mutex<BTreeMap<String, Arc<Workload>>>,
    manner: Mutex<Manner>,
    /// Questions about metrics of a workload.
    asked: Mutex<BTreeMap<String, usize>>,
    /// Invalid requests.
    wrong: Mutex<Vec<String>>,
}

pub(crate) struct Front {
    shared: Arc<Shared>,
    address: std::net::SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Front {
    /// Sends requests to the API server with this client.
    pub(crate) async fn start(behind: Client) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, wrong) = (Mutex::default(), Mutex::default());
        let manner = Mutex::new(Manner::Well);
        let shared = Arc::new(Shared { behind, workloads: Mutex::default(), manner, asked, wrong });
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { shared, address, serving }
    }

    /// How clients come here.
    pub(crate) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new(format!("http://{}", self.address).parse().unwrap());
        config.read_timeout = None;
        config
    }

    pub(crate) fn add(&self, name: &str, fleet: &Fleet) {
        self.shared.workloads.lock().unwrap().insert(name.to_owned(), Arc::clone(&fleet.shared));
    }

    pub(crate) fn behave(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap() = manner;
    }

    /// Waits for so many more requests about a workload.
    pub(crate) async fn until_asked(&self, name: &str, more: usize) {
        let asked = || self.shared.asked.lock().unwrap().get(name).copied().unwrap_or_default();
        let before = asked();
        eventually(&format!("{more} more requests about {name}"), async || asked() >= before + more).await;
    }

    /// Asserts that no request was invalid.
    pub(crate) fn nothing_wrong(&self) {
        let wrong = self.shared.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let answer = service_fn(|request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(answer(request, &shared).await) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(request: Request<Incoming>, shared: &Shared) -> Response<Body> {
    let question = request.uri().to_string();
    let (path, query) = question.split_once('?').unwrap_or((&question, ""));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    if let ["apis", group, version, "namespaces", "default", rest @ ..] = parts.as_slice()
        && group.ends_with("metrics.k8s.io")
    {
        let manner = *shared.manner.lock().unwrap();
        let found = metrics(shared, manner, (group, version, rest), &labels(query));
        let Some((name, items)) = found else {
            shared.wrong.lock().unwrap().push(question);
            return respond(StatusCode::BAD_REQUEST, "text/plain", "what is this?\n");
        };
        *shared.asked.lock().unwrap().entry(name).or_default() += 1;
        match manner {
            Manner::NotInstalled => {}
            Manner::Unavailable => {
                return respond(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "service unavailable\n");
            }
            Manner::Silent => std::future::pending().await,
            Manner::Old if *version == "v1beta2" => {
                return respond(StatusCode::NOT_FOUND, "text/plain", "404 page not found\n");
            }
            _ => {
                let list = json!({"kind": "List", "apiVersion": format!("{group}/{version}"), "metadata": {},
                    "items": items});
                return respond(StatusCode::OK, "application/json", &list.to_string());
            }
        }
    }
    forward(request, &shared.behind).await
}

fn respond(status: StatusCode, kind: &str, text: &str) -> Response<Body> {
    let answer = Response::builder().status(status).header(header::CONTENT_TYPE, kind);
    answer.body(Body::from(text.as_bytes().to_vec())).unwrap()
}

async fn forward(request: Request<Incoming>, behind: &Client) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(header::HOST);
    parts.headers.remove(header::CONNECTION);
    let Ok(body) = body.collect().await else {
        return respond(StatusCode::BAD_REQUEST, "text/plain", "half a request\n");
    };
    match behind.send(Request::from_parts(parts, Body::from(body.to_bytes()))).await {
        Ok(mut answer) => {
            answer.headers_mut().remove(header::CONNECTION);
            answer.headers_mut().remove(header::TRANSFER_ENCODING);
            answer
        }
        Err(error) => respond(StatusCode::BAD_GATEWAY, "text/plain", &error.to_string()),
    }
}

/// The selectors of a query, each as label and value.
fn labels(query: &str) -> BTreeMap<String, (String, String)> {
    let one = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        let value = value.replace("%3D", "=");
        let (label, value) = value.split_once('=')?;
        Some((key.to_owned(), (label.to_owned(), value.to_owned())))
    };
    query.split('&').filter_map(one).collect()
}

/// The requested workload, and its metrics; `None`: the request is invalid.
fn metrics(
    shared: &Shared,
    manner: Manner,
    (group, version, rest): (&str, &str, &[&str]),
    labels: &BTreeMap<String, (String, String)>,
) -> Option<(String, Vec<Value>)> {
    let label = |selector: &str, wanted: &str| {
        let (label, value) = labels.get(selector)?;
        (label == wanted).then(|| value.clone())
    };
    let name = match (group, rest) {
        ("external.metrics.k8s.io", _) => label("labelSelector", "queue")?,
        _ => label("labelSelector", "app")?,
    };
    let workload = Arc::clone(shared.workloads.lock().unwrap().get(&name)?);
    let all = if manner == Manner::PartOfPods { 1 } else { workload.pods() };
    let pods = (0..all).map(|number| format!("{name}-{number}"));
    let amount = |value: f64, unit: &str| match manner {
        Manner::Garbage => format!("{value}apples"),
        _ => format!("{value:.0}{unit}"),
    };
    let share = workload.share();
    let items = match (group, version, rest) {
        ("metrics.k8s.io", "v1beta1", ["pods"]) if labels.len() == 1 => {
            // Ten thousandths of a core for each of the load, by two containers.
            let half = json!({"cpu": amount(share * 5e6, "n"), "memory": amount(share * 512.0, "Ki")});
            let containers = json!([{"name": "c", "usage": half}, {"name": "sidecar", "usage": half}]);
            pods.map(|pod| {
                json!({"metadata": {"name": pod, "namespace": "default"}, "window": "15s",
                "timestamp": "2026-01-01T00:00:00Z", "containers": containers})
            })
            .collect()
        }
        ("custom.metrics.k8s.io", "v1beta1" | "v1beta2", ["pods", "*", "queue_length"])
            if label("metricLabelSelector", "tier")? == "gold" =>
        {
            pods.map(|pod| {
                json!({"describedObject": {"kind": "Pod", "namespace": "default", "name": pod,
                "apiVersion": "/v1"}, "timestamp": "2026-01-01T00:00:00Z", "value": amount(share * 1e3, "m")})
            })
            .collect()
        }
        ("external.metrics.k8s.io", "v1beta1", ["messages_ready"]) if labels.len() == 1 => {
            let parts = if manner == Manner::PartOfPods { vec![] } else { vec![0.25, 0.75] };
            let value = |part: f64| amount(workload.load() * part * 1e3, "m");
            let item = |part: f64| {
                json!({"metricName": "messages_ready", "metricLabels": {"queue": name},
                "timestamp": "2026-01-01T00:00:00Z", "value": value(part)})
            };
            parts.into_iter().map(item).collect()
        }
        _ => return None,
    };
    Some((name, items))
}
