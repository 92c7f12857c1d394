//! The listening server: TLS, limits, and the loop that carries requests to [`State`].

mod body;
pub(crate) mod respond;
mod whole;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, header};
use hyper::body::Incoming as Body;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use neonvm_apiserver_engine::answer::{Reply, refusal};
use neonvm_apiserver_engine::context::User;
use neonvm_apiserver_engine::engine::Engine;
use neonvm_apiserver_engine::request::Method;
use neonvm_apiserver_engine::status::ApiError;
use neonvm_kit::ca::{Authority, Identity};
use neonvm_kit::certificate::Own;
use neonvm_kit::http::Budget;
use neonvm_kit::private;
use neonvm_kit::supervise::panic_of;
use neonvm_kit::trust::Trust;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch as channel};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::disk::{Disk, Failed};
use crate::faults::{Faults, Injection};
use crate::identity;
use crate::metrics::Metrics;
use crate::state::{Incoming, State};
use crate::token::Tokens;
use crate::{bootstrap, node_proxy, watching};
pub use body::MAX_BODY;
use respond::Response;

const MAX_CONNECTIONS: usize = 8192;
/// Time for a TLS handshake and for the headers of a request.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HEADERS: Duration = Duration::from_secs(30);
/// Bytes of a connection's buffer: the longest head of an HTTP/1 request, and what waits for a slow reader beyond the
/// chunk being sent.
const BUFFER: usize = 128 << 10;
/// Time that open requests get when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Common name of the certificate that webhooks are shown. It is in no group: as a user of this server it may do nothing.
pub const CALLER: &str = "kube-apiserver-webhook-client";
/// Group of clients that have not authenticated.
const UNAUTHENTICATED: &str = "system:unauthenticated";

