//! The requests about CPUs, file systems, files and status.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use neonvm_types::guest::{ATTACH_PATH, CLOCK_PATH, GROW_PATH, SUSPEND_PATH};
use tokio::sync::Mutex;

use super::{attach, status, suspend};
use crate::cpu::Processors;
use crate::files::payload::Payload;
use crate::files::{self, Directory};
use crate::http::{self, Response};
use crate::mount::grow;

/// What requests work on. Changes of CPUs, of file systems and of files each wait for one another.
#[derive(Clone, Debug)]
pub(super) struct Api {
    root: PathBuf,
    processors: Arc<Mutex<()>>,
    files: Arc<Mutex<()>>,
    disks: Arc<Mutex<()>>,
    door: attach::Door,
}

impl Api {
    pub(super) fn new(root: &Path, door: attach::Door) -> Self {
        let (processors, files, disks) = Default::default();
        Self { root: root.to_owned(), processors, files, disks, door }
    }

    pub(super) async fn handle(self, request: Request<Incoming>) -> Response {
        let path = request.uri().path().to_owned();
        if request.method() == Method::POST && path == GROW_PATH {
            return self.grow().await;
        }
        if request.method() == Method::POST && path == SUSPEND_PATH {
            return self.may_suspend().await;
        }
        let put = request.method() == Method::PUT;
        if !put && request.method() != Method::GET {
            return not_found();
        }
        match (path.as_str(), put) {
            ("/cpu", false) => self.online().await,
            ("/cpu", true) => match http::body(request).await {
                Ok(body) => self.set_online(&body).await,
                Err(answer) => answer,
            },
            (CLOCK_PATH, true) => match http::body(request).await.map(|body| suspend::set_clock(&body)) {
                Ok(Ok(())) => http::text(StatusCode::OK, Bytes::new()),
                Ok(Err(why)) => http::text(StatusCode::BAD_REQUEST, format!("{why}\n")),
                Err(answer) => answer,
            },
            (ATTACH_PATH, false) => self.door.open(request),
            ("/healthz", false) => http::text(StatusCode::OK, "ok"),
            ("/status", false) => {
                http::typed(StatusCode::OK, "application/json", status::document(&self.root))
            }
            (path, put) => match path.strip_prefix("/files/") {
                Some(path) => self.files(path.to_owned(), put.then_some(request)).await,
                None => not_found(),
            },
        }
    }

    async fn online(&self) -> Response {
        let processors = Processors::below(&self.root);
        let answer = exclusive(&self.processors, move || processors.online()).await;
        match answer {
            Some(Ok(number)) => http::text(StatusCode::OK, (u64::from(number) * 1_000).to_string()),
            Some(Err(error)) => http::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            None => gave_up(),
        }
    }

    async fn set_online(&self, body: &[u8]) -> Response {
        let Some(wanted) = milli_cpu(body) else {
            return http::text(StatusCode::BAD_REQUEST, "expected a number of milli-CPUs and nothing else\n");
        };
        let processors = Processors::below(&self.root);
        match exclusive(&self.processors, move || processors.set_online(wanted.div_ceil(1_000))).await {
            Some(Ok(())) => http::text(StatusCode::OK, Bytes::new()),
            Some(Err(error)) => http::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            None => gave_up(),
        }
    }

    async fn grow(&self) -> Response {
        let root = self.root.clone();
        match exclusive(&self.disks, move || grow::grow_all(&root)).await {
            Some(all) => {
                let list = serde_json::to_string(&all).unwrap_or_default();
                http::typed(StatusCode::OK, "application/json", list)
            }
            None => gave_up(),
        }
    }

    async fn may_suspend(&self) -> Response {
        let root = self.root.clone();
        match tokio::task::spawn_blocking(move || suspend::obstacle(&root)).await {
            Ok(None) => http::text(StatusCode::OK, Bytes::new()),
            Ok(Some(why)) => http::text(StatusCode::CONFLICT, format!("{why}\n")),
            Err(_) => gave_up(),
        }
    }

    async fn files(&self, path: String, put: Option<Request<Incoming>>) -> Response {
        let path = match files::name::decode(&path) {
            Ok(path) => self.root.join(path),
            Err(error) => return http::text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        let directory = Directory::new(path);
        let Some(request) = put else {
            return match exclusive(&self.files, move || directory.checksum()).await {
                Some(Ok(sum)) => http::text(StatusCode::OK, sum),
                Some(Err(error)) => http::text(StatusCode::BAD_REQUEST, format!("{error}\n")),
                None => gave_up(),
            };
        };
        let payload = match http::body(request).await.map(|body| Payload::parse(&body)) {
            Ok(Ok(payload)) => payload,
            Ok(Err(error)) => return http::text(StatusCode::BAD_REQUEST, format!("{error}\n")),
            Err(answer) => return answer,
        };
        match exclusive(&self.files, move || directory.update(&payload)).await {
            Some(Ok(())) => http::text(StatusCode::OK, Bytes::new()),
            Some(Err(error @ files::Error::Target { .. })) => {
                http::text(StatusCode::BAD_REQUEST, format!("{error}\n"))
            }
            Some(Err(error)) => http::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            None => gave_up(),
        }
    }
}

/// Decimal digits only, as older daemons have it: no sign, no white space.
fn milli_cpu(body: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(body).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// Runs `work` on a thread that may block, one at a time for each `turn`, to its end even if the client goes away.
async fn exclusive<T: Send + 'static>(
    turn: &Arc<Mutex<()>>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let turn = Arc::clone(turn).lock_owned().await;
    let done = tokio::task::spawn_blocking(move || {
        let result = work();
        drop(turn);
        result
    });
    done.await.ok()
}

fn not_found() -> Response {
    http::text(StatusCode::NOT_FOUND, "not found\n")
}

fn gave_up() -> Response {
    http::text(StatusCode::INTERNAL_SERVER_ERROR, "the daemon is stopping\n")
}
