//! Keeps logs from growing without end, where their writer does not: the runner renames its log by itself, before it is
//! too long. Other writers, such as programs that it starts, hold the log open for appending, so that it cannot be
//! renamed while they use it: the content is copied aside and cut. What is written in the moment between is lost.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use neonvm_kit::private;

use crate::files;
use crate::node::Node;
use crate::pod::directory::aside;

/// Size at which a log is cut, in bytes: beyond what its own writer keeps it at.
const LIMIT: u64 = 12 << 20;
/// How often sizes are checked: with the heartbeat.
const PERIOD: Duration = Duration::from_secs(10);

fn cut(path: &Path) -> io::Result<()> {
    let mut log = files::open_foreign(path, File::options().read(true).write(true))?;
    // The writer of the log may have put a link there.
    io::copy(&mut log, &mut private::create(&aside(path))?)?;
    log.set_len(0)
}

/// Cuts logs that grow too long, until it is dropped.
pub(crate) async fn keep_short(node: &Arc<Node>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let pods: Vec<_> = node.pods.lock().values().cloned().collect();
        for handle in pods {
            let running: Vec<_> = {
                let view = handle.view.borrow();
                let running = view.containers.iter().filter(|(_, container)| container.process.is_some());
                running.map(|(name, container)| handle.directory.log(name, container.restarts)).collect()
            };
            for path in running {
                let too_long = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.len() > LIMIT);
                if too_long {
                    match tokio::task::spawn_blocking(move || cut(&path)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => tracing::warn!(%error, "a log cannot be cut"),
                        Err(error) => tracing::warn!(%error, "a log cannot be cut"),
                    }
                }
            }
        }
    }
}
