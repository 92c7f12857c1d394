//! Threads that carry bytes during a migration, beside the loop of the runner: the loop stays responsive while
//! gigabytes pass.

use std::sync::Arc;

use tokio::runtime::{Builder, Handle, Runtime};

/// More do not help two QEMUs.
const THREADS: usize = 4;

/// The threads; they end when the last copy is dropped, and with them all that they carry.
#[derive(Clone, Debug)]
pub(crate) struct Carrier(Arc<Threads>);

#[derive(Debug)]
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // May be called from a task of another runtime, which must not wait.
            runtime.shutdown_background();
        }
    }
}

impl Carrier {
    pub(crate) fn start() -> std::io::Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).thread_name("carrier").enable_all().build()?;
        Ok(Self(Arc::new(Threads(Some(runtime)))))
    }

    /// Where tasks are started.
    pub(crate) fn handle(&self) -> Option<Handle> {
        self.0.0.as_ref().map(|runtime| runtime.handle().clone())
    }
}

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Guarded(tokio::task::JoinHandle<()>);

impl From<tokio::task::JoinHandle<()>> for Guarded {
    fn from(task: tokio::task::JoinHandle<()>) -> Self {
        Self(task)
    }
}

impl Guarded {
    /// Ends the task, and waits until it does nothing any more.
    pub(crate) async fn end(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.abort();
    }
}
