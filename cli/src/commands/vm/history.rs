//! `vm history`

use jiff::Timestamp;
use kube::api::{Api, ListParams};
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_types::agent_history::AgentHistory;

use super::events::{self, Event};
use crate::args::vm::History;
use crate::commands::migration::show;
use crate::commands::resource::{NamespaceClient, name_of};
use crate::commands::services::Services;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::history::{self, Entry, Kind, Past, chart};
use crate::report::{Document, Report};
use crate::settings::Settings;

/// Milliseconds of a day.
const DAY: i64 = 24 * 3_600_000;

pub(crate) fn run(settings: &Settings, args: &History) -> Result<Report> {
    let now = Timestamp::now().as_millisecond();
    let window = window(args, now)?;
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let (agents, mut notes) = agents(&client, args, window.0).await;
        let api: Api<VirtualMachine> = client.api();
        let is_there =
            client.connection.within("cannot get the VM", api.get_opt(&args.name)).await?.is_some();
        if !is_there && agents.iter().all(|agent| agent.records.is_empty()) {
            return Err(client.not_found::<VirtualMachine>(&args.name).await);
        }
        let (events, denied) = events::allowed(events::of_vm(&client, &args.name).await)?;
        notes.extend(denied);
        let mut others: Vec<Entry> = events.into_iter().filter_map(event).collect();
        let (moves, denied) = events::allowed(migrations(&client, &args.name).await)?;
        notes.extend(denied);
        others.extend(moves);
        let past = Past::new(format!("{}/{}", client.namespace, args.name), window, agents, others);
        if !is_there {
            notes.push(format!("{} does not exist any more", args.name));
        }
        if past.samples.is_empty() && notes.is_empty() {
            let name = &args.name;
            notes.push(format!(
                "no agent recorded a size; agents record VMs with scaling on: neonctl vm scale {name} --auto on"
            ));
        }
        let report = report(&past, settings.output())?;
        Ok(notes.into_iter().fold(report, Report::note))
    })
}

fn report(past: &Past, format: Option<&str>) -> Result<Report> {
    let failed = |error: crate::plot::Failed| {
        Error::new(Code::Failed, "cannot draw the history").cause(error.to_string())
    };
    Ok(match format {
        Some("svg") => Report::text(chart::svg(past).map_err(failed)?),
        Some("html") => Report::text(history::html(past).map_err(failed)?),
        _ => Report::document(Document {
            value: past.value(),
            names: vec![format!("virtualmachine/{}", past.vm.rsplit('/').next().unwrap_or_default())],
            text: Some(history::text(past)),
            columns: history::columns(),
            rows: past.entries.iter().map(|entry| history::row(past, entry)).collect(),
        }),
    })
}

/// The time window, in milliseconds since 1970.
fn window(args: &History, now: i64) -> Result<(i64, i64)> {
    let since = moment("since", &args.since, now)?;
    let until = args.until.as_ref().map_or(Ok(now), |until| moment("until", until, now))?;
    if since >= until {
        return Err(Error::new(Code::Usage, "--since: the window ends before it begins")
            .hint("set --since to an earlier time than --until, such as --since 12h --until 8h"));
    }
    Ok((since, until))
}

/// A moment: so long ago, or a time.
fn moment(flag: &str, text: &str, now: i64) -> Result<i64> {
    if let Some(time) = crate::settings::duration(text) {
        return Ok(now.saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)));
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<i64>().ok());
    if let Some(days) = days.filter(|days| (0..=3650).contains(days)) {
        return Ok(now.saturating_sub(days * DAY));
    }
    text.parse::<Timestamp>().map(Timestamp::as_millisecond).map_err(|_| {
        Error::new(Code::Usage, format!("--{flag}: {text:?} is neither a duration nor a time"))
            .hint("use a duration such as 30m, 12h or 7d, or a time such as 2026-11-26T09:00:00Z")
    })
}

