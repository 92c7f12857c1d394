//! Queries that begin when a load has them begin, however long earlier ones take.

use std::io::BufReader;
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};

use super::database::{Client, Database, Work};
use crate::report::quantile;

/// Sessions that take turns.
const SESSIONS: usize = 4;

/// A load under way.
pub(super) struct Varying {
    threads: Vec<JoinHandle<anyhow::Result<Vec<f64>>>>,
}

impl Varying {
    /// Starts it: a query at each of these moments from `begun` on.
    pub(super) fn start(
        database: &Database,
        work: Work,
        arrivals: &[Duration],
        begun: Instant,
    ) -> anyhow::Result<Self> {
        let mut threads = Vec::new();
        for first in 0..SESSIONS {
            let own: Vec<Duration> = arrivals.iter().skip(first).step_by(SESSIONS).copied().collect();
            let mut command = database.client("psql", &["-U", "postgres", "-qAt"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().context("psql")?;
            let input = child.stdin.take().context("psql has no input")?;
            let output = child.stdout.take().context("psql has no output")?;
            let (client, query) = (Client::new(child), work.query());
            threads.push(std::thread::spawn(move || {
                let _client = client;
                play(&own, begun, &query, input, BufReader::new(output))
            }));
        }
        Ok(Self { threads })
    }

    /// Median and 99th percentile of the time from when a query was to begin until its result, in milliseconds.
    pub(super) fn latencies(self) -> anyhow::Result<(f64, f64)> {
        let mut all = Vec::new();
        for thread in self.threads {
            all.extend(thread.join().map_err(|_| anyhow!("a session panicked"))??);
        }
        Ok((quantile(&mut all, 0.5), quantile(&mut all, 0.99)))
    }
}

fn play(
    arrivals: &[Duration],
    begun: Instant,
    query: &str,
    mut input: impl std::io::Write,
    mut output: impl std::io::BufRead,
) -> anyhow::Result<Vec<f64>> {
    let (mut times, mut line) = (Vec::new(), String::new());
    for at in arrivals {
        let due = begun + *at;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        writeln!(input, "{query}")?;
        input.flush()?;
        line.clear();
        anyhow::ensure!(output.read_line(&mut line)? > 0, "the session ended");
        times.push(due.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}
