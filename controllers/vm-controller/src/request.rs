//! Requests to the API server: who writes, deadlines, and what errors mean.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Error;
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions};

/// Field manager of everything we write.
pub(crate) const MANAGER: &str = "neonvm-vm-controller";

/// Longest wait for one answer of the API server.
pub(crate) const REQUEST: Duration = Duration::from_secs(20);

/// Whether the error means that there is no such object.
pub(crate) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

/// Whether the error means that the object exists already, or has another version.
pub(crate) fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 409)
}

pub(crate) fn patching() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// Deletes this very object, not another one of its name.
pub(crate) fn only(metadata: &ObjectMeta) -> DeleteParams {
    let only = Preconditions { uid: metadata.uid.clone(), resource_version: None };
    DeleteParams { preconditions: Some(only), ..DeleteParams::default() }
}

/// A request with the deadline of all requests.
pub(crate) async fn within<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(REQUEST, request).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::Service(Box::new(std::io::Error::from(std::io::ErrorKind::TimedOut)))),
    }
}

pub(crate) fn posting() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}
