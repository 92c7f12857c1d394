//! Pods, as far as a scrape sees them: one listener for all addresses, one text for all answers, and threads of their own, so
//! that their processor time can be separated from that of all else here.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::process::cpu_of_threads;

/// What objects scale by.
pub(super) const METRIC: &str = "requests_in_flight";
/// Of each pod: exactly its target, so that nothing changes.
const VALUE: u32 = 10;
/// Series around it; what a small service exposes.
const OTHERS: usize = 40;
/// Connections that wait to be accepted.
const WAITING: u32 = 16_384;
/// Name of the threads.
const THREADS: &str = "simulated-pods";
/// After an accept that failed, for lack of files.
const PAUSE: Duration = Duration::from_millis(5);

/// What is counted.
#[derive(Debug, Default)]
struct Counts {
    connections: AtomicUsize,
    answers: AtomicUsize,
}

/// All of them; they are gone when dropped.
pub(super) struct Pods {
    /// Taken when dropped.
    runtime: Option<Runtime>,
    counts: Arc<Counts>,
}

impl Drop for Pods {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Pods {
    /// At this port of all addresses.
    pub(super) fn start(port: u16) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().thread_name(THREADS).enable_all().build()?;
        let counts = Arc::new(Counts::default());
        let listener = {
            let _inside = runtime.enter();
            listen(port)?
        };
        runtime.spawn(serve(listener, Arc::clone(&counts)));
        Ok(Self { runtime: Some(runtime), counts })
    }

    /// Connections accepted.
    pub(super) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// Answers sent.
    pub(super) fn answers(&self) -> usize {
        self.counts.answers.load(Ordering::Relaxed)
    }

    /// Processor time that they took.
    #[expect(clippy::unused_self, reason = "there are such threads only while it lives")]
    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of_threads(THREADS)
    }
}

fn listen(port: u16) -> anyhow::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from(([0, 0, 0, 0], port)))?;
    Ok(socket.listen(WAITING)?)
}

/// Answers for ever.
async fn serve(listener: TcpListener, counts: Arc<Counts>) {
    let answer: Arc<[u8]> = answer().into_bytes().into();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        counts.connections.fetch_add(1, Ordering::Relaxed);
        let (answer, counts) = (Arc::clone(&answer), Arc::clone(&counts));
        tokio::spawn(async move {
            // An autoscaler that was killed needs no answer.
            one(stream, &answer, &counts).await.ok();
        });
    }
}

/// A connection: an answer to every question.
async fn one(mut stream: TcpStream, answer: &[u8], counts: &Counts) -> std::io::Result<()> {
    let mut question = [0_u8; 1024];
    let mut length = 0;
    loop {
        let count = stream.read(question.get_mut(length..).unwrap_or_default()).await?;
        if count == 0 {
            return Ok(());
        }
        length += count;
        if question.get(..length).is_some_and(|all| all.ends_with(b"\r\n\r\n")) {
            stream.write_all(answer).await?;
            counts.answers.fetch_add(1, Ordering::Relaxed);
            length = 0;
        }
    }
}

fn answer() -> String {
    let mut text = String::new();
    for number in 0..OTHERS {
        let name = format!("http_handler_{number}_seconds_total");
        let _ = writeln!(text, "# HELP {name} Time spent in a handler.\n# TYPE {name} counter");
        let _ = writeln!(text, "{name}{{method=\"GET\",code=\"200\"}} {}.25", number * 17);
    }
    let _ = writeln!(text, "# TYPE {METRIC} gauge\n{METRIC} {VALUE}");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\n";
    format!("{head}content-length: {}\r\n\r\n{text}", text.len())
}
