//! Admission webhooks for PodAutoscalers, at upstream's paths: what people write as numbers becomes text, as the definition has it,
//! and what is wrong is refused with all faults. Answers are computed from the request alone. Every replica serves them, with a
//! certificate of the internal authority; until there is one nothing listens, and the API server does without.

use std::net::SocketAddr;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use http::StatusCode;
use kube::Client;
use neonvm_kit::backoff::Backoff;
use neonvm_kit::certificate::{Certificate, CertificateFor};
use neonvm_kit::expiry::Expiry;
use neonvm_kit::http::{BUSY, Ending, FullRequest, FullResponse, Gate, Tls, serve, text};
use neonvm_kit::webhook::{Proof, Review, Written, allowed, denied, patched, texts};
use rustls::ServerConfig;
use serde_json::Value;
use tokio::net::TcpSocket;

use crate::config::WebhookConfig;
use crate::error::Error;

/// Paths, and whether the object is changed there.
const PATHS: [(&str, bool); 2] = [
    ("/mutate-autoscaling-aibrix-ai-v1alpha1-podautoscaler", true),
    ("/validate-autoscaling-aibrix-ai-v1alpha1-podautoscaler", false),
];
const KIND: &str = "PodAutoscaler";
/// Longest review, in bytes: two objects and their managed fields have some KiB. As objects in memory texts are many times as large,
/// and this service is small.
const LONGEST: usize = 256 << 10;
/// First and longest pause before another attempt to get a certificate: without a vm-controller there is none.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(300));
/// Connections that wait to be taken.
const BACKLOG: u32 = 1024;

/// The webhooks, bound to their address.
pub(crate) struct Webhooks {
    socket: TcpSocket,
    /// PEM of the authority of callers; `None`: callers need no certificate.
    clients: Option<String>,
    proof: Proof,
}

impl Webhooks {
    /// Binds the address. Nothing listens yet.
    pub(crate) fn new(config: &WebhookConfig) -> Result<Self, Error> {
        let read = |client: &neonvm_kit::webhook::Client| {
            let path = &client.authority;
            let failed = |error| Error::Config(format!("cannot read {}: {error}", path.display()));
            std::fs::read_to_string(path).map_err(failed)
        };
        let clients = config.client.as_ref().map(read).transpose()?;
        let failed = |source| Error::Listen { address: config.listen, source };
        let socket = bound(config.listen).map_err(failed)?;
        Ok(Self { socket, clients, proof: Proof::new(config.client.as_ref()) })
    }

    /// Serves until `ending`; returns only if it cannot.
    pub(crate) async fn run(self, client: Client, namespace: String, expiry: Expiry, ending: Arc<Ending>) {
        let clients = self.clients.as_deref();
        let Some((certificate, config)) = obtain(&client, &namespace, clients).await else { return };
        let certificate = certificate.reported(&expiry);
        let tls: Tls = Arc::new(RwLock::new(Arc::new(config)));
        let listener = match self.socket.listen(BACKLOG) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "cannot listen for webhooks"),
        };
        let known = self.proof.clone();
        let gate =
            Gate::new(BUSY, &Arc::default(), move |peer| known.is_proved(peer)).ending(ending.watched());
        let proof = self.proof.clone();
        let admit = move |head: &_| proof.admit(head, longest);
        let answer = |request: FullRequest| std::future::ready(answer(&request));
        tokio::select! {
            () = serve(listener, Some(tls), gate, admit, answer) => {}
            () = certificate.keep() => {}
        }
    }
}

