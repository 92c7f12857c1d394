//! The requests about CPUs, file systems and their freezes, files and status.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use neonvm_types::guest::{
    ATTACH_PATH, CLOCK_PATH, FREEZE_PATH, FreezeRequest, GROW_PATH, SUSPEND_PATH, THAW_PATH,
};
use tokio::sync::Mutex;

use super::{attach, status, suspend};
use crate::cpu::Processors;
use crate::files::payload::Payload;
use crate::files::{self, Directory};
use crate::http::{self, Response};
use crate::mount::freeze::{Freezer, Refused};
use crate::mount::grow;

/// What requests work on. Changes of CPUs, of file systems and of files each wait for one another.
#[derive(Clone, Debug)]
pub(super) struct Api {
    root: PathBuf,
    processors: Arc<Mutex<()>>,
    files: Arc<Mutex<()>>,
    disks: Arc<Mutex<()>>,
    freezer: Freezer,
    door: attach::Door,
}

impl Api {
    pub(super) fn new(root: &Path, door: attach::Door) -> Self {
        let (processors, files, disks) = Default::default();
        let freezer = Freezer::new(root);
        Self { root: root.to_owned(), processors, files, disks, freezer, door }
    }

    pub(super) async fn handle(self, request: Request<Incoming>) -> Response {
        let path = request.uri().path().to_owned();
        if request.method() == Method::POST {
            return match path.as_str() {
                GROW_PATH => self.grow().await,
                FREEZE_PATH => match http::body(request).await {
                    Ok(body) => self.freeze(&body).await,
                    Err(answer) => answer,
                },
                THAW_PATH => self.thaw().await,
                SUSPEND_PATH => self.may_suspend().await,
                _ => not_found(),
            };
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
            (FREEZE_PATH, false) => json(StatusCode::OK, &self.freezer.state()),
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

    /// Not while a freeze is in force: that would wait for its end, and the thaw must not wait.
    async fn grow(&self) -> Response {
        let (root, freezer) = (self.root.clone(), self.freezer.clone());
        let grow = move || (!freezer.is_active()).then(|| grow::grow_all(&root));
        match exclusive(&self.disks, grow).await {
            Some(Some(all)) => json(StatusCode::OK, &all),
            Some(None) => frozen(),
            None => gave_up(),
        }
    }

    async fn freeze(&self, body: &[u8]) -> Response {
        let request: FreezeRequest = match serde_json::from_slice(body) {
            Ok(request) => request,
            Err(error) => {
                return http::text(StatusCode::BAD_REQUEST, format!("cannot read the request: {error}\n"));
            }
        };
        let (root, freezer) = (self.root.clone(), self.freezer.clone());
        match exclusive(&self.disks, move || freezer.freeze(&root, &request)).await {
            Some(Ok(frozen)) => json(StatusCode::OK, &frozen),
            Some(Err(Refused::Wrong(why))) => http::text(StatusCode::BAD_REQUEST, format!("{why}\n")),
            Some(Err(Refused::Busy(why))) => http::text(StatusCode::CONFLICT, format!("{why}\n")),
            Some(Err(Refused::Failed(why))) => {
                http::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n"))
            }
            None => gave_up(),
        }
    }

    /// Waits for nothing that may wait for it.
    async fn thaw(&self) -> Response {
        let freezer = self.freezer.clone();
        match tokio::task::spawn_blocking(move || freezer.thaw()).await {
            Ok(thawed) => json(StatusCode::OK, &thawed),
            Err(_) => gave_up(),
        }
    }

    async fn may_suspend(&self) -> Response {
        if self.freezer.is_active() {
            return http::text(StatusCode::CONFLICT, "its file systems are frozen\n");
        }
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
        if put.is_some() && self.freezer.is_active() {
            return frozen();
        }
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

fn json(status: StatusCode, document: &impl serde::Serialize) -> Response {
    http::typed(status, "application/json", serde_json::to_string(document).unwrap_or_default())
}

fn frozen() -> Response {
    http::text(StatusCode::SERVICE_UNAVAILABLE, "file systems are frozen; try again after the thaw\n")
}

fn not_found() -> Response {
    http::text(StatusCode::NOT_FOUND, "not found\n")
}

fn gave_up() -> Response {
    http::text(StatusCode::INTERNAL_SERVER_ERROR, "the daemon is stopping\n")
}
