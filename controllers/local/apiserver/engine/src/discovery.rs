//! Paths that are no resources: versions, discovery documents, health, OpenAPI.

mod aggregated;
mod gnostic;
mod legacy;
mod openapi;

use bytes::Bytes;
use serde_json::json;

use crate::answer::{EngineResponse, answer as made};
use crate::engine::Engine;
use crate::media;
use crate::render::to_bytes;
use crate::request::Request;
use crate::status::ApiError;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// The Kubernetes release whose behaviour this server shows.
pub const VERSION: (&str, &str, &str) = ("1", "36", "v1.36.0+neonvm");

/// Answers a path that is no resource; `None` if it means nothing.
pub(crate) fn answer(engine: &Engine, request: &Request<'_>) -> Option<Result<EngineResponse, ApiError>> {
    let path = request.path.trim_end_matches('/');
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let document = |content: &'static str, name: &str, make: &dyn Fn() -> Option<Bytes>| {
        engine.documents.get(engine.kinds.epoch, name, make).map(|body| Ok(made(200, content, body)))
    };
    match parts.as_slice() {
        [""] => Some(Ok(made(200, JSON, to_bytes(&roots(engine))))),
        ["version"] => Some(Ok(made(200, JSON, to_bytes(&version())))),
        ["healthz" | "livez" | "readyz", rest @ ..] => {
            Some(health(request, parts.first().copied().unwrap_or(""), rest))
        }
        ["api" | "apis"] => {
            let accepted = match media::negotiate(request.accept) {
                Ok(accepted) => accepted,
                Err(error) => return Some(Err(error)),
            };
            if accepted.aggregated {
                let name = format!("aggregated {path}");
                return document(AGGREGATED, &name, &|| {
                    Some(to_bytes(&aggregated::list(&engine.kinds, path == "/api")))
                });
            }
            document(JSON, path, &|| {
                Some(to_bytes(&if path == "/api" {
                    legacy::api_versions()
                } else {
                    legacy::groups(&engine.kinds)
                }))
            })
        }
        ["api", version] => {
            document(JSON, path, &|| legacy::resources(&engine.kinds, "", version).map(|v| to_bytes(&v)))
        }
        ["apis", group] => {
            document(JSON, path, &|| legacy::group(&engine.kinds, group).map(|v| to_bytes(&v)))
        }
        ["apis", group, version] => {
            document(JSON, path, &|| legacy::resources(&engine.kinds, group, version).map(|v| to_bytes(&v)))
        }
        ["openapi", "v2"] => Some(Ok(made(200, gnostic::MEDIA_TYPE, gnostic::document()))),
        ["openapi", "v3"] => document(TEXT, path, &|| Some(to_bytes(&openapi::index(engine)))),
        ["openapi", "v3", ..] => {
            let name = path.trim_start_matches("/openapi/v3/");
            let found = document(JSON, path, &|| openapi::v3(&engine.kinds, name));
            Some(Ok(found.and_then(Result::ok).unwrap_or_else(|| made(404, "", Bytes::new()))))
        }
        _ => None,
    }
}

/// Whether a discovery path is below a built-in group: what is missing there is answered as a Status.
pub(crate) fn below_builtin(engine: &Engine, path: &str) -> bool {
    let mut parts = path.trim_matches('/').split('/');
    match parts.next() {
        Some("api") => true,
        Some("apis") => {
            let group = parts.next().unwrap_or("");
            engine.kinds.all().any(|kind| kind.group == group && kind.is_builtin())
        }
        _ => false,
    }
}

fn roots(engine: &Engine) -> serde_json::Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".into(), "/apis".into(), "/apis/".into()];
    for (group, versions) in engine.kinds.groups().iter().filter(|(group, _)| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.extend(["/healthz", "/livez", "/metrics", "/openapi/v3", "/readyz", "/version"].map(String::from));
    paths.sort();
    json!({ "paths": paths })
}

fn version() -> serde_json::Value {
    let (major, minor, git) = VERSION;
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    json!({ "major": major, "minor": minor, "gitVersion": git, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "", "goVersion": "", "compiler": "rustc", "platform": format!("linux/{arch}"),
        "emulationMajor": major, "emulationMinor": minor, "minCompatibilityMajor": major,
        "minCompatibilityMinor": "35" })
}

fn health(request: &Request<'_>, root: &str, rest: &[&str]) -> Result<EngineResponse, ApiError> {
    const CHECKS: &[&str] = &["ping", "log", "store"];
    match rest {
        [] if request.query.contains("verbose") => {
            let mut text: String = CHECKS.iter().map(|check| format!("[+]{check} ok\n")).collect();
            text.push_str(&format!("{root} check passed\n"));
            Ok(made(200, TEXT, text.into()))
        }
        [] => Ok(made(200, TEXT, Bytes::from_static(b"ok"))),
        [check] if CHECKS.contains(check) => Ok(made(200, TEXT, Bytes::from_static(b"ok"))),
        _ => Ok(made(404, TEXT, Bytes::from_static(b"404 page not found\n"))),
    }
}
