//! What else would run in a cluster.

use std::time::Duration;

use kube::Client;
use tokio::task::JoinHandle;

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(20);

/// Simulates controllers and kubelets by rounds over the API server's objects, until it is dropped.
#[derive(Debug)]
pub struct Simulated(JoinHandle<()>);

impl Simulated {
    /// Calls `round` again and again.
    pub fn start<F>(client: &Client, round: impl Fn(Client) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        let client = client.clone();
        Self(tokio::spawn(async move {
            loop {
                round(client.clone()).await;
                tokio::time::sleep(PAUSE).await;
            }
        }))
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.0.abort();
    }
}
