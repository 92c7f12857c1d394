//! `simulated-pods pod`: one simulated pod. Its listener is standard input, as with inetd.
//!
//! `GET /` is work, `/metrics` reports it in the text format of Prometheus, `/ready` returns whether it is ready.
//! `PUT /metrics/WORD` changes how the metrics answer, and `/count` returns how often they were read, however they answer.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use neonvm_kit::http::{FullRequest, FullResponse, serve_openly, text};
use neonvm_kit::metrics::{CONTENT_TYPE, Histogram, Kind, Registry, double};
use tokio::sync::{Semaphore, watch};

/// Requests that wait; one more is refused.
const MOST_WAITING: usize = 1000;
/// The longest that requests may take to finish after SIGTERM.
const FINISHING: Duration = Duration::from_secs(5);
/// How long slow metrics delay their answer.
const SLOW: Duration = Duration::from_secs(60);
/// Upper ends of the buckets of latencies, in seconds.
const BUCKETS: [f64; 8] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Flags: the arguments of the container.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Time that one request takes when it is worked on, in milliseconds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    work_ms: u32,
    /// Requests worked on at the same time; others wait
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrency: u16,
    /// Time until it is ready, in milliseconds
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    ready_after_ms: u32,
    /// The process that started this one; they end together
    #[arg(long)]
    parent: i32,
}

/// How metrics answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As they should.
    #[default]
    Answer,
    /// With an error.
    Down,
    /// After a minute.
    Slow,
    /// With what is no metric.
    Garbage,
}

impl Manner {
    /// All of them, with their words.
    pub(crate) const ALL: [(&str, Self); 4] =
        [("answer", Self::Answer), ("down", Self::Down), ("slow", Self::Slow), ("garbage", Self::Garbage)];

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(own, manner)| (own == word).then_some(manner))
    }

    pub(crate) fn word(self) -> &'static str {
        Self::ALL.into_iter().find_map(|(word, manner)| (manner == self).then_some(word)).unwrap_or_default()
    }
}

/// Runs until SIGTERM or SIGINT, or until the parent is gone.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let parent = rustix::process::getppid().map(rustix::process::Pid::as_raw_nonzero);
    ensure!(parent.is_some_and(|parent| parent.get() == args.parent), "process {} is gone", args.parent);
    let listener = std::io::stdin().as_fd().try_clone_to_owned().context("no listener")?;
    let listener = std::net::TcpListener::from(listener);
    listener.set_nonblocking(true).context("standard input is no listener")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let pod = Arc::new(Pod::new(args));
    runtime.block_on(async {
        let stop = neonvm_kit::termination::requested()?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let finished = async {
            stop.await;
            let mut open = pod.open.subscribe();
            let _ = tokio::time::timeout(FINISHING, open.wait_for(|open| *open == 0)).await;
        };
        let handler = {
            let pod = Arc::clone(&pod);
            move |request: FullRequest| Arc::clone(&pod).answer(request)
        };
        tokio::select! {
            () = serve_openly(listener, handler) => {}
            () = finished => {}
        }
        Ok(())
    })
}

#[derive(Debug)]
struct Pod {
    work: Duration,
    ready_at: Instant,
    places: Semaphore,
    /// Requests that wait or are worked on.
    open: watch::Sender<usize>,
    waiting: watch::Sender<usize>,
    registry: Registry,
    latencies: Histogram,
    /// Index in [`Manner::ALL`].
    manner: AtomicU8,
    scrapes: AtomicU64,
}

/// One more, while it lives: a client may go away at any time.
struct More<'a>(&'a watch::Sender<usize>);

impl<'a> More<'a> {
    fn from_count(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count = count.saturating_add(1));
        Self(count)
    }
}

impl Drop for More<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

fn plain(code: u16, body: impl Into<bytes::Bytes>) -> FullResponse {
    let status = http::StatusCode::from_u16(code).unwrap_or_default();
    text(status, CONTENT_TYPE, body)
}

impl Pod {
    fn new(args: &Args) -> Self {
        let registry = Registry::new();
        let help = "Time of requests that are done.";
        Self {
            work: Duration::from_millis(args.work_ms.into()),
            ready_at: Instant::now() + Duration::from_millis(args.ready_after_ms.into()),
            places: Semaphore::new(args.concurrency.into()),
            open: watch::Sender::new(0),
            waiting: watch::Sender::new(0),
            latencies: registry.histogram("request_duration_seconds", help, &BUCKETS),
            registry,
            manner: AtomicU8::new(0),
            scrapes: AtomicU64::new(0),
        }
    }

