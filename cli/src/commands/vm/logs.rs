//! `vm logs`

use futures_util::{AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, LogParams};
use neonvm_api::migration::MigrationPhase;
use neonvm_api::{VirtualMachine, VirtualMachineMigration};

use super::exec;
use crate::args::vm::Logs;
use crate::commands::flags::duration;
use crate::commands::resource::NamespaceClient;
use crate::commands::watching::{self, WaitProgress};
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings::Settings;

/// Lines that wait for the reader.
const QUEUE: usize = 256;

enum Found {
    LastWords(Vec<String>, Option<String>),
    /// So far, the pod they are of, and where earlier ones were.
    Lines(String, String, Option<String>),
}

pub(crate) fn run(settings: &Settings, args: &Logs) -> Result<Report> {
    let style = Style::new(&args.source, args.timestamps);
    let since = args.since.as_deref().map(|text| duration("since", text)).transpose()?;
    let parameters = LogParams {
        container: Some(neonvm_api::names::RUNNER_CONTAINER.to_owned()),
        timestamps: true,
        since_seconds: since.and_then(|time| i64::try_from(time.as_secs().max(1)).ok()),
        // Only the server's lines can be counted there: with a choice of sources they are counted here.
        tail_lines: args.tail.filter(|_| style.takes_all()).and_then(|lines| i64::try_from(lines).ok()),
        ..LogParams::default()
    };
    let found = block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine = client.find(&args.name).await?;
        if args.previous {
            let (lines, note) = last_words(&machine)?;
            return Ok(Found::LastWords(lines, note));
        }
        let pod = exec::pod_of(&client, &machine)?;
        let api: Api<Pod> = Api::namespaced(client.connection.client(), &client.namespace);
        let attempt = format!("cannot read the log of {pod}");
        let history = client.connection.within(&attempt, api.logs(&pod, &parameters)).await?;
        let earlier = if args.follow { None } else { earlier(&client, &args.name, &pod).await };
        Ok(Found::Lines(history, pod, earlier))
    });
    let (history, pod, earlier) = match found? {
        Found::LastWords(lines, note) => {
            return Ok(note.into_iter().fold(Report::log(lines.into_iter(), args.raw), Report::note));
        }
        Found::Lines(history, pod, earlier) => (history, pod, earlier),
    };
    let tail = args.tail.filter(|_| !style.takes_all());
    let mut shown: Vec<String> = history.lines().filter_map(|line| style.render(line)).collect();
    if let Some(tail) = tail {
        shown.drain(..shown.len().saturating_sub(tail));
    }
    let last = history.lines().next_back().and_then(time).map(str::to_owned);
    if !args.follow {
        let empty = shown.is_empty().then(|| nothing(&args.source, &pod, args.since.as_deref()));
        let report = Report::log(shown.into_iter(), args.raw);
        return Ok(empty.into_iter().chain(earlier).fold(report, Report::note));
    }
    let (queue, more) = std::sync::mpsc::sync_channel::<String>(QUEUE);
    let (settings, name) = (settings.clone(), args.name.clone());
    std::thread::spawn(move || {
        block_on(async {
            let client = NamespaceClient::open(&settings).await?;
            let api: Api<Pod> = Api::namespaced(client.connection.client(), &client.namespace);
            let (mut pod, mut last) = (pod, last);
            while follow(&api, &pod, last.take(), &style, &queue).await? {
                let Some(next) = successor(&client, &name, &pod).await? else { break };
                if queue.send(format!("--- {name} continues in pod {next} ---")).is_err() {
                    break;
                }
                pod = next;
            }
            Ok(())
        })
    });
    Ok(Report::log(shown.into_iter().chain(more), args.raw))
}

/// What a person learns from a log without lines.
fn nothing(sources: &[String], pod: &str, since: Option<&str>) -> String {
    let sources = sources.join(",");
    let when = since.map(|time| format!(" in the last {time}"));
    if sources == "all" {
        return format!("pod {pod} has written nothing{}", when.as_deref().unwrap_or(" yet"));
    }
    let when = when.unwrap_or_default();
    format!("pod {pod} has no line of source {sources}{when}; see the others: --source all")
}

/// Where the lines from before the VM's last migration are. None without a migration, or without the right to list them.
async fn earlier(client: &NamespaceClient, name: &str, pod: &str) -> Option<String> {
    let api = client.api::<VirtualMachineMigration>();
    let list = client.connection.within("cannot list migrations", api.list(&ListParams::default())).await;
    moved(&list.ok()?.items, name, pod)
}

