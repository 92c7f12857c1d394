//! `vm events`

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use neonvm_api::VirtualMachine;
use neonvm_types::agent_inspect::Decision;
use serde_json::json;

use super::decisions;
use crate::args::vm::Events;
use crate::commands::flags::duration;
use crate::commands::resource::client::NamespaceClient;
use crate::commands::resource::name_of;
use crate::connect::block_on;
use crate::error::{Code, Result};
use crate::report::{Document, Report, left};
use crate::settings::Settings;

/// Kind of what an agent decided.
const DECISION: &str = "Decision";

/// What happened.
pub(in crate::commands) struct Event {
    pub(in crate::commands) at: Option<Timestamp>,
    pub(in crate::commands) kind: String,
    pub(in crate::commands) reason: String,
    pub(in crate::commands) from: String,
    object: String,
    pub(in crate::commands) message: String,
    pub(in crate::commands) count: i32,
}

impl Event {
    pub(in crate::commands) fn from_event(event: core::Event) -> Self {
        let second = |seconds: i64| Timestamp::from_second(seconds).ok();
        let last = event
            .series
            .as_ref()
            .and_then(|series| series.last_observed_time.as_ref())
            .map(|t| t.0.as_second());
        let last = last.or(event.last_timestamp.as_ref().map(|t| t.0.as_second()));
        let last = last.or(event.event_time.as_ref().map(|t| t.0.as_second()));
        let last = last.or(event.metadata.creation_timestamp.as_ref().map(|t| t.0.as_second()));
        let component = event.reporting_component.filter(|name| !name.is_empty());
        let from = component.or(event.source.and_then(|source| source.component)).unwrap_or_default();
        let object = event.involved_object;
        let kind = object.kind.unwrap_or_default().to_lowercase();
        Self {
            at: last.and_then(second),
            kind: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            from,
            object: format!("{kind}/{}", object.name.unwrap_or_default()),
            message: event.message.unwrap_or_default().trim().to_owned(),
            count: event.series.and_then(|series| series.count).or(event.count).unwrap_or(1),
        }
    }

    /// The message for people: without the object that a kubelet appends to it, such as all resources of a pod that it resized.
    pub(in crate::commands) fn brief(&self) -> &str {
        self.message.split_once(": {\"").map_or(self.message.as_str(), |(words, _)| words)
    }

    pub(in crate::commands) fn age(&self) -> String {
        self.at.map_or_else(|| "-".to_owned(), crate::render::age)
    }
}

/// Whether an event is about the VM of this name or one of its pods; without a name, about any VM.
fn about(event: &core::Event, vm: Option<&str>) -> bool {
    let (kind, name) = (event.involved_object.kind.as_deref(), event.involved_object.name.as_deref());
    match (kind, vm, name) {
        (Some("VirtualMachine"), None, _) => true,
        (Some("VirtualMachine"), Some(vm), Some(name)) => name == vm,
        // Pods are named for their machine, with five characters more.
        (Some("Pod"), Some(vm), Some(name)) => {
            let rest = name.strip_prefix(vm).and_then(|rest| rest.strip_prefix('-'));
            rest.is_some_and(|rest| rest.len() == 5 && !rest.contains('-'))
        }
        _ => false,
    }
}

/// Events about a VM and its pods, or about all of them; oldest first.
pub(super) async fn of_vm(client: &NamespaceClient, vm: Option<&str>) -> Result<Vec<Event>> {
    let api: Api<core::Event> = Api::namespaced(client.connection.client(), &client.namespace);
    let list = client.connection.within("cannot list events", api.list(&ListParams::default())).await?;
    let own = list.items.into_iter().filter(|event| about(event, vm));
    let mut events: Vec<Event> = own.map(Event::from_event).collect();
    events.sort_by_key(|event| event.at);
    Ok(events)
}

