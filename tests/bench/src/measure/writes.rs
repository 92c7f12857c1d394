//! Durable writes: each is answered after its group's commit is on disk.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};

use super::{Setup, Shares, load};
use crate::process::Process;
use crate::report::Row;

const GOAL: f64 = 5_000.0;
const TASKS: usize = 128;

pub(super) async fn run(setup: &Setup) -> anyhow::Result<Vec<Row>> {
    let directory = setup.directory()?;
    let process = Process::start(&setup.program, directory.path(), false).await?;
    load::create(&process, "write", TASKS, 1024).await?;
    let post = |api: Api<ConfigMap>, number: usize, turn: usize| async move {
        api.create(&PostParams::default(), &load::object(&format!("made-{number}-{turn}"), 1024)).await?;
        Ok(())
    };
    let patch = |api: Api<ConfigMap>, number: usize, turn: usize| async move {
        let change = serde_json::json!({ "data": { "turn": turn.to_string() } });
        api.patch(&format!("write-{number}"), &PatchParams::default(), &Patch::Merge(&change)).await?;
        Ok(())
    };
    load::for_time(&process, TASKS, setup.duration / 5, patch).await?;
    let mut rows = Vec::new();
    let before = Shares::now(&process)?;
    let (done, took) = load::for_time(&process, TASKS, setup.duration, patch).await?;
    let note = before.note(&process, done, took)?;
    rows.push(
        Row::at_least(
            "writes",
            "merge patch of a 1 KiB object, 128 at once",
            load::rate(done, took),
            "/s",
            GOAL,
        )
        .note(note),
    );
    let before = Shares::now(&process)?;
    let (done, took) = load::for_time(&process, TASKS, setup.duration, post).await?;
    let note = before.note(&process, done, took)?;
    rows.push(
        Row::at_least("writes", "create of a 1 KiB object, 128 at once", load::rate(done, took), "/s", GOAL)
            .note(note),
    );
    Ok(rows)
}
