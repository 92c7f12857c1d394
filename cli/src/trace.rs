//! Requests to the API server on standard error, for `--verbose`: a line for each, and with `-vv` the bodies, with values
//! of known fields only. Standard output is not touched.

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tower::Service;

use crate::render::{Shown, errors};
use crate::settings::Verbosity;

/// Characters of a body that are shown.
const LONGEST: usize = 20_000;

/// Bytes of a body, or of a line of a watch, that are kept.
const KEPT: usize = 8 << 20;

/// Takes one line.
type Sink = Arc<dyn Fn(&str) + Send + Sync>;

/// A client that shows its requests on standard error; the same client if nothing is shown.
pub(crate) fn traced(client: Client, verbosity: Verbosity) -> Client {
    traced_to(client, verbosity, Arc::new(print))
}

fn traced_to(client: Client, verbosity: Verbosity, sink: Sink) -> Client {
    if verbosity == Verbosity::Off {
        return client;
    }
    let namespace = client.default_namespace().to_owned();
    Client::new(Traced { client, bodies: verbosity == Verbosity::Bodies, sink }, namespace)
}

fn print(line: &str) {
    let mut shown = Shown::line(line);
    shown.push(&Shown::text("\n"));
    errors(&shown);
}

/// Sends requests through a client, and shows them.
struct Traced {
    client: Client,
    bodies: bool,
    sink: Sink,
}

impl Service<Request<Body>> for Traced {
    type Response = Response<TracedBody>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // `Client::send` waits until the client is ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(send(self.client.clone(), self.bodies, Arc::clone(&self.sink), request))
    }
}

async fn send(
    client: Client,
    bodies: bool,
    sink: Sink,
    mut request: Request<Body>,
) -> Result<Response<TracedBody>, kube::Error> {
    let target = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let head = format!("{} {target}", request.method());
    let sent = if bodies {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await?;
        let shown = shown_body(&target, &bytes, bytes.len());
        request = Request::from_parts(parts, Body::from(bytes));
        shown
    } else {
        None
    };
    let begun = Instant::now();
    let outcome = client.send(request).await;
    let took = begun.elapsed().as_millis();
    match &outcome {
        Ok(response) => sink(&format!("{head} {} {took} ms", response.status().as_u16())),
        Err(error) => sink(&format!("{head} failed {took} ms: {}", innermost(error))),
    }
    if let Some(sent) = sent {
        sink(&format!("  sent: {sent}"));
    }
    Ok(outcome?.map(|body| TracedBody::new(body, bodies.then_some((target, sink)))))
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// A body without what is secret; none if it is empty. `total`: its length in bytes, of which `bytes` may be the first part.
/// Only JSON is shown: in another text nothing could be found that is secret.
fn shown_body(target: &str, bytes: &[u8], total: usize) -> Option<String> {
    if total == 0 {
        return None;
    }
    let Ok(mut value) = serde_json::from_slice(bytes) else {
        return Some(format!("{total} bytes that are not JSON"));
    };
    redact(target, &mut value);
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        None => Some(text),
        Some((end, _)) => {
            Some(format!("{}… ({} bytes in all)", text.get(..end).unwrap_or_default(), text.len()))
        }
    }
}

/// A body that is shown when it has ended; of a watch, each line.
struct TracedBody {
    inner: Body,
    copy: Option<Copy>,
}

struct Copy {
    target: String,
    sink: Sink,
    is_watch: bool,
    kept: Vec<u8>,
    total: usize,
}

impl TracedBody {
    /// `shown`: path and query of the request, and where lines go.
    fn new(inner: Body, shown: Option<(String, Sink)>) -> Self {
        let copy = shown.map(|(target, sink)| {
            let is_watch = target.contains("watch=true") || target.contains("watch=1");
            Copy { target, sink, is_watch, kept: Vec::new(), total: 0 }
        });
        Self { inner, copy }
    }

    fn take(&mut self, data: Option<&Bytes>) {
        let (Some(copy), Some(data)) = (&mut self.copy, data) else { return };
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            copy.total += piece.len();
            let room = KEPT.saturating_sub(copy.kept.len());
            copy.kept.extend_from_slice(piece.get(..room).unwrap_or(piece));
            if copy.is_watch && piece.ends_with(b"\n") {
                copy.show();
            }
        }
    }

    fn finish(&mut self) {
        if let Some(copy) = &mut self.copy {
            copy.show();
        }
    }
}

