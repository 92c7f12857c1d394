//! GET of single objects.

use super::{Setup, Shares, load};
use crate::process::Process;
use crate::report::Row;

const GOAL: f64 = 20_000.0;
const OBJECTS: usize = 100;
const TASKS: usize = 32;

pub(super) async fn run(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    let directory = setup.directory()?;
    let process = Process::start(&setup.program, directory.path(), false).await?;
    load::create(&process, "read", OBJECTS, 1024).await?;
    let get = |api: kube::Api<_>, number: usize, turn: usize| async move {
        api.get(&format!("read-{}", (number * 7 + turn) % OBJECTS)).await?;
        Ok(())
    };
    load::for_time(&process, TASKS, setup.duration / 5, get).await?;
    let before = Shares::now(&process)?;
    let (done, took) = load::for_time(&process, TASKS, setup.duration, get).await?;
    let note = before.note(&process, done, took)?;
    Ok(vec![
        Row::at_least("reads", "GET of a 1 KiB object, 32 connections", load::rate(done, took), "/s", GOAL)
            .note(note),
    ])
}