    async fn answer(self: Arc<Self>, request: FullRequest) -> FullResponse {
        match (request.method().as_str(), request.uri().path()) {
            ("GET", "/") => self.work().await,
            ("GET", "/ready") if Instant::now() >= self.ready_at => plain(200, "ready\n"),
            ("GET", "/ready") => plain(503, "starting\n"),
            ("GET", "/count") => plain(200, format!("{}\n", self.scrapes.load(Ordering::Relaxed))),
            ("GET", "/metrics") => self.metrics().await,
            ("PUT", path) => {
                let word = path.strip_prefix("/metrics/").unwrap_or_default();
                let Some(index) = Manner::ALL.iter().position(|(own, _)| *own == word) else {
                    return plain(404, "no such manner\n");
                };
                self.manner.store(u8::try_from(index).unwrap_or_default(), Ordering::Relaxed);
                plain(200, "")
            }
            _ => plain(404, "nothing is here\n"),
        }
    }

    async fn work(&self) -> FullResponse {
        let begun = Instant::now();
        if *self.waiting.borrow() >= MOST_WAITING {
            return plain(503, "too many wait\n");
        }
        let _open = More::from_count(&self.open);
        let waiting = More::from_count(&self.waiting);
        let Ok(_place) = self.places.acquire().await else { return plain(503, "") };
        drop(waiting);
        tokio::time::sleep(self.work).await;
        self.latencies.observe(begun.elapsed());
        plain(200, "done\n")
    }

    async fn metrics(&self) -> FullResponse {
        self.scrapes.fetch_add(1, Ordering::Relaxed);
        let index = usize::from(self.manner.load(Ordering::Relaxed));
        match Manner::ALL.get(index).map(|(_, manner)| *manner).unwrap_or_default() {
            Manner::Answer => plain(200, self.exposition()),
            Manner::Down => plain(503, "no metrics today\n"),
            Manner::Garbage => plain(200, "<html>requests_in_flight{ = many\n"),
            Manner::Slow => {
                tokio::time::sleep(SLOW).await;
                plain(200, self.exposition())
            }
        }
    }

    /// The page of metrics.
    fn exposition(&self) -> String {
        let mut page = self.registry.page();
        for (name, kind, help, value) in [
            (
                "requests_in_flight",
                Kind::Gauge,
                "Requests that wait or are worked on.",
                *self.open.borrow() as u64,
            ),
            ("queue_length", Kind::Gauge, "Requests that wait.", *self.waiting.borrow() as u64),
            ("requests_total", Kind::Counter, "Requests that are done.", self.latencies.count()),
        ] {
            page.single(name, kind, help, double(value));
        }
        page.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_while_they_wait_and_when_they_are_done() {
        let pod = Pod::new(&Args { work_ms: 1, concurrency: 1, ready_after_ms: 60_000, parent: 1 });
        let (one, two) = (pod.work(), pod.work());
        tokio::pin!(one, two);
        for _ in 0..2 {
            tokio::select! { biased; _ = &mut one => {} _ = &mut two => {} () = std::future::ready(()) => {} }
        }
        let busy = pod.exposition();
        assert!(busy.contains("requests_in_flight 2\n") && busy.contains("queue_length 1\n"), "{busy}");
        let (one, two) = tokio::join!(one, two);
        assert_eq!((one.status().as_u16(), two.status().as_u16()), (200, 200));
        let calm = pod.exposition();
        for line in ["requests_in_flight 0", "queue_length 0", "requests_total 2", "duration_seconds_count 2"]
        {
            assert!(calm.contains(line), "{line}: {calm}");
        }
        assert!(calm.contains("_bucket{le=\"+Inf\"} 2"), "{calm}");
        let families = [
            "request_duration_seconds histogram",
            "requests_in_flight gauge",
            "queue_length gauge",
            "requests_total counter",
        ];
        assert_eq!(neonvm_test_cluster::metrics::families(&calm), families);
    }

    #[test]
    fn every_manner_has_a_word() {
        for (word, manner) in Manner::ALL {
            assert_eq!((Manner::from_word(word), manner.word()), (Some(manner), word));
        }
    }
}
