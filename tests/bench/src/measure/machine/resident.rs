//! Memory of a runner while its guest is idle.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cluster::{self, Cluster, machines};
use super::watch::Watch;
use super::{NAME, start};
use crate::report::Row;

/// MiB.
const GOAL: f64 = 12.0;
/// After the boot, until what it needed is given back.
const REST: Duration = Duration::from_secs(10);

pub(super) async fn run(cluster: &Cluster) -> anyhow::Result<Vec<Row>> {
    let client = cluster.client().await?;
    let mut watch = Watch::open(&client).await?;
    cluster::create(&machines(&client), "resident").await?;
    watch
        .machine("resident", "ready", |machine| {
            machine
                .status
                .as_ref()
                .is_some_and(|status| status.cpus.is_some() && status.memory_size.is_some())
        })
        .await?;
    tokio::time::sleep(REST).await;
    let runner = start::runner(cluster)?;
    let rollup = std::fs::read_to_string(format!("/proc/{runner}/smaps_rollup"))?;
    let maps = std::fs::read_to_string(format!("/proc/{runner}/smaps"))?;
    watch.delete(&client, "resident").await?;
    let mib = |field: &str| field_of(&rollup, field) / 1024.0;
    let parts: Vec<String> =
        parts(&maps).into_iter().map(|(part, kib)| format!("{part} {:.1}", kib / 1024.0)).collect();
    Ok(vec![
        Row::at_most(NAME, "runner with an idle guest, resident", mib("Rss:"), "MiB", GOAL)
            .note(parts.join(", ")),
        Row::plain(NAME, "runner with an idle guest, proportional", mib("Pss:"), "MiB")
            .note("its program is shared with the other services"),
        Row::plain(NAME, "runner with an idle guest, its own", mib("Private_Dirty:"), "MiB")
            .note("not shared, not backed by a file"),
    ])
}

/// MiB that a process has in memory, shared or not.
pub(super) fn resident(process: u32) -> anyhow::Result<f64> {
    let rollup = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    Ok(field_of(&rollup, "Rss:") / 1024.0)
}

/// KiB.
fn field_of(text: &str, field: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

/// Resident KiB by what is mapped.
fn parts(maps: &str) -> BTreeMap<&'static str, f64> {
    let (mut sums, mut part) = (BTreeMap::new(), "");
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [range, rights, _, _, _, path @ ..] if range.contains('-') && !range.ends_with(':') => {
                let path = path.first().copied().unwrap_or_default();
                part = match (path, rights.contains('x'), rights.contains('w')) {
                    ("[heap]", ..) => "heap",
                    ("[stack]", ..) => "stack",
                    ("", ..) => "anonymous",
                    (path, true, _) if path.contains("/neon") => "text",
                    (path, _, true) if path.contains("/neon") => "data",
                    (path, ..) if path.contains("/neon") => "constants",
                    _ => "libraries",
                };
            }
            ["Rss:", kib, ..] => *sums.entry(part).or_insert(0.0) += kib.parse().unwrap_or(0.0),
            _ => {}
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_classified_by_its_mapping() {
        let maps = "55-56 r-xp 00 08:01 5 /bin/neonvm-runner\nRss: 8 kB\nPss: 1 kB\n56-57 rw-p 00 08:01 5 /bin/neonvm-runner\nRss: 4 kB\n\
            57-58 rw-p 00 00:00 0 [heap]\nRss: 2 kB\n58-59 rw-p 00 00:00 0\nRss: 1 kB\n";
        let wanted = BTreeMap::from([("anonymous", 1.0), ("data", 4.0), ("heap", 2.0), ("text", 8.0)]);
        assert_eq!(parts(maps), wanted);
        assert_eq!(field_of(maps, "Pss:"), 1.0);
    }
}
