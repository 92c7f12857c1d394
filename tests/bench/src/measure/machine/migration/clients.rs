//! Connections that send a message now and then and wait for it to come back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::LIMIT;

/// Between two words of a connection. Shorter, and an emulated guest has no time left to make up for a pause: its clients would
/// wait for it, not for the network.
const PAUSE: Duration = Duration::from_secs(4);
/// Connections that are made at the same time.
const AT_ONCE: usize = 20;

pub(super) struct Clients {
    tasks: JoinSet<anyhow::Result<()>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    answers: AtomicU64,
    /// Microseconds.
    longest: AtomicU64,
}

pub(super) struct Report {
    pub(super) lost: usize,
    pub(super) answers: u64,
    pub(super) longest: Duration,
}

impl Clients {
    pub(super) async fn open(address: SocketAddr, count: usize) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut this = Self { tasks: JoinSet::new(), shared };
        for first in (0..count).step_by(AT_ONCE) {
            let mut connecting = JoinSet::new();
            for _ in first..count.min(first + AT_ONCE) {
                connecting.spawn(connect(address));
            }
            while let Some(stream) = connecting.join_next().await {
                let (stream, shared) = (stream??, Arc::clone(&this.shared));
                let number = this.tasks.len();
                this.tasks.spawn(talk(stream, number, count, shared));
            }
        }
        Ok(this)
    }

    fn longest(&self) -> Duration {
        Duration::from_micros(self.shared.longest.load(Ordering::Relaxed))
    }

    /// The same, and counting starts again.
    pub(super) fn longest_so_far(&self) -> Duration {
        Duration::from_micros(self.shared.longest.swap(0, Ordering::Relaxed))
    }

    /// Lets each send its last message.
    pub(super) async fn close(mut self) -> Report {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut lost = 0;
        while let Some(ended) = self.tasks.join_next().await {
            lost += usize::from(!matches!(ended, Ok(Ok(()))));
        }
        Report { lost, answers: self.shared.answers.load(Ordering::Relaxed), longest: self.longest() }
    }
}

/// The guest's server may not listen yet.
async fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let until = Instant::now() + LIMIT;
    loop {
        match tokio::time::timeout(Duration::from_secs(3), TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            _ if Instant::now() < until => tokio::time::sleep(Duration::from_millis(50)).await,
            failed => return failed.context("no answer")?.with_context(|| format!("{address}")),
        }
    }
}

async fn talk(mut stream: TcpStream, number: usize, of: usize, shared: Arc<Shared>) -> anyhow::Result<()> {
    // Spread over the second.
    let share = number as f64 / of.max(1) as f64;
    tokio::time::sleep(PAUSE.mul_f64(share)).await;
    let mut word = [0_u8; 16];
    for turn in 0_u64.. {
        let sent = [turn.to_le_bytes(), (number as u64).to_le_bytes()].concat();
        let begun = Instant::now();
        stream.write_all(&sent).await?;
        tokio::time::timeout(LIMIT, stream.read_exact(&mut word)).await.context("silence")??;
        anyhow::ensure!(sent == word, "something else came back");
        let took = begun.elapsed();
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        shared.longest.fetch_max(micros, Ordering::Relaxed);
        shared.answers.fetch_add(1, Ordering::Relaxed);
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