fn moved(moves: &[VirtualMachineMigration], name: &str, pod: &str) -> Option<String> {
    let came = moves.iter().filter(|one| one.spec.vm_name == name).find_map(|one| {
        let status = one.status.as_ref().filter(|status| status.phase == Some(MigrationPhase::Succeeded))?;
        (status.target_pod_name == pod).then_some(status)
    })?;
    Some(format!(
        "{name} came from node {} by migration; earlier lines were in pod {}: -f follows a VM across migrations",
        came.source_node, came.source_pod_name
    ))
}

/// Longest time in which a VM whose pod has ended gets another one: a restart after several failures waits for minutes.
const SUCCESSOR: std::time::Duration = std::time::Duration::from_secs(330);

/// The pod in which a VM goes on after its migration or its restart; none if it has ended, or is gone.
async fn successor(client: &NamespaceClient, name: &str, pod: &str) -> Result<Option<String>> {
    use neonvm_api::virtual_machine::{Phase, RestartPolicy};
    let look = |machine: Option<&VirtualMachine>| {
        let Some(status) = machine.and_then(|machine| machine.status.as_ref()) else {
            return WaitProgress::Done;
        };
        let other = !status.pod_name.is_empty() && status.pod_name != pod;
        let over = matches!(status.phase, Some(Phase::Succeeded | Phase::Failed))
            && machine.is_some_and(|machine| {
                machine.spec.restart_policy == RestartPolicy::Never || machine.spec.is_stopped()
            });
        if (other && status.phase.is_some_and(Phase::is_alive)) || over {
            WaitProgress::Done
        } else {
            WaitProgress::NotYet
        }
    };
    let quiet = |_: Option<&VirtualMachine>| Error::new(Code::Timeout, "the VM has no other pod");
    let detached = || Error::new(Code::Interrupted, "interrupted");
    let waited = watching::until(client.api(), (name, None), SUCCESSOR, detached, quiet, look).await;
    let machine = match waited {
        Ok(waited) => waited.object,
        Err(error) if error.code == Code::Timeout => None,
        Err(error) => return Err(error),
    };
    let next = machine.and_then(|machine| machine.status).map(|status| status.pod_name);
    Ok(next.filter(|next| !next.is_empty() && next != pod))
}

