//! The listener of probes: plain HTTP with separate places, so that a client that fills the other ports cannot fail a
//! probe, which would restart the service. It takes no bodies, and each connection is good for one answer.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use tokio::net::TcpListener;

use super::body::Rules;
use super::{Admitted, Budget, FullRequest, FullResponse, Gate, closing, refuse, serve, text};
use crate::places::Places;

/// Paths that are answered. `/livez` is `/healthz` under its newer name.
pub const PROBES: [&str; 3] = ["/healthz", "/livez", "/readyz"];
/// A kubelet holds one connection for each kind of probe, for milliseconds. An address with more of them, or a new one when all
/// are taken, closes an idle one first.
const PLACES: Places = Places { arriving: 0, strangers: 32, per_address: 8, known: 0 };
/// No body is read.
const NOTHING: Rules = Rules { small: 0, known: 0, strangers: 0, ..Rules::SERVICE };

/// Answers probes until it is dropped. `answer` gets one of [`PROBES`].
pub async fn probes<A>(listener: TcpListener, answer: A)
where
    A: Fn(&str) -> FullResponse + Clone + Send + Sync + 'static,
{
    let gate = Gate::open(PLACES, &Arc::new(Budget::new(NOTHING)));
    let handler = move |request: FullRequest| std::future::ready(closing(answer(request.uri().path())));
    serve(listener, None, gate, admit, handler).await;
}

fn admit(head: &Parts) -> Admitted {
    if !PROBES.contains(&head.uri.path()) {
        let paths = format!("there is {}\n", PROBES.join(", "));
        return refuse(StatusCode::NOT_FOUND, "text/plain", paths);
    }
    if head.method != Method::GET {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "use GET\n");
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
        return Err(Box::new(answer));
    }
    Ok(0)
}