/// Without listening: a client that connects is refused at once, instead of waiting for a certificate.
fn bound(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Gets a certificate, however long that takes. None if the authority of callers cannot be used.
async fn obtain(
    client: &Client,
    namespace: &str,
    clients: Option<&str>,
) -> Option<(Certificate, ServerConfig)> {
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    loop {
        match Certificate::obtain(client, namespace, CertificateFor::pod_autoscaler()).await {
            Ok(certificate) => match certificate.webhook_config(clients) {
                Ok(config) => return Some((certificate, config)),
                Err(error) => {
                    tracing::error!(%error, "the authority of the API server's client certificate cannot be used");
                    return None;
                }
            },
            Err(error) => {
                let pause = backoff.pause();
                tracing::info!(%error, ?pause, "webhooks are not served: there is no certificate yet");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

fn longest(path: &str) -> Option<usize> {
    PATHS.iter().any(|(known, _)| *known == path).then_some(LONGEST)
}

fn answer(request: &FullRequest) -> FullResponse {
    let path = request.uri().path();
    let Some((_, mutating)) = PATHS.iter().find(|(known, _)| *known == path) else {
        return text(StatusCode::NOT_FOUND, "text/plain", "not found\n");
    };
    match review(*mutating, request.body()) {
        Ok(review) => text(StatusCode::OK, "application/json", review.to_string()),
        Err(why) => text(StatusCode::BAD_REQUEST, "text/plain", format!("{why}\n")),
    }
}

/// The response to a review, or why the body is none.
fn review(mutating: bool, body: &[u8]) -> Result<Value, String> {
    let review = Review::read(body)?;
    let Some(Written { object, old }) = review.written()? else { return Ok(review.response(allowed(&[]))) };
    let mut new = object.clone();
    let verdict = neonvm_api::admit(KIND, &mut new, old);
    let (warnings, faults) = texts(&verdict);
    Ok(review.response(match verdict.errors.is_empty() {
        // What is wrong is refused by the validating side, which sees the object as it will be stored.
        _ if mutating => patched(object, &new),
        true => allowed(&warnings),
        false => denied(&warnings, &faults),
    }))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use serde_json::json;

    use super::*;

    fn scaler(target: &Value) -> Value {
        json!({"apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": KIND, "metadata": {"name": "a"}, "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 4,
            "scalingStrategy": "APA", "metricsSources": [{"metricSourceType": "external", "protocolType": "https",
                "endpoint": "m.example.com", "path": "/m", "targetMetric": "requests", "targetValue": target}]}})
    }

    fn reviewed(mutating: bool, operation: &str, object: &Value, old: &Value) -> Value {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": operation, "object": object, "oldObject": old}});
        let response = review_of(mutating, &review);
        assert_eq!(response["response"]["uid"], "u");
        response["response"].clone()
    }

    fn review_of(mutating: bool, body: &Value) -> Value {
        review(mutating, body.to_string().as_bytes()).unwrap()
    }

    /// R10: the definition wants text.
    #[test]
    fn a_number_becomes_text() {
        let response = reviewed(true, "CREATE", &scaler(&json!(12.5)), &Value::Null);
        assert_eq!((&response["allowed"], &response["patchType"]), (&json!(true), &json!("JSONPatch")));
        let patch = response["patch"].as_str().unwrap();
        let patch = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        let change = json!({"op": "replace", "path": "/spec/metricsSources/0/targetValue", "value": "12.5"});
        assert!(patch.as_array().unwrap().contains(&change), "{patch}");
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let mut bad = scaler(&json!("-5"));
        bad["spec"]["maxReplicas"] = json!(0);
        let response = reviewed(false, "CREATE", &bad, &Value::Null);
        assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(403)));
        let message = response["status"]["message"].as_str().unwrap();
        for field in ["spec.maxReplicas", "spec.metricsSources[0].targetValue"] {
            assert!(message.contains(field), "{message}");
        }
        // What was stored under older rules can still lose its finalizers.
        assert_eq!(reviewed(false, "UPDATE", &bad, &bad)["allowed"], true);
        assert_eq!(reviewed(false, "DELETE", &Value::Null, &bad)["allowed"], true);
        assert_eq!(reviewed(false, "CREATE", &scaler(&json!("12.5")), &Value::Null)["allowed"], true);
    }
}