/// Lines after the last one that was seen, as they come, until the pod ends: then true. False if the output is closed.
async fn follow(
    api: &Api<Pod>,
    pod: &str,
    mut last: Option<String>,
    style: &Style,
    queue: &std::sync::mpsc::SyncSender<String>,
) -> Result<bool> {
    let parameters = LogParams {
        container: Some(neonvm_api::names::RUNNER_CONTAINER.to_owned()),
        timestamps: true,
        follow: true,
        since_time: last.as_deref().and_then(|time| time.parse().ok()),
        ..LogParams::default()
    };
    let stream = api.log_stream(pod, &parameters).await;
    let failed = |error: kube::Error| Error::new(Code::Failed, "the log ended").cause(error.to_string());
    let mut stream = stream.map_err(failed)?.lines();
    while let Some(Ok(line)) = stream.next().await {
        if let (Some(seen), Some(time)) = (&last, time(&line))
            && time <= seen.as_str()
        {
            continue;
        }
        last = None;
        if let Some(text) = style.render(&line)
            && queue.send(text).is_err()
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The last lines of the console before this start, and a remark if there are none: the pod is gone, the VM's status has kept them.
fn last_words(machine: &VirtualMachine) -> Result<(Vec<String>, Option<String>)> {
    let name = crate::commands::resource::name_of(machine);
    let Some(exit) = machine.status.as_ref().and_then(|status| status.last_exit.clone()) else {
        return Err(Error::new(Code::NotFound, format!("{name} has no previous run")));
    };
    let first = format!("{} in pod {} at {}: {}", exit.reason, exit.pod_name, exit.time, exit.message);
    let note = exit.console.is_empty().then(|| {
        format!(
            "nothing was printed on the console in pod {}; what a guest printed before a live migration is not kept",
            exit.pod_name
        )
    });
    let console = exit.console.iter().map(|line| format!("serial   {line}"));
    Ok((std::iter::once(first).chain(console).collect(), note))
}

#[derive(Clone, Debug)]
struct Style {
    sources: Vec<String>,
    timestamps: bool,
}

impl Style {
    fn new(sources: &[String], timestamps: bool) -> Self {
        Self { sources: sources.to_vec(), timestamps }
    }

    /// Whether no line is left out.
    fn takes_all(&self) -> bool {
        self.sources.iter().any(|source| source == "all")
    }

    /// The line as it is shown, if it is.
    fn render(&self, line: &str) -> Option<String> {
        let (time, rest) = match time(line) {
            Some(time) => (time, line.get(time.len() + 1..).unwrap_or_default()),
            None => ("", line),
        };
        // What has no source was written by something before the runner, or by an older one.
        let (source, text) = rest
            .split_once("| ")
            .or_else(|| rest.strip_suffix('|').map(|source| (source, "")))
            .filter(|(source, _)| matches!(*source, "guest" | "serial" | "qemu" | "runner"))
            .unwrap_or(("runner", rest));
        if !self.takes_all() && !self.sources.iter().any(|wanted| wanted == source) {
            return None;
        }
        let mut shown = String::new();
        if self.timestamps && !time.is_empty() {
            shown.push_str(time);
            shown.push(' ');
        }
        if self.takes_all() || self.sources.len() > 1 {
            shown.push_str(&format!("{source:<8} "));
        }
        shown.push_str(text);
        Some(shown)
    }
}

fn time(line: &str) -> Option<&str> {
    let (time, _) = line.split_once(' ')?;
    let bytes = time.as_bytes();
    (bytes.len() >= 20 && bytes.get(4) == Some(&b'-') && bytes.get(10) == Some(&b'T')).then_some(time)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reader_learns_where_earlier_lines_were() {
        let one = |vm: &str, phase: &str| -> VirtualMachineMigration {
            serde_json::from_value(json!({ "metadata": { "name": "m" }, "spec": { "vmName": vm },
                "status": { "phase": phase, "sourceNode": "n1", "sourcePodName": "pg-a", "targetPodName": "pg-b" } }))
            .unwrap()
        };
        let moves = [one("web", "Succeeded"), one("pg", "Failed"), one("pg", "Succeeded")];
        let note = moved(&moves, "pg", "pg-b").unwrap();
        assert!(note.contains("from node n1") && note.contains("in pod pg-a"), "{note}");
        assert_eq!(moved(&moves, "pg", "pg-c"), None);
        assert_eq!(moved(&moves[..2], "pg", "pg-b"), None);
    }

    #[test]
    fn a_console_without_lines_is_remarked() {
        let machine = |console: &[&str]| -> VirtualMachine {
            serde_json::from_value(json!({ "metadata": { "name": "pg" }, "spec": { "guest": { "cpus": { "min": 1, "max": 1, "use": 1 },
                "memorySlots": { "min": 1, "max": 1, "use": 1 }, "rootDisk": { "image": "a:1" } } },
                "status": { "lastExit": { "reason": "QemuEnded", "message": "m", "podName": "pg-a", "time": "2026-01-01T00:00:00Z",
                    "console": console } } }))
            .unwrap()
        };
        let (lines, note) = last_words(&machine(&["bye"])).unwrap();
        assert_eq!((lines.len(), lines.last().map(String::as_str), note), (2, Some("serial   bye"), None));
        let (lines, note) = last_words(&machine(&[])).unwrap();
        assert!(lines.len() == 1 && note.unwrap().contains("in pod pg-a"));
    }

    #[test]
    fn a_log_without_lines_names_the_other_sources() {
        assert!(nothing(&["guest".to_owned()], "pg-a", None).contains("no line of source guest"));
        let all = ["all".to_owned()];
        assert_eq!(nothing(&all, "pg-a", None), "pod pg-a has written nothing yet");
        assert_eq!(nothing(&all, "pg-a", Some("10m")), "pod pg-a has written nothing in the last 10m");
    }
}

#[cfg(test)]
mod lines_tests {
    use super::*;

    fn shown(sources: &[&str], timestamps: bool, line: &str) -> Option<String> {
        Style::new(&sources.iter().map(|&s| s.to_owned()).collect::<Vec<_>>(), timestamps).render(line)
    }

    #[test]
    fn lines_are_chosen_and_shown_by_source() {
        let line = "2026-11-21T09:00:00.123456789Z guest| a | b";
        assert_eq!(shown(&["all"], false, line).unwrap(), "guest    a | b");
        assert_eq!(shown(&["guest"], false, line).unwrap(), "a | b");
        assert_eq!(
            shown(&["guest", "qemu"], true, line).unwrap(),
            "2026-11-21T09:00:00.123456789Z guest    a | b"
        );
        assert_eq!(shown(&["qemu"], false, line), None);
        assert_eq!(shown(&["runner"], false, "no source here").unwrap(), "no source here");
        assert_eq!(shown(&["serial"], false, "2026-11-21T09:00:00.123456789Z serial| ").unwrap(), "");
        assert_eq!(time("short line"), None);
    }
}
