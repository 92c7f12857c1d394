//! Moves over links that are slow, lossy or dead, made by packet filters in a network of the test's own.

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{Compression, ExitReason, MigrationParameters, MigrationState as State};

use crate::network::Network;
use crate::runner::until;
use crate::world::{World, begin, fast, moves, slow, stays};

/// Every twentieth packet. A lost first packet costs a second, and three of them the patience of a connection: they pass.
const LOSSY: &str = "tcp flags & syn == 0 numgen random mod 100 < 5 drop";
/// Slower than the guest writes its memory.
const SLOW: &str = "limit rate over 4 mbytes/second burst 512 kbytes drop";

#[tokio::test(flavor = "multi_thread")]
async fn slow_dead_and_lossy_links() {
    let network = match Network::new().and_then(|network| {
        // What the kernel lacks is found out before anything is started.
        for statement in [LOSSY, SLOW, "drop"] {
            network.spoil(Some(statement))?;
        }
        network.spoil(None).map(|()| network)
    }) {
        Ok(network) => network,
        Err(reason) => return println!("SKIP links: {reason}"),
    };
    let Some(mut world) = World::new() else { return };
    world.pod.network = Some(network.clone());
    let mut source = world.source().await;
    let sockets = source.sockets();
    // Too slow for what the guest writes: it is not there in time.
    let mut target = world.target(&source, "slow").await;
    network.spoil(Some(SLOW)).unwrap();
    let limited = MigrationParameters { compression: Compression::None, completion_timeout_s: 4, ..fast() };
    begin(&source, &target, "slow", MigrationParameters { auto_converge: false, ..limited }).await;
    let reason = stays(&source, State::Failed).await;
    assert_eq!(reason, "not done within 4 s");
    assert_eq!(target.exit().await.reason, ExitReason::MigrationFailed);
    network.spoil(None).unwrap();
    // Nothing arrives any more, and nobody says so: both notice.
    let mut target = world.target(&source, "dead").await;
    begin(&source, &target, "dead", MigrationParameters { bandwidth: Bytes::mib(8), ..slow() }).await;
    until("memory on its way", async || {
        let told = source.status().await?.migration?;
        (told.state == State::Copying && told.progress.ram_transferred > Bytes::ZERO).then_some(())
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
