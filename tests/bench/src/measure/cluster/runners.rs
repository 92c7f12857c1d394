//! Simulated runners in a process of their own: their ends of the streams and those of all else that is simulated are more files
//! than one process may open on many hosts.
//!
//! The process prints the number of open streams whenever it has changed, a line each, and reads addresses of runners that die,
//! a line each. It ends with its standard input.

use std::io::{BufRead as _, Write as _};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

use crate::fleet::{Runners, acceptor, client};
use crate::process::open_files;

/// Port of runners; not the usual one, so that a local cluster may run beside this.
pub(super) const PORT: u16 = 25_995;
/// The hidden flag that starts the process.
const FLAG: &str = "--serve-runners";
/// Between two looks at the number of streams.
const LOOK: Duration = Duration::from_millis(20);
/// More files than are needed.
pub(super) const FILES: u64 = 65_536;

/// What the process does; returns when its standard input ends.
///
/// # Errors
/// If there is no API server with an authority.
pub async fn serve(kubeconfig: &Path) -> anyhow::Result<()> {
    open_files(FILES);
    let runners = Arc::new(Runners::default());
    let acceptor = acceptor(&client(kubeconfig).await?).await?;
    let serving = Arc::clone(&runners).serve(acceptor, PORT);
    let (ended, mut end) = watch::channel(());
    let orders = Arc::clone(&runners);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if let Ok(address) = line.parse::<Ipv4Addr>() {
                orders.kill(address.into());
            }
        }
        drop(ended);
    });
    tokio::select! {
        () = serving => anyhow::bail!("the port of the runners is taken"),
        stopped = count(&runners) => stopped,
        _ = end.changed() => Ok(()),
    }
}

/// Prints the number of streams, until there is no reader.
async fn count(runners: &Runners) -> anyhow::Result<()> {
    let mut last = None;
    loop {
        let now = runners.streams();
        if last != Some(now) {
            writeln!(std::io::stdout(), "{now}")?;
            last = Some(now);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The process; killed when dropped.
#[derive(Debug)]
pub(super) struct RunnerProcess {
    streams: watch::Receiver<usize>,
    orders: ChildStdin,
    _child: Child,
}

impl RunnerProcess {
    pub(super) fn start(kubeconfig: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(FLAG).arg(kubeconfig).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the process of the runners")?;
        let orders = child.stdin.take().context("no standard input")?;
        let output = child.stdout.take().context("no standard output")?;
        let (counted, streams) = watch::channel(0);
        tokio::spawn(read(output, counted));
        Ok(Self { streams, orders, _child: child })
    }

    /// Streams that are open.
    pub(super) fn streams(&self) -> usize {
        *self.streams.borrow()
    }

    /// Ends the runners at these addresses.
    pub(super) async fn kill(&mut self, addresses: &[Ipv4Addr]) -> anyhow::Result<()> {
        let lines: String = addresses.iter().map(|address| format!("{address}\n")).collect();
        Ok(self.orders.write_all(lines.as_bytes()).await?)
    }
}

async fn read(output: ChildStdout, counted: watch::Sender<usize>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(count) = line.parse() {
            counted.send_replace(count);
        }
    }
}