/// What the agents kept, and notes about those that could not be reached.
async fn agents(client: &NamespaceClient, args: &History, since: i64) -> (Vec<AgentHistory>, Vec<String>) {
    let vm = format!("{}/{}", client.namespace, args.name);
    let asked = async {
        let services = Services::open(&client.connection, &args.system_namespace).await?;
        services.histories(&vm, since).await
    };
    let shown = |error: &Error| {
        let causes: String = error.causes.iter().map(|cause| format!(": {cause}")).collect();
        format!("the account is not complete: {}{causes}", error.message)
    };
    match asked.await {
        Err(error) => (Vec::new(), vec![shown(&error)]),
        Ok(answers) => {
            let mut notes = Vec::new();
            let mut found = Vec::new();
            for answer in answers {
                match answer {
                    Ok(history) if history.kept => found.push(history),
                    Ok(history) => notes.push(format!(
                        "the account is not complete: the agent of {} keeps no history; start it with --history-dir",
                        history.node
                    )),
                    Err(error) => notes.push(shown(&error)),
                }
            }
            (found, notes)
        }
    }
}

fn event(event: Event) -> Option<Entry> {
    let times = if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
    let warns = event.kind == "Warning";
    Some(Entry {
        at: event.at?.as_millisecond(),
        kind: if warns { Kind::Warning } else { Kind::Event },
        text: format!("{}: {}{times}", event.reason, event.brief()),
        mark: if warns { event.reason } else { String::new() },
        from: event.from,
    })
}

async fn migrations(client: &NamespaceClient, name: &str) -> Result<Vec<Entry>> {
    let api: Api<VirtualMachineMigration> = client.api();
    let list = client.connection.within("cannot list migrations", api.list(&ListParams::default())).await?;
    let own = list.items.iter().filter(|migration| migration.spec.vm_name == name);
    Ok(own.flat_map(migration).collect())
}

fn migration(migration: &VirtualMachineMigration) -> Vec<Entry> {
    let status = show::status(migration);
    let name = name_of(migration);
    let entry = |time: neonvm_types::Timestamp, text: String, mark: String| Entry {
        at: time.unix().saturating_mul(1000),
        kind: Kind::Migration,
        from: "vm-controller".to_owned(),
        text,
        mark,
    };
    let begun = status
        .start_time
        .map(|time| entry(time, format!("{name} begins on {}", status.source_node), String::new()));
    let ended = status.completion_time.map(|time| {
        let moved = status.phase == Some(neonvm_api::migration::MigrationPhase::Succeeded);
        let mark = if moved { format!("moved to {}", status.target_node) } else { "not moved".to_owned() };
        entry(time, format!("{name} {}", show::ending(migration)), mark)
    });
    begun.into_iter().chain(ended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_durations_or_times() {
        let now = 10 * DAY;
        let at = |text| moment("since", text, now);
        assert_eq!((at("30m").unwrap(), at("7d").unwrap()), (now - 1_800_000, 3 * DAY));
        assert_eq!(at("1970-01-02T00:00:00Z").unwrap(), DAY);
        for text in ["", "yesterday", "5", "-5m", "99999d", "2026-13-01T00:00:00Z"] {
            let error = at(text).unwrap_err();
            assert!(error.code == Code::Usage && error.message.starts_with("--since: "), "{text}");
        }
    }

    #[test]
    fn a_migration_has_a_begin_and_an_end() {
        let object = serde_json::json!({
            "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachineMigration", "metadata": { "name": "pg-1" },
            "spec": { "vmName": "pg" },
            "status": { "phase": "Succeeded", "sourceNode": "n1", "targetNode": "n2", "info": { "downtimeMs": 98 },
                "startTime": "2026-11-26T09:00:00Z", "completionTime": "2026-11-26T09:00:03Z" }
        });
        let entries = migration(&serde_json::from_value(object).unwrap());
        let texts: Vec<&str> = entries.iter().map(|entry| entry.text.as_str()).collect();
        assert_eq!(texts, ["pg-1 begins on n1", "pg-1 succeeded: pg runs on n2 (downtime 98 ms)"]);
        assert_eq!((entries[1].at - entries[0].at, entries[1].mark.as_str()), (3000, "moved to n2"));
    }
}
