//! Long work on this machine that a person may stop: the first Ctrl-C ends it and cleans up, a second one at once.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Code, Error, Result, reason};

/// How long work may take to clean up after it was stopped.
const CLEAN_UP: Duration = Duration::from_secs(5);

/// Requests of a person, or of the system, to end.
pub(super) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    pub(super) fn listen() -> Result<Self> {
        let on = |kind| {
            signal(kind).map_err(|error| Error::new(Code::Failed, "cannot wait").cause(reason(&error)))
        };
        Ok(Self { interrupt: on(SignalKind::interrupt())?, terminate: on(SignalKind::terminate())? })
    }

    pub(super) async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// What talks to registries beside one another, for use inside [`run`].
pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    let failed = |error: std::io::Error| Error::file("start", std::path::Path::new("the runtime"), &error);
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)
}

/// Runs work on a thread of its own until it ends or the user stops it.
pub(super) fn run<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let failed = |error: std::io::Error| Error::new(Code::Failed, "cannot start").cause(reason(&error));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let ended = runtime.block_on(async {
        let mut stop = Stop::listen()?;
        let mut work = tokio::task::spawn_blocking(work);
        tokio::select! {
            ended = &mut work => return ended.unwrap_or_else(|_| Err(Error::new(Code::Failed, "internal failure"))),
            () = stop.requested() => {}
        }
        neonvm_kernel::build::interrupt();
        neonvm_builder::tool::interrupt();
        tokio::select! {
            _ = work => {}
            () = stop.requested() => {}
            () = tokio::time::sleep(CLEAN_UP) => {}
        }
        Err(Error::new(Code::Interrupted, "interrupted").hint("no partial results remain; run the command again to continue"))
    });
    // Work that does not listen must not keep the process.
    runtime.shutdown_background();
    ended
}
