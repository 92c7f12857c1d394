//! How a server ends without breaking a request: a caller that finds a connection closed in the middle of its request fails it,
//! and for a webhook with `failurePolicy: Fail` that is a refusal.

use std::time::Duration;

use tokio::sync::watch;

/// Time for the requests that are being answered when the last connections are closed: what the API server gives a webhook.
const FINISH: Duration = Duration::from_secs(10);

/// How long a replica behind a Service answers new connections after its stop. The kube-proxies of all nodes learn in that time
/// that it leaves, usually in less than a second.
pub const LEAVE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// Requests are answered as before, but each answer closes its connection.
    Leaving,
    /// Nothing is accepted, idle connections are closed, and requests that have begun are answered.
    Ended,
}

/// Ends the servers whose gates have a [`Ended`] of it. Dropped without [`Ending::end`], it does nothing.
#[derive(Debug)]
pub struct Ending(watch::Sender<Stage>);

impl Default for Ending {
    fn default() -> Self {
        Self(watch::Sender::new(Stage::Open))
    }
}

impl Ending {
    /// For a server's gate, see [`super::Gate::ending`].
    #[must_use]
    pub fn watched(&self) -> Ended {
        Ended(Some(self.0.subscribe()))
    }

    /// For `leave`, answers close their connections while new ones are still accepted: callers learn in that time of other
    /// replicas. Then nothing is accepted, and requests that have begun are answered, for at most ten seconds. Returns at once
    /// if no server has a part of it.
    pub async fn end(&self, leave: Duration) {
        self.0.send_replace(Stage::Leaving);
        tokio::select! {
            () = self.0.closed() => return,
            () = tokio::time::sleep(leave) => {}
        }
        self.0.send_replace(Stage::Ended);
        if tokio::time::timeout(FINISH, self.0.closed()).await.is_err() {
            tracing::warn!("requests are cut off: they were not answered within {FINISH:?}");
        }
    }
}

/// What a server watches of its [`Ending`]; by default it never ends.
#[derive(Clone, Debug, Default)]
pub struct Ended(Option<watch::Receiver<Stage>>);

impl Ended {
    /// Whether an answer must close its connection.
    pub(super) fn leaves(&self) -> bool {
        self.0.as_ref().is_some_and(|stage| *stage.borrow() >= Stage::Leaving)
    }

    /// Waits until nothing more is to be accepted.
    pub(super) async fn wait(&mut self) {
        let Some(stage) = &mut self.0 else { return std::future::pending().await };
        // Without a sender there is no end.
        if stage.wait_for(|stage| *stage == Stage::Ended).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