#[derive(Clone, Debug)]
pub struct Config {
    pub directory: PathBuf,
    /// Address to listen on; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Further DNS names and addresses for the certificate.
    pub names: Vec<String>,
    /// Whether fault switches can be set.
    pub faults: bool,
    /// Whether a controller scales by `HorizontalPodAutoscaler` objects; without one, PodAutoscalers with strategy HPA are refused.
    pub has_hpa_controller: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Disk(#[from] crate::disk::Error),
    #[error(transparent)]
    Failed(#[from] crate::disk::Failed),
    /// What the server does beside requests.
    #[error("the background work of the API server ended: {0}")]
    Background(String),
    /// The directory is not ours alone.
    #[error(transparent)]
    Private(#[from] private::Error),
    #[error(transparent)]
    Certificate(#[from] neonvm_kit::ca::Error),
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    /// Anything else about files.
    #[error("cannot prepare {path}")]
    Prepare {
        /// Which file or directory.
        path: String,
        #[source]
        source: std::io::Error,
    },
}

pub struct Server {
    shared: Arc<Shared>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    address: SocketAddr,
    admin: Identity,
    authority: String,
    /// Renewals of the server's certificates, while it runs.
    renewals: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

pub(crate) struct Shared {
    pub(crate) state: Arc<State>,
    tokens: Tokens,
    faults: Arc<Faults>,
    metrics: Arc<Metrics>,
    /// How nodes are called: as a member of `system:masters`, with the authority's trust.
    node_tls: Arc<rustls::ClientConfig>,
    bodies: Budget,
    directory: PathBuf,
    stopped: channel::Sender<bool>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the state and starts listening.
    ///
    /// # Errors
    /// If state, keys or address cannot be used.
    pub async fn start(config: &Config) -> Result<Self, Error> {
        let prepare = |source| Error::Prepare { path: config.directory.display().to_string(), source };
        private::directory(&config.directory).map_err(prepare)?;
        private::secure(&config.directory, &private::LEFT)?;
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|source| Error::Listen { address: config.listen, source })?;
        let address = listener.local_addr().map_err(prepare)?;
        // The state first: where there are keys there must be one.
        let (disk, store) = Disk::open(&config.directory.join(crate::disk::NAME))?;
        let authority = Arc::new(Authority::open(&config.directory)?);
        let tokens = Tokens::open(&config.directory).map_err(prepare)?;
        let mut engine = Engine::new(store);
        engine.set_plugin(match config.has_hpa_controller {
            true => crate::own_kinds::admit,
            false => crate::own_kinds::admit_without_controllers,
        });
        let context = neonvm_apiserver_engine::context::Context { now: jiff::Timestamp::now(), seed: 1 };
        let state = {
            bootstrap::run(&mut engine, &context, address.port());
            Arc::new(State::new(engine, disk))
        };
        let fresh = state.context();
        state.change(|engine| while engine.run_tasks(&fresh, 1000) {});
        let mut names = vec![
            "localhost".to_owned(),
            "kubernetes".into(),
            "kubernetes.default".into(),
            "kubernetes.default.svc".into(),
        ];
        names.extend(["127.0.0.1".to_owned(), "::1".into(), "10.96.0.1".into(), address.ip().to_string()]);
        names.extend(config.names.iter().cloned());
        names.sort();
        names.dedup();
        let trust = Arc::new(Trust::new(authority.certificate())?);
        let signs = Arc::clone(&authority);
        let serving = Own::new(move || signs.server("neonvm-apiserver", &names))?;
        let tls = neonvm_kit::tls::server_with(serving.shown(), Arc::clone(&trust))?;
        let admin = neonvm_kit::administrator::certificate(&authority)?;
        let faults = if config.faults { Faults::enabled() } else { Faults::default() };
        let signs = Arc::clone(&authority);
        let to_nodes = Own::new(move || signs.client("kube-apiserver-kubelet-client", &["system:masters"]))?;
        let signs = Arc::clone(&authority);
        let to_webhooks = Own::new(move || signs.client(CALLER, &[]))?;
        state.show_to_webhooks(to_webhooks.shown());
        let node_tls = neonvm_kit::tls::client_with(to_nodes.shown(), trust)?;
        let shared = Shared {
            node_tls: Arc::new(node_tls),
            state,
            tokens,
            faults: Arc::new(faults),
            metrics: Arc::default(),
            bodies: Budget::new(body::RULES),
            directory: config.directory.clone(),
            stopped: channel::Sender::new(false),
        };
        Ok(Self {
            shared: Arc::new(shared),
            listener,
            acceptor: TlsAcceptor::from(Arc::new(tls)),
            address,
            admin,
            authority: authority.certificate().to_owned(),
            renewals: vec![Box::pin(serving.keep()), Box::pin(to_nodes.keep()), Box::pin(to_webhooks.keep())],
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig for a cluster administrator, as JSON (which is YAML).
    pub fn kubeconfig(&self, name: &str) -> Value {
        use base64::Engine as _;
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        json!({ "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{ "name": name, "cluster": { "server": self.url(),
                "certificate-authority-data": encode(&self.authority) } }],
            "users": [{ "name": format!("{name}-admin"), "user": {
                "client-certificate-data": encode(&self.admin.certificate),
                "client-key-data": encode(&self.admin.key) } }],
            "contexts": [{ "name": name, "context": { "cluster": name, "user": format!("{name}-admin") } }] })
    }

    /// Certificate and key of the administrator, and the authority's certificate.
    pub fn admin(&self) -> (&Identity, &str) {
        (&self.admin, &self.authority)
    }

    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.shared.state)
    }

    /// Serves until `stop` ends, then ends watches, lets other open requests finish and writes what is left to disk.
    ///
    /// # Errors
    /// If the state file could not be written: then it ends by itself, because a server without its disk cannot keep
    /// what it accepts. The supervisor of the process starts it again.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let mut tend = tokio::spawn({
            let state = Arc::clone(&self.shared.state);
            async move { state.tend().await }
        });
        // Ended with this.
        let _renewals: JoinSet<()> = self.renewals.into_iter().collect();
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let graceful = hyper_util::server::graceful::GracefulShutdown::new();
        let state = Arc::clone(&self.shared.state);
        let failure = state.disk().failure();
        tokio::pin!(stop, failure);
        let mut ended = Ok(());
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                work = &mut tend => {
                    ended = Err(Error::Background(work.err().map_or_else(|| "it returned".to_owned(), panic_of)));
                    break;
                }
                failed = &mut failure => {
                    ended = Err(Error::Failed(failed));
                    break;
                }
                accepted = self.listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                // Out of file descriptors, most likely: others will be closed in a moment.
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
            let (shared, acceptor, watcher) =
                (Arc::clone(&self.shared), self.acceptor.clone(), graceful.watcher());
            tokio::spawn(async move {
                connection(shared, acceptor, stream, watcher).await;
                drop(place);
            });
        }
        tend.abort();
        // Clients that come now are refused at once.
        drop(self.listener);
        self.shared.stopped.send_replace(true);
        if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
            tracing::debug!("some connections were still open after the drain time");
        }
        let closing = Arc::clone(&self.shared.state);
        let closed = tokio::task::spawn_blocking(move || closing.disk().close()).await;
        ended?;
        // The last writes can fail as well; they were not acknowledged then.
        closed.unwrap_or_else(|_| Err(Failed::panicked())).map_err(Error::Failed)
    }
}

