//! Migrations over links that are slow, lossy or dead, made by packet filters in a separate network.

use neonvm_test_support::need;
use std::time::Duration;

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{Compression, ExitReason, MigrationParameters, MigrationState as State};
use serde_json::json;

use crate::network::Network;
use crate::runner::{Runner, until};
use crate::world::{World, begin, fast, moves, slow, stays};

/// Every twentieth packet. A lost first packet costs a second, and three of them the patience of a connection: they pass.
const LOSSY: &str = "tcp flags & syn == 0 numgen random mod 100 < 5 drop";
/// Slower than the guest writes its memory.
const SLOW: &str = "limit rate over 4 mbytes/second burst 512 kbytes drop";
/// What QEMU has on the way for the copy of a disk takes a minute.
const CRAWLS: &str = "limit rate over 256 kbytes/second burst 64 kbytes drop";

#[tokio::test(flavor = "multi_thread")]
async fn slow_dead_and_lossy_links() {
    let network = need!(Network::that_knows(&[LOSSY, SLOW, "drop"]));
    let mut world = need!(World::new());
    world.pod.network = Some(network.clone());
    let mut source = world.source().await;
    let sockets = source.sockets();
    // Too slow for what the guest writes: it is not there in time.
    let mut target = world.target(&source, "slow").await;
    network.spoil(Some(SLOW)).unwrap();
    begin(&source, &target, "slow", MigrationParameters { completion_timeout_s: 4, ..uncompressed() }).await;
    let reason = stays(&source, State::Failed).await;
    assert_eq!(reason, "not done within 4 s");
    assert_eq!(target.exit().await.reason, ExitReason::MigrationFailed);
    network.spoil(None).unwrap();
    // Packets are dropped silently: both sides notice.
    let mut target = world.target(&source, "dead").await;
    begin(&source, &target, "dead", MigrationParameters { bandwidth: Bytes::mib(8), ..slow() }).await;
    until("memory on its way", async || {
        let status = source.status().await?.migration?;
        (status.state == State::Copying && status.progress.ram_transferred > Bytes::ZERO).then_some(())
    })
    .await;
    network.spoil(Some("drop")).unwrap();
    let reason = stays(&source, State::Failed).await;
    assert!(!reason.is_empty());
    println!("a dead link: {reason}");
    let exit = target.exit().await;
    assert_eq!(exit.reason, ExitReason::MigrationFailed);
    assert!(!exit.message.is_empty() && !target.log().contains("the guest runs here"), "{exit:?}");
    network.spoil(None).unwrap();
    source.has_closed_all_but(sockets).await;
    // Packets are lost all the time, and all of the guest arrives.
    let target = world.target(&source, "lossy").await;
    network.spoil(Some(LOSSY)).unwrap();
    moves(&mut source, &target, "lossy").await;
}

/// QEMU must survive writes that are on their way to the target when its copies are cancelled, and the copies must
/// catch up with a guest that writes faster than the link carries, and stay so.
#[tokio::test(flavor = "multi_thread")]
async fn disks_are_copied_over_a_slow_link_and_given_up() {
    let network = need!(Network::that_knows(&[SLOW, CRAWLS]));
    let mut world = need!(World::new());
    world.pod.network = Some(network.clone());
    let source = world.source().await;
    let rounds = [(SLOW, 300), (SLOW, 1100), (CRAWLS, 1900), (SLOW, 700), (CRAWLS, 1500)];
    for (round, (link, until_cancelled)) in rounds.into_iter().enumerate() {
        let id = format!("given-up-{round}");
        let mut target = world.target(&source, &id).await;
        begin(&source, &target, &id, uncompressed()).await;
        source.is(State::Mirroring).await;
        tokio::time::sleep(Duration::from_millis(until_cancelled)).await;
        network.spoil(Some(link)).unwrap();
        call_off(&source, &id).await;
        network.spoil(Some(SLOW)).unwrap();
        until("the guest", async || source.guest().await).await;
        assert_eq!(target.exit().await.reason, ExitReason::MigrationFailed);
    }
    assert!(!source.log().contains("is slowed down"));
    let target = world.target(&source, "slowed").await;
    let slows = MigrationParameters { auto_converge: true, ..uncompressed() };
    begin(&source, &target, "slowed", slows).await;
    source.is(State::Copying).await;
    assert!(source.log().contains("is slowed down"));
    let limit = source.status().await.and_then(|status| status.migration?.progress.disk_write_limit);
    // The status of the migration reports it: a quarter of what the link carries.
    assert!(limit.is_some_and(|limit| limit < Bytes::new(1300 << 10)), "{limit:?}");
    call_off(&source, "slowed").await;
    source.lives().await;
}

fn uncompressed() -> MigrationParameters {
    MigrationParameters { compression: Compression::None, auto_converge: false, ..fast() }
}

async fn call_off(source: &Runner, id: &str) {
    let order = json!({ "id": id });
    let (code, text) = source.call("POST", "/v1/migration/cancel", &order).await.unwrap();
    assert_eq!(code, 202, "{text}");
    source.is(State::Cancelled).await;
}
