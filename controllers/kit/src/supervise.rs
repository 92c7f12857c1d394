//! Supervision of what a service runs in the background: watches, servers, loops.
//!
//! None of them ends as long as the service runs. One that panics or returns leaves a service that looks alive and acts on a
//! frozen cache, so its end is the end of the service: it is logged with the name of the task, `/healthz` reports it, the leader
//! gives its lease up, and the process exits with an error. It is not restarted in place: a panic may have left what the tasks
//! share half changed, while a new process lists everything again. The parent of the process (a kubelet, the supervisor of a
//! local cluster) restarts it with backoff.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt as _;
use http::StatusCode;
use tokio::task::{JoinError, JoinSet};

use crate::http::{FullResponse, text};

/// A background task ended although the service was to continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskEnded {
    /// It panicked.
    #[error("the background task \"{task}\" panicked: {message}")]
    Panicked {
        task: &'static str,
        /// Message of the panic.
        message: String,
    },
    /// It returned.
    #[error("the background task \"{task}\" ended unexpectedly")]
    Returned { task: &'static str },
}

/// Whether all background tasks of a service run. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<OnceLock<TaskEnded>>);

impl Health {
    /// Runs a task that never ends, as part of the caller. If it panics or returns, that is logged and reported from then on.
    pub async fn supervise(&self, task: &'static str, run: impl Future<Output = ()>) -> TaskEnded {
        let ended = match catch(run).await {
            Ok(()) => TaskEnded::Returned { task },
            Err(message) => TaskEnded::Panicked { task, message },
        };
        self.report(&ended);
        ended
    }

    fn report(&self, ended: &TaskEnded) {
        tracing::error!(%ended, "the service cannot continue");
        // The first end is the cause; others may follow from it.
        let _ = self.0.set(ended.clone());
    }

    /// The first task that ended, if any.
    ///
    /// # Errors
    /// If a task has ended.
    pub fn check(&self) -> Result<(), TaskEnded> {
        self.0.get().map_or(Ok(()), |ended| Err(ended.clone()))
    }

    /// The response to `/healthz`: 200, or 500 with the task that ended.
    #[must_use]
    pub fn answer(&self) -> FullResponse {
        match self.0.get() {
            None => text(StatusCode::OK, "text/plain", "ok\n"),
            Some(ended) => text(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", format!("{ended}\n")),
        }
    }
}

/// Background tasks, each under a name. When this is dropped, all are aborted.
#[derive(Debug)]
pub struct Tasks {
    health: Health,
    running: JoinSet<TaskEnded>,
}

impl Tasks {
    /// No tasks; their ends are reported to `health`.
    #[must_use]
    pub fn new(health: &Health) -> Self {
        Self { health: health.clone(), running: JoinSet::new() }
    }

    /// Starts a task that never ends.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let health = self.health.clone();
        self.running.spawn(async move { health.supervise(name, task).await });
    }

    /// Waits until one of the tasks ends; without tasks, for ever. May be cancelled and called again.
    pub async fn ended(&mut self) -> TaskEnded {
        match self.running.join_next().await {
            Some(Ok(ended)) => ended,
            // Only a panic while a task that has ended is dropped comes here: the name is lost.
            Some(Err(error)) => {
                let ended = TaskEnded::Panicked { task: "unknown", message: panic_of(error) };
                self.health.report(&ended);
                ended
            }
            None => std::future::pending().await,
        }
    }

    /// Waits until `stop` ends or one of the tasks does; the latter is then what [`Health::check`] returns.
    pub async fn until(&mut self, stop: impl Future<Output = ()>) {
        tokio::select! {
            () = stop => {}
            _ = self.ended() => {}
        }
    }

    /// Aborts all tasks and waits until they are gone.
    pub async fn shutdown(mut self) {
        self.running.shutdown().await;
    }
}

/// Runs a future to its end.
///
/// # Errors
/// If it panics: the message.
pub async fn catch<T>(run: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(run).catch_unwind().await.map_err(|panic| message_of(&*panic))
}

/// Why a task could not be joined: the message of its panic.
#[must_use]
pub fn panic_of(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => message_of(&*panic),
        Err(error) => error.to_string(),
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt as _;

    use super::*;

    async fn healthz(health: &Health) -> (u16, String) {
        let answer = health.answer();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_reported_with_the_name_of_its_task() {
        let health = Health::default();
        let mut tasks = Tasks::new(&health);
        tasks.spawn("idle", std::future::pending());
        tasks.spawn("watch of pods", async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            panic!("planted {}", 1);
        });
        assert_eq!((health.check(), healthz(&health).await), (Ok(()), (200, "ok\n".into())));
        let ended = tasks.ended().await;
        let panicked = TaskEnded::Panicked { task: "watch of pods", message: "planted 1".into() };
        assert_eq!((&ended, health.check()), (&panicked, Err(panicked.clone())));
        assert_eq!(healthz(&health).await, (500, format!("{panicked}\n")));
        // What ends after that does not hide the cause.
        tasks.spawn("second", async {});
        assert_eq!(tasks.ended().await, TaskEnded::Returned { task: "second" });
        assert_eq!(health.check(), Err(panicked));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_returns_ends_the_wait_for_a_stop() {
        let health = Health::default();
        let mut tasks = Tasks::new(&health);
        tasks.spawn("idle", std::future::pending());
        tasks.until(tokio::time::sleep(Duration::from_secs(1))).await;
        assert_eq!(health.check(), Ok(()));
        tasks.spawn("short", async {});
        tasks.until(std::future::pending()).await;
        assert_eq!(health.check(), Err(TaskEnded::Returned { task: "short" }));
    }

    #[tokio::test]
    async fn what_runs_in_place_is_supervised_as_well() {
        let health = Health::default();
        let ended = health.supervise("queue", async { panic!("planted") }).await;
        assert_eq!(ended.to_string(), "the background task \"queue\" panicked: planted");
        assert_eq!(health.check(), Err(ended));
    }
}
