//! Counts the connections for orders that are open.

use tokio::sync::watch;

#[derive(Debug, Default)]
pub(super) struct OpenConnections(watch::Sender<usize>);

impl OpenConnections {
    /// One more, as long as what is returned lives.
    pub(super) fn begin(&self) -> OpenConnection<'_> {
        self.0.send_modify(|open| *open = open.saturating_add(1));
        OpenConnection(self)
    }

    /// Waits until none is open.
    pub(super) async fn are_over(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open == 0).await;
    }
}

pub(super) struct OpenConnection<'a>(&'a OpenConnections);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|open| *open = open.saturating_sub(1));
    }
}
