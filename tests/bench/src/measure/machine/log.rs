//! Times of a machine's start: from the log of the runner's container, and `/proc`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;

/// Hundredths of a second: the unit of `/proc/PID/stat` on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// Lines of a pod's runner with their moments; what was written before `since` is left out.
pub(super) fn lines(cluster: &Path, pod: &str, since: SystemTime) -> anyhow::Result<Vec<(f64, String)>> {
    let text = std::fs::read_to_string(file(cluster, pod)?)?;
    Ok(text.lines().filter_map(|line| parse(line, since)).collect())
}

/// The log of the pod with this UID, on whatever node it is.
fn file(cluster: &Path, pod: &str) -> anyhow::Result<PathBuf> {
    let nodes = cluster.join("nodes");
    for node in std::fs::read_dir(&nodes).with_context(|| nodes.display().to_string())? {
        let log = node?.path().join("pods").join(pod).join("logs/neonvm-runner/0.log");
        if log.is_file() {
            return Ok(log);
        }
    }
    anyhow::bail!("no log of pod {pod} below {}", nodes.display())
}

/// `TIME stdout F text` to milliseconds since a moment and the text.
fn parse(line: &str, since: SystemTime) -> Option<(f64, String)> {
    let (time, rest) = line.split_once(' ')?;
    let text = rest.splitn(3, ' ').nth(2)?;
    let time = SystemTime::from(time.parse::<Timestamp>().ok()?);
    Some((super::milliseconds(time.duration_since(since).ok()?), text.to_owned()))
}

/// Processes with these words in their command line, in which `directory` is in the command line or the environment.
pub(super) fn processes(directory: &Path, words: &[&str]) -> anyhow::Result<Vec<u32>> {
    let directory = directory.display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let read = |name: &str| {
            // It may end between the two looks.
            let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let line = read("cmdline");
        // A runner in a root of its own has no path of the node but for where its mounts come from.
        let is_of = |text: &str| text.contains(&directory);
        if words.iter().all(|word| line.contains(word))
            && (is_of(&line) || is_of(&read("environ")) || is_of(&read("mountinfo")))
        {
            found.push(process);
        }
    }
    Ok(found)
}

/// The process with `QEMU` that a runner started.
pub(super) fn child(runner: u32) -> anyhow::Result<u32> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{runner}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().filter_map(|number| number.parse::<u32>().ok()));
    }
    found.first().copied().context("the runner has no child")
}

/// When a process was started, to a hundredth of a second, in milliseconds since a moment.
pub(super) fn started(process: u32, since: SystemTime) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may contain anything; 22nd field, see proc(5).
    let field = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(19));
    let ticks: u32 = field.context("no start in stat")?.parse()?;
    let uptime = std::fs::read_to_string("/proc/uptime")?;
    let uptime: f64 = uptime.split(' ').next().context("no uptime")?.parse()?;
    let boot = SystemTime::now() - Duration::from_secs_f64(uptime);
    let at = boot + TICK * ticks;
    Ok(match at.duration_since(since) {
        Ok(after) => super::milliseconds(after),
        Err(before) => -super::milliseconds(before.duration()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_placed_in_time() {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let line = "1970-01-01T00:00:01.250000000Z stdout F runner| the guest boots";
        assert_eq!(parse(line, since), Some((250.0, "runner| the guest boots".to_owned())));
        assert_eq!(parse("1970-01-01T00:00:00Z stdout F early", since), None);
        assert_eq!(parse("nonsense", since), None);
    }
}