async fn connection(
    shared: Arc<Shared>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    watcher: hyper_util::server::graceful::Watcher,
) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Ok(Ok(tls)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let certificate = tls.get_ref().1.peer_certificates().and_then(|list| list.first());
    let user = certificate.and_then(|der| identity::of_certificate(der)).map(Arc::new);
    let service = service_fn(move |request| {
        let (shared, user) = (Arc::clone(&shared), user.clone());
        async move { serve(&shared, user.as_ref(), request).await }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS).max_buf_size(BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .keep_alive_interval(Duration::from_secs(60));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(tls), service);
    if let Err(error) = watcher.watch(connection.into_owned()).await {
        tracing::debug!(%error, "a connection ended");
    }
}

/// The answer is lost on purpose, by a fault switch.
#[derive(Debug)]
struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the answer was dropped by a fault switch")
    }
}

impl std::error::Error for Lost {}

fn header<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

async fn serve(
    shared: &Arc<Shared>,
    certificate: Option<&Arc<User>>,
    request: hyper::Request<Body>,
) -> Result<Response, Lost> {
    let started = Instant::now();
    let method = Method::parse(request.method().as_str());
    let verb = verb_name(method);
    let user = match identity::of_request(&shared.state, &shared.tokens, certificate, request.headers()) {
        Ok(user) => user,
        Err(refused) => {
            let error = match refused {
                identity::Refused::Unauthorized => ApiError::plain(401, "Unauthorized", "Unauthorized"),
                identity::Refused::Impersonation(error) => error,
            };
            return Ok(respond::answer(refusal(&error, Vec::new())));
        }
    };
    let injection = match shared.faults.next(method != Method::Get) {
        Injection::Refused(code) => return Ok(respond::answer(refusal(&injected(code), Vec::new()))),
        injection => injection,
    };
    let mut request = request;
    let upgrade = hyper::upgrade::on(&mut request);
    let (parts, body) = request.into_parts();
    let known = !user.groups.iter().any(|group| group == UNAUTHENTICATED);
    // What it takes of the budget is kept until the request is done with.
    let (body, _held) = match shared.bodies.read(&parts.headers, body, known, MAX_BODY).await {
        Ok(read) => read,
        Err(why) => return Ok(respond::answer(refusal(&body::refusal(why), Vec::new()))),
    };
    let accept: Vec<&str> =
        parts.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let incoming = Incoming {
        method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        accept: accept.join(","),
        content_type: header(&parts.headers, &header::CONTENT_TYPE).to_owned(),
        user_agent: header(&parts.headers, &header::USER_AGENT).to_owned(),
        body,
        user,
    };
    if let Some(whole) = whole::answer(shared, &incoming).await {
        return Ok(whole);
    }
    if let Some(own) = own_path(shared, &incoming) {
        return Ok(own);
    }
    let reply = shared.state.run(&incoming).await;
    if injection == Injection::Lost {
        return Err(Lost);
    }
    let response = match reply {
        Reply::Node(node) => {
            let client = node_proxy::Client { method: parts.method, headers: parts.headers, upgrade };
            node_proxy::forward(&shared.state, Arc::clone(&shared.node_tls), &node, client).await
        }
        reply => finish(shared, reply),
    };
    shared.metrics.request(verb, response.status().as_u16(), started.elapsed());
    Ok(response)
}

fn verb_name(method: Method) -> &'static str {
    match method {
        Method::Get => "GET",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
        Method::Other => "OTHER",
    }
}

fn injected(code: u16) -> ApiError {
    match code {
        409 => ApiError::plain(409, "Conflict", "injected conflict"),
        429 => {
            let mut error = ApiError::plain(429, "TooManyRequests", "injected overload");
            error.retry_after = Some(1);
            error
        }
        _ => ApiError::internal("injected failure"),
    }
}

/// What the disk does to the server's health. A full one makes it not ready; requests that need no room are still
/// served.
fn unhealthy(shared: &Shared, check: &str) -> Option<String> {
    if !matches!(check, "healthz" | "livez" | "readyz") {
        return None;
    }
    let disk = shared.state.disk();
    let full = || disk.full().filter(|_| check == "readyz").map(|full| format!("disk-space failed: {full}"));
    disk.check().err().map(|failed| format!("disk failed: {failed}")).or_else(full)
}

