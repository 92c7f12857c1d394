//! The webhooks of an installation: registered, and served. Pure.

use neonvm_api::names::POD_AUTOSCALER_ACCOUNT;
use serde_json::Value;

use super::component::Component;
use super::facts::{Facts, SERVICE, Source};
use crate::commands::object::text;

pub(super) fn webhooks(facts: &Facts) -> Component {
    let mut component = Component::new("webhooks");
    let hooks = facts.all(Source::Hooks);
    if let Some(missing) = facts.missing(Source::Hooks) {
        component.add(missing);
        return component;
    }
    let is_installed = !facts.all(Source::Workloads).is_empty();
    if hooks.is_empty() && !is_installed {
        component.add("not registered");
        return component;
    }
    // A process of a local cluster registers the one that it serves.
    if is_installed {
        component.ready = Some((u64::try_from(hooks.len()).unwrap_or(u64::MAX), 2));
        if hooks.len() < 2 {
            component.fails("the vm-controller has not registered them");
            return component;
        }
    }
    let place = hooks_of(hooks).map(|hook| {
        let path = "/clientConfig/service";
        (text(hook, &format!("{path}/namespace")), text(hook, &format!("{path}/name")))
    });
    let Some((namespace, name)) = place.into_iter().find(|(_, name)| !name.is_empty()) else {
        component.works();
        component.add("served by a process");
        return component;
    };
    if (namespace, name) != (facts.namespace.as_str(), SERVICE) {
        component.fails(&format!(
            "registered at {namespace}/{name}, which is not this installation: VMs cannot be created or changed"
        ));
        return component;
    }
    match (ready_behind(facts, SERVICE), facts.missing(Source::Endpoints)) {
        (_, Some(missing)) => component.add(missing),
        (0, None) => component.fails(&format!(
            "service {namespace}/{name} has no ready endpoint: VMs cannot be created or changed"
        )),
        (count, None) => {
            component.works();
            component.add(&format!("{count} ready endpoints"));
            let names = |hook: &Value| text(hook, "/clientConfig/service/name") == POD_AUTOSCALER_ACCOUNT;
            if hooks_of(hooks).any(names) && ready_behind(facts, POD_AUTOSCALER_ACCOUNT) == 0 {
                component.add(&format!(
                    "PodAutoscalers are not validated: service {namespace}/{POD_AUTOSCALER_ACCOUNT} has no ready endpoint"
                ));
            }
        }
    }
    component
}

fn hooks_of(registrations: &[Value]) -> impl Iterator<Item = &Value> {
    registrations.iter().flat_map(|one| one.pointer("/webhooks").and_then(Value::as_array)).flatten()
}

fn ready_behind(facts: &Facts, service: &str) -> usize {
    let slices = facts.all(Source::Endpoints).iter();
    let own = slices.filter(|slice| text(slice, "/metadata/labels/kubernetes.io~1service-name") == service);
    let endpoints = own.flat_map(|slice| slice.pointer("/endpoints").and_then(Value::as_array)).flatten();
    let is_ready = |one: &&Value| one.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false);
    endpoints.filter(is_ready).count()
}