/// What was listed; if that is not permitted, nothing, with a note. Other errors as they are.
pub(super) fn allowed<T>(listed: Result<Vec<T>>) -> Result<(Vec<T>, Option<String>)> {
    match listed {
        Ok(all) => Ok((all, None)),
        Err(error) if error.code == Code::Denied => {
            Ok((Vec::new(), Some(format!("not shown: {}", error.message))))
        }
        Err(error) => Err(error),
    }
}

/// The decisions of the VM's agent, as events.
async fn decided(client: &NamespaceClient, machine: &VirtualMachine) -> Vec<Event> {
    let Some((node, vm)) = decisions::of_vm(client, machine).await else { return Vec::new() };
    let event = |decision: Decision| Event {
        at: decision.at.parse().ok(),
        kind: DECISION.to_owned(),
        reason: "Scaling".to_owned(),
        from: format!("agent/{node}"),
        object: format!("virtualmachine/{}", name_of(machine)),
        message: match decision.reason {
            Some(reason) => format!("{} ({reason})", decision.text),
            None => decision.text,
        },
        count: 1,
    };
    vm.decisions.into_iter().map(event).collect()
}

/// Lists them.
pub(in crate::commands) fn run(settings: &Settings, args: &Events) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings, &args.place).await?;
        let machine = match &args.name {
            Some(name) => Some(client.find(name).await?),
            None => None,
        };
        let mut events = of_vm(&client, machine.as_ref().map(name_of)).await?;
        if let Some(machine) = &machine {
            events.extend(decided(&client, machine).await);
            events.sort_by_key(|event| event.at);
        }
        if let Some(since) = &args.since {
            let oldest = Timestamp::now().as_second()
                - i64::try_from(duration("since", since)?.as_secs()).unwrap_or(i64::MAX);
            events.retain(|event| event.at.is_some_and(|at| at.as_second() >= oldest));
        }
        if !args.types.is_empty() {
            events.retain(|event| args.types.contains(&event.kind));
        }
        let items: Vec<_> = events
            .iter()
            .map(|event| {
                json!({ "time": event.at.map(|at| at.to_string()), "type": event.kind, "reason": event.reason,
                    "from": event.from, "object": event.object, "message": event.message, "count": event.count })
            })
            .collect();
        let row = |event: &Event| {
            let times = if event.count > 1 { format!(" (x{})", event.count) } else { String::new() };
            vec![
                event.age(),
                event.kind.clone(),
                event.reason.clone(),
                event.from.clone(),
                event.object.clone(),
                format!("{}{times}", event.brief()),
            ]
        };
        let report = Report::document(Document {
            value: json!({ "apiVersion": crate::report::API_VERSION, "kind": "EventList", "items": items }),
            names: events.iter().map(|event| event.object.clone()).collect(),
            text: None,
            columns: ["AGE", "TYPE", "REASON", "FROM", "OBJECT", "MESSAGE"].map(left).into(),
            rows: events.iter().map(row).collect(),
        });
        Ok(if events.is_empty() {
            report.note("no events; the cluster keeps events for about an hour")
        } else {
            report
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_right_the_rest_is_shown() {
        let failed = |code| allowed::<u8>(Err(crate::error::Error::new(code, "cannot list events")));
        let (none, note) = failed(Code::Denied).unwrap();
        assert_eq!((none.len(), note.as_deref()), (0, Some("not shown: cannot list events")));
        assert_eq!(failed(Code::Unreachable).unwrap_err().code, Code::Unreachable);
        assert_eq!(allowed(Ok(vec![1])).unwrap(), (vec![1], None));
    }

    #[test]
    fn the_object_in_a_kubelets_message_is_left_out() {
        let brief = |message: &str| {
            let event = core::Event { message: Some(message.to_owned()), ..core::Event::default() };
            Event::from_event(event).brief().to_owned()
        };
        let resized = r#"Pod resize completed: {"containers":[{"name":"neonvm-runner"}],"generation":2}"#;
        assert_eq!(brief(resized), "Pod resize completed");
        for whole in ["StartFailure: accelerator: no {kvm}", "Pulled: {}", ""] {
            assert_eq!(brief(whole), whole);
        }
    }
}
