//! Events about VMs, which `describe` and `history` show.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};

use crate::commands::resource::NamespaceClient;
use crate::error::{Code, Result};

pub(crate) struct Event {
    pub(crate) at: Option<Timestamp>,
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) from: String,
    pub(crate) message: String,
    pub(crate) count: i32,
}

impl Event {
    pub(crate) fn from_event(event: core::Event) -> Self {
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
        Self {
            at: last.and_then(second),
            kind: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            from,
            message: event.message.unwrap_or_default().trim().to_owned(),
            count: event.series.and_then(|series| series.count).or(event.count).unwrap_or(1),
        }
    }

    /// The message for people: without the object that a kubelet appends to it, such as all resources of a pod that it resized.
    pub(crate) fn brief(&self) -> &str {
        self.message.split_once(": {\"").map_or(self.message.as_str(), |(words, _)| words)
    }

    pub(crate) fn age(&self) -> String {
        self.at.map_or_else(|| "-".to_owned(), crate::render::age)
    }
}

/// Whether an event is about the VM of this name or one of its pods.
fn about(event: &core::Event, vm: &str) -> bool {
    let (kind, name) = (event.involved_object.kind.as_deref(), event.involved_object.name.as_deref());
    match (kind, name) {
        (Some("VirtualMachine"), Some(name)) => name == vm,
        // Pods are named for their machine, with five characters more.
        (Some("Pod"), Some(name)) => {
            let rest = name.strip_prefix(vm).and_then(|rest| rest.strip_prefix('-'));
            rest.is_some_and(|rest| rest.len() == 5 && !rest.contains('-'))
        }
        _ => false,
    }
}

/// Events about a VM and its pods, oldest first.
pub(super) async fn of_vm(client: &NamespaceClient, vm: &str) -> Result<Vec<Event>> {
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
