//! Hostile clients, while a well-behaved one continues to work.
//!
//! Each gets a response as from a real server, or a closed connection, and all together use at most [`MEMORY`] in the
//! server. Its limits: bodies of 3 MiB, 10 s for a TLS handshake, 30 s for headers, 60 s for a body, 250 streams of one
//! connection, 8192 connections.

mod bodies;
mod connections;
mod streams;
mod witness;

use std::path::Path;

use anyhow::{Context as _, ensure};
use neonvm_bench::process::{Process, Program};

use crate::raw::Access;
use witness::Witness;

/// Resident bytes the server may ever have, whatever the clients here do: about 100 MiB of history and state that they
/// cause, and the buffers of their connections. An unoptimised build needs the most.
const MEMORY: u64 = 512 << 20;

/// What a scenario gets.
struct Scene<'a> {
    process: &'a Process,
    access: Access,
}

/// Runs all scenarios against one server; a line for each.
///
/// # Errors
/// The first scenario in which the server or the well-behaved client did not do as they should.
pub async fn run(program: &Program) -> anyhow::Result<Vec<String>> {
    let directory = tempfile::Builder::new().prefix("neonvm-hostile-").tempdir()?;
    let mut process = Process::start(program, directory.path(), false).await?;
    let mut lines = Vec::new();
    for name in SCENARIOS {
        lines.push(scenario(name, &process, directory.path()).await.with_context(|| (*name).to_owned())?);
        ensure!(process.is_running()?, "{name}: the server has ended");
    }
    Ok(lines)
}

const SCENARIOS: &[&str] = &[
    "malformed bodies",
    "large bodies",
    "half-open handshakes",
    "slow clients",
    "rapid reset of HTTP/2 streams",
    "more HTTP/2 streams than allowed",
    "watchers that never read",
    "watchers that never read much state",
];

async fn scenario(name: &str, process: &Process, directory: &Path) -> anyhow::Result<String> {
    let scene = Scene { process, access: Access::read(directory)? };
    let witness = Witness::start(process).await?;
    match name {
        "malformed bodies" => bodies::malformed(&scene).await?,
        "large bodies" => bodies::large(&scene).await?,
        "half-open handshakes" => connections::half_open(&scene).await?,
        "slow clients" => connections::slow(&scene, &witness).await?,
        "rapid reset of HTTP/2 streams" => streams::rapid_reset(&scene).await?,
        "more HTTP/2 streams than allowed" => streams::too_many(&scene).await?,
        "watchers that never read" => connections::deaf_watchers(&scene).await?,
        _ => connections::deaf_to_state(&scene).await?,
    }
    // Whatever is going on, work of others gets done after it as well.
    let turns = witness.finish().await.context("the well-behaved client")?;
    let peak = process.peak_memory()?;
    ensure!(peak <= MEMORY, "the server needed {} MiB", peak >> 20);
    Ok(format!("{name}: well-behaved client did {turns} rounds, server's peak so far {} MiB", peak >> 20))
}
