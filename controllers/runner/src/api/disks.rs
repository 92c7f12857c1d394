//! Disks in the guest: how full they are; freezes.

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use neonvm_types::guest::FreezeRequest;
use neonvm_types::runner_protocol::SuspendState;
use serde::Serialize;

use super::answer::{Body, json, text};
use super::{Running, Shared, not_yet, read, suspension, wake};
use crate::guest::daemon::Error;

/// The VM, if its guest can answer.
async fn answering(shared: &Shared, what: &str) -> Result<Running, Response<Body>> {
    let running = shared.running.borrow().clone().ok_or_else(not_yet)?;
    if shared.status.borrow().pause.applied {
        let why = format!("the VM is paused: its guest cannot {what}; resume it: neonctl vm resume");
        return Err(text(StatusCode::CONFLICT, &why));
    }
    Ok(running)
}

fn answered(answer: Result<impl Serialize, Error>) -> Response<Body> {
    match answer {
        Ok(answer) => json(StatusCode::OK, &answer),
        Err(Error::Status(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _)) => {
            let why =
                "the guest program of this VM is of a version that freezes nothing: build its image again";
            text(StatusCode::NOT_IMPLEMENTED, why)
        }
        Err(Error::Status(status @ (StatusCode::BAD_REQUEST | StatusCode::CONFLICT), why)) => {
            text(status, &why)
        }
        Err(Error::Status(_, why)) => text(StatusCode::BAD_GATEWAY, &format!("the guest: {why}")),
        Err(error) => text(StatusCode::BAD_GATEWAY, &format!("the guest does not answer: {error}")),
    }
}

pub(super) async fn report(shared: &Shared) -> Response<Body> {
    // A suspended guest is not asked: that would wake it.
    if suspension(shared) != SuspendState::Awake {
        let why = "the VM is suspended: how full its disks are is known when it is awake: neonctl vm resume";
        return text(StatusCode::CONFLICT, why);
    }
    match answering(shared, "report how full its disks are").await {
        Ok(running) => answered(running.disks.report().await),
        Err(response) => response,
    }
}

pub(super) async fn freeze(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    // What a suspended guest has not written is in its memory.
    if let Err(response) = wake(shared).await {
        return response;
    }
    let running = match answering(shared, "freeze its file systems").await {
        Ok(running) => running,
        Err(response) => return response,
    };
    let body = match read(shared, request).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let request = match neonvm_types::objects::from_slice::<FreezeRequest>(&body) {
        Ok(request) => request,
        Err(error) => return text(StatusCode::BAD_REQUEST, &format!("cannot read the request: {error}")),
    };
    if let Err(why) = request.bound() {
        return text(StatusCode::BAD_REQUEST, &why);
    }
    tracing::info!(?request, "file systems are frozen");
    answered(running.disks.freeze(request).await)
}

pub(super) async fn thaw(shared: &Shared) -> Response<Body> {
    match answering(shared, "thaw its file systems").await {
        Ok(running) => {
            let thawed = running.disks.thaw().await;
            tracing::info!(?thawed, "a freeze was ended");
            answered(thawed)
        }
        Err(response) => response,
    }
}
