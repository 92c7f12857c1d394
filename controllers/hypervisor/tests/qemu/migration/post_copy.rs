//! The guest runs on at the target before its memory is there.

use neonvm_test_support::{Missing, Need, need};
use std::path::Path;

use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::*;

/// Passes connections on until it is cut.
fn bridge(from: &Path, to: &Path) -> JoinHandle<()> {
    let _ = std::fs::remove_file(from);
    let listener = UnixListener::bind(from).unwrap();
    let to: Arc<Path> = to.into();
    tokio::spawn(async move {
        let mut open = tokio::task::JoinSet::new();
        while let Ok((mut one, _)) = listener.accept().await {
            let mut other = UnixStream::connect(&to).await.unwrap();
            open.spawn(async move { drop(copy_bidirectional(&mut one, &mut other).await) });
        }
    })
}

/// A source and a target with post-copy on, if this host allows it.
async fn pair(walk: Walk) -> Need<(Side, Side, Settings)> {
    let source = walker(walk).await?;
    let target = source.target().await;
    let theirs = target.machine.migration_abilities().await.unwrap();
    if let Some(reason) = theirs.refused.get("postcopy-ram") {
        return Err(Missing::unavailable(format!("QEMU refuses post-copy: {reason}")));
    }
    let own = source.machine.migration_abilities().await.unwrap();
    let wanted = RequestedFeatures {
        channels: 4,
        compression: Compression::Zstd,
        auto_converge: false,
        post_copy: true,
    };
    let agreed = negotiate(&wanted, &own, &theirs).unwrap();
    assert_eq!(agreed.dropped, ["multifd, zstd: not together with post-copy"]);
    let settings = Settings { capabilities: agreed.capabilities, ..slow(&[]) };
    Ok((source, target, settings))
}

/// Until the guest runs at the target.
async fn leave(source: &mut Side, target: &mut Side) {
    event(&mut source.events, "the second pass", |event| matches!(event, MachineEvent::MigrationPass(2..)))
        .await;
    source.machine.start_post_copy().await.unwrap();
    source.phase(Phase::PreSwitchover).await;
    source.machine.switch_over().await.unwrap();
    source.phase(Phase::PostCopyActive).await;
    target.phase(Phase::PostCopyActive).await;
    until("the guest's devices", async || target.machine.status().await == Ok(RunState::Paused)).await;
    assert_eq!(target.laps("before its word"), 0);
    target.machine.continue_().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_follows_the_guest() {
    let (mut source, mut target, settings) = need!(pair(RUN).await);
    begin(&source, &target, &Settings { bandwidth: Bytes::mib(100), ..settings }).await;
    leave(&mut source, &mut target).await;
    source.phase(Phase::Completed).await;
    target.phase(Phase::Completed).await;
    target.walks_on("laps at the target").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_made_again_twice() {
    let (mut source, mut target, settings) = need!(pair(RUN).await);
    let settings = Settings { bandwidth: Bytes::mib(20), ..settings };
    let (from, to) = (source.meeting.path().join("memory"), target.meeting.path().join("incoming"));
    target.machine.set_migration(&settings).await.unwrap();
    source.machine.set_migration(&settings).await.unwrap();
    target.machine.receive_memory("incoming").await.unwrap();
    let mut carrier = bridge(&from, &to);
    source.machine.send_memory("memory").await.unwrap();
    leave(&mut source, &mut target).await;
    for _ in 0..2 {
        carrier.abort();
        source.phase(Phase::PostCopyPaused).await;
        target.phase(Phase::PostCopyPaused).await;
        target.machine.receive_memory_again("incoming").await.unwrap();
        carrier = bridge(&from, &to);
        source.machine.send_memory_again("memory").await.unwrap();
        source.phase(Phase::PostCopyActive).await;
    }
    // As fast as it goes.
    source.machine.set_migration_bandwidth(Bytes::gib(4)).await.unwrap();
    source.phase(Phase::Completed).await;
    target.phase(Phase::Completed).await;
    target.walks_on("laps at the target").await;
    carrier.abort();
}