impl Copy {
    fn show(&mut self) {
        if let Some(text) = shown_body(&self.target, &self.kept, self.total) {
            (self.sink)(&format!("  received: {text}"));
        }
        self.kept.clear();
        self.total = 0;
    }
}

impl Drop for TracedBody {
    /// A caller may stop before the end.
    fn drop(&mut self) {
        self.finish();
    }
}

impl hyper::body::Body for TracedBody {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => self.take(frame.data_ref()),
            Poll::Ready(Some(Err(_)) | None) => self.finish(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.inner.size_hint()
    }
}

/// Objects and lists of the API whose fields have the meaning that their names have here.
const STRUCTURE: &str = "\
    addresses causes conditions containerStatuses containers cpus details disks extraNetwork guest \
    initContainerStatuses involvedObject items kernel lastExit lastState managedFields memorySlots \
    metadata object ownerReferences podSelector ports regarding resourceAttributes resources roleRef \
    rules running scaleTargetRef series source spec state status subjects target terminated tolerations \
    waiting";

/// Maps with keys of their author whose values are no secrets: they select, or are quantities.
const OPEN: &str = "\
    allocatable capacity hard labels limits matchLabels nodeSelector requests used";

/// Fields whose text is shown.
const SHOWN: &str = "\
    accelerator acquireTime action apiGroup apiGroups apiVersion component containerID continue cpu \
    cpuScalingMode creationTimestamp deletionTimestamp effect eventTime extraNetIP field finalizers \
    finishedAt firstTimestamp generateName group holderIdentity host hostIP image imageID \
    imagePullPolicy ip kernelImage key kind lastScaleTime lastTimestamp lastTransitionTime \
    lastUpdateTime manager max memory memorySlotSize message min mode name namespace node nodeName \
    operation operator phase podIP podName policy powerState protocol qosClass reason renewTime \
    reportingController reportingInstance resource resourceVersion resources restartPolicy runnerImage \
    schedulerName serviceAccountName startTime startedAt status subresource time type uid use verb verbs \
    version";

fn has(names: &str, key: &str) -> bool {
    names.split(' ').any(|name| name == key)
}

/// Hides what is not listed. `target`: path and query of the request.
fn redact(target: &str, value: &mut Value) {
    let path = target.split('?').next().unwrap_or_default();
    // A server quotes what it refuses.
    let quotes = path.split('/').any(|word| word == "secrets");
    let place = Place { is_known: true, quotes };
    match value {
        Value::Array(operations) => operations.iter_mut().for_each(|operation| patch(operation, place)),
        other => walk(other, "", place),
    }
}

/// Where in an object a value is.
#[derive(Clone, Copy)]
struct Place {
    /// All objects around it are among [`STRUCTURE`].
    is_known: bool,
    /// Messages may have parts of a secret.
    quotes: bool,
}

fn walk(value: &mut Value, key: &str, place: Place) {
    match value {
        Value::Object(fields) if place.is_known && has(OPEN, key) => {
            fields.values_mut().filter(|value| value.is_object() || value.is_array()).for_each(hide);
        }
        Value::Object(fields) => {
            let place =
                Place { is_known: place.is_known && (key.is_empty() || has(STRUCTURE, key)), ..place };
            fields.iter_mut().for_each(|(key, value)| walk(value, key, place));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, key, place)),
        Value::Null => {}
        Value::String(_) if !is_shown(key, place) => hide(value),
        Value::Number(_) | Value::Bool(_) if !place.is_known => hide(value),
        _ => {}
    }
}

fn is_shown(key: &str, place: Place) -> bool {
    place.is_known && has(SHOWN, key) && !(place.quotes && key == "message")
}

/// An operation of a JSON patch: its value is what the path leads to. Nothing else of the API is a list.
fn patch(operation: &mut Value, place: Place) {
    let Value::Object(fields) = operation else { return hide(operation) };
    let path = fields.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut around: Vec<&str> =
        path.split('/').skip(1).filter(|step| step.parse::<u32>().is_err() && *step != "-").collect();
    let last = around.pop().unwrap_or_default();
    let is_known = around.iter().all(|step| has(STRUCTURE, step));
    for (key, value) in fields {
        match key.as_str() {
            "op" | "path" | "from" => {}
            "value" => walk(value, last, Place { is_known, ..place }),
            _ => hide(value),
        }
    }
}

fn hide(value: &mut Value) {
    let length = value.as_str().map_or_else(|| value.to_string().len(), str::len);
    *value = Value::String(format!("REDACTED ({length} bytes)"));
}
