//! One run of a service.

use std::io;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::task::JoinHandle;

use super::{Service, logs, process};

/// A running service.
pub(super) struct Child {
    child: tokio::process::Child,
    id: u32,
    log: JoinHandle<()>,
}

/// A child is killed when the thread that started it ends, so that one thread starts them all and never ends.
struct Starter {
    requests: mpsc::Sender<Request>,
}

type Request = (Command, tokio::runtime::Handle, mpsc::SyncSender<io::Result<tokio::process::Child>>);

fn starter() -> io::Result<&'static Starter> {
    static STARTER: std::sync::OnceLock<Option<Starter>> = std::sync::OnceLock::new();
    let made = STARTER.get_or_init(|| {
        let (requests, work) = mpsc::channel::<Request>();
        let serve = move || {
            while let Ok((mut command, runtime, answer)) = work.recv() {
                let _inside = runtime.enter();
                let _ = answer.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("starter".into()).spawn(serve).ok()?;
        Some(Starter { requests })
    });
    made.as_ref().ok_or_else(|| io::Error::other("no thread to start processes from"))
}

fn spawn(command: Command) -> io::Result<tokio::process::Child> {
    let gone = |_| io::Error::other("the thread that starts processes is gone");
    let (answer, result) = mpsc::sync_channel(1);
    starter()?.requests.send((command, tokio::runtime::Handle::current(), answer)).map_err(|_| gone(()))?;
    result.recv().map_err(|_| gone(()))?
}

impl Child {
    /// Starts a service. Its output goes through a pipe, so that the log can be rotated under it.
    pub(super) fn start(service: &Service) -> io::Result<Self> {
        let log = logs::Log::open(&service.log)?;
        let (reader, writer) = io::pipe()?;
        let mut argv = service.argv.iter();
        let mut command = Command::new(argv.next().map_or("", String::as_str));
        command.args(argv).stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).kill_on_drop(true);
        process::dies_with_parent(&mut command);
        let child = spawn(command)?;
        let id = child.id().unwrap_or_default();
        let reader = tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into())?;
        Ok(Self { child, id, log: tokio::spawn(log.copy(reader)) })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Waits for its end; how it ended.
    pub(super) async fn wait(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Requests it to end, and kills it after the grace time.
    pub(super) async fn end(mut self, grace: Duration) {
        let pid = i32::try_from(self.id).ok().and_then(Pid::from_raw);
        // Not reaped yet, so that the number is still the child's.
        if let Some(pid) = pid
            && self.child.id().is_some()
            && let Err(error) = kill_process(pid, Signal::TERM)
        {
            tracing::debug!(%error, "a child is gone already");
        }
        if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
            tracing::warn!(pid = self.id, "did not end in time and is killed");
            if let Err(error) = self.child.kill().await {
                tracing::error!(%error, pid = self.id, "cannot be killed");
            }
        }
        // What the service left in the pipe. Processes it left behind may hold the pipe open.
        let _ = tokio::time::timeout(Duration::from_millis(200), &mut self.log).await;
        self.log.abort();
    }
}