/// The refusal if the user may not read or write a path that is no resource.
fn forbidden(shared: &Shared, incoming: &Incoming) -> Option<Response> {
    let attributes = neonvm_apiserver_engine::access::Attributes {
        verb: if incoming.method == Method::Get { "get" } else { "put" },
        path: &incoming.path,
        ..neonvm_apiserver_engine::access::Attributes::from_user(&incoming.user)
    };
    let allowed = shared.state.with(|engine| engine.authorize(&attributes));
    allowed.err().map(|error| respond::answer(refusal(&error, Vec::new())))
}

/// Paths that the shell answers itself: metrics, fault switches, and its health while the disk has failed.
fn own_path(shared: &Shared, incoming: &Incoming) -> Option<Response> {
    let chaos = incoming.path.strip_prefix("/chaos/");
    let first = incoming.path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let failed = unhealthy(shared, first);
    if incoming.path != "/metrics" && chaos.is_none() && failed.is_none() {
        return None;
    }
    if let Some(response) = forbidden(shared, incoming) {
        return Some(response);
    }
    if let Some(failed) = failed {
        return Some(respond::text(500, format!("[-]{failed}\n{first} check failed\n")));
    }
    if let Some(name) = chaos {
        let value = incoming.query.strip_prefix("value=").and_then(|text| text.parse().ok());
        let done = shared.faults.is_enabled() && value.is_some_and(|value| shared.faults.set(name, value));
        return Some(if done {
            respond::text(200, "ok\n".into())
        } else {
            respond::text(404, "no such switch; the server must run with fault switches on\n".into())
        });
    }
    let (objects, revision) = shared.state.with(|engine| (engine.counts(), engine.store().revision()));
    Some(respond::text(200, shared.metrics.page(&objects, revision).finish()))
}

fn finish(shared: &Arc<Shared>, reply: Reply) -> Response {
    match reply {
        Reply::Answer(answer) => respond::answer(answer),
        Reply::Watch(watch, warnings) => {
            let open = shared.metrics.watch();
            let faults = (Arc::clone(&shared.faults), shared.stopped.subscribe());
            let stream = watching::start(Arc::clone(&shared.state), *watch, faults, open);
            respond::stream(stream, warnings)
        }
        Reply::TokenReview(body) => respond::answer(token_review(shared, &body)),
        Reply::Token(request) => {
            let context = shared.state.context();
            let id = context.entropy().uuid();
            match shared.tokens.sign(&request.account, &request.body, context.now, &id) {
                Ok(status) => respond::json(
                    201,
                    &token_answer(&request.account, &request.body, &status, &context.time()),
                ),
                Err(why) => respond::answer(refusal(&ApiError::internal(why), Vec::new())),
            }
        }
        Reply::Ask(_) | Reply::Node(_) => {
            let error = ApiError::internal("a call to a webhook or node was left open");
            respond::answer(refusal(&error, Vec::new()))
        }
    }
}

fn token_review(shared: &Shared, body: &Value) -> neonvm_apiserver_engine::answer::EngineResponse {
    let audiences: Vec<String> = body
        .pointer("/spec/audiences")
        .and_then(|list| serde_json::from_value(list.clone()).ok())
        .unwrap_or_default();
    let token = body.pointer("/spec/token").and_then(Value::as_str).unwrap_or("");
    let now = jiff::Timestamp::now();
    let checked = shared.state.with(|engine| shared.tokens.check(engine, token, &audiences, now));
    let found = checked.as_ref().map(|c| (&c.user, c.audiences.as_slice())).map_err(|why| *why);
    respond::made(201, &neonvm_apiserver_engine::access::review::token(body, found))
}

fn token_answer(account: &Value, body: &Value, status: &Value, now: &str) -> Value {
    let mut answer = body.clone();
    if let Some(map) = answer.as_object_mut() {
        map.insert("kind".into(), json!("TokenRequest"));
        map.insert("apiVersion".into(), json!("authentication.k8s.io/v1"));
        map.insert("status".into(), status.clone());
        let pick = |pointer: &str| account.pointer(pointer).cloned().unwrap_or_default();
        map.insert(
            "metadata".into(),
            json!({ "name": pick("/metadata/name"), "namespace": pick("/metadata/namespace"),
            "uid": pick("/metadata/uid"), "creationTimestamp": now }),
        );
        if let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) {
            spec.entry("audiences").or_insert_with(crate::token::default_audiences);
            spec.entry("boundObjectRef").or_insert(Value::Null);
        }
    }
    answer
}

#[cfg(test)]
mod tests;
