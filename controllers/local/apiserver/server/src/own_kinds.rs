//! Admission of our own kinds inside the embedded server, so that a cluster is complete from its first moment: spellings
//! are normalised (a float such as `min: 0.25` is taken), defaults filled in, faults refused. On a cluster of its own the
//! vm-controller's webhooks do the same; doing it twice changes nothing.

use neonvm_api::Policy;
use neonvm_api::admission::agent::{self, Requester};
use neonvm_api::names::SYSTEM_NAMESPACE;
use neonvm_apiserver_engine::field::{FieldError, FieldReason};
use neonvm_apiserver_engine::plugins::{PluginVerdict, Written};
use serde_json::Value;

const GROUPS: &[&str] = &["vm.neon.tech", "autoscaling.aibrix.ai"];

/// What authors of VMs may request in a namespace without labels about it.
fn installation() -> Policy {
    let attachment = format!("{SYSTEM_NAMESPACE}/{}", neonvm_api::overlay::ATTACHMENT);
    Policy { attachments: [attachment].into(), ..Policy::default() }
}

/// The plug-in of a server without Kubernetes' own controllers: as [`admit`], but it refuses strategy HPA, which would never scale, and
/// warns about a Service that would have endpoints elsewhere. Stored objects stay as they are.
pub(crate) fn admit_without_controllers(written: Written<'_>, new: &mut Value) -> PluginVerdict {
    if written.group.is_empty() {
        return service(written.old, new);
    }
    const FIELD: &str = "/spec/scalingStrategy";
    let is_own = written.group == "autoscaling.aibrix.ai" && written.kind == "PodAutoscaler";
    let before = written.old.and_then(|old| old.pointer(FIELD)).cloned();
    let mut verdict = admit(written, new);
    let chosen = new.pointer(FIELD).filter(|chosen| is_own && before.as_ref() != Some(chosen));
    if chosen.is_some_and(|chosen| chosen == "HPA") {
        verdict.errors.push(FieldError {
            reason: FieldReason::Invalid,
            field: "spec.scalingStrategy".to_owned(),
            message: "Invalid value: \"HPA\": this cluster runs no controller for HorizontalPodAutoscalers; use KPA or APA"
                .to_owned(),
        });
    }
    verdict
}

/// Warns about a Service whose selector has no effect, when it is made or its selector changes.
fn service(old: Option<&Value>, new: &Value) -> PluginVerdict {
    const SELECTOR: &str = "/spec/selector";
    let selector = new.pointer(SELECTOR).and_then(Value::as_object).filter(|selector| !selector.is_empty());
    let is_name = new.pointer("/spec/type").is_some_and(|kind| kind == "ExternalName");
    let is_known = old.is_some_and(|old| old.pointer(SELECTOR) == new.pointer(SELECTOR));
    let warning = "spec.selector: this cluster has no controller for Services: the Service gets no endpoints and no DNS name; \
        reach VMs by their addresses, or with `neonctl vm port-forward`";
    let warns = selector.is_some() && !is_name && !is_known;
    PluginVerdict {
        warnings: warns.then(|| warning.to_owned()).into_iter().collect(),
        ..PluginVerdict::default()
    }
}

pub(crate) fn admit(written: Written<'_>, new: &mut Value) -> PluginVerdict {
    let Written { group, kind, namespace_labels, old, user } = written;
    if !GROUPS.contains(&group) {
        return PluginVerdict::default();
    }
    let extra = user.extra.iter().map(|(key, values)| (key.as_str(), values.as_slice()));
    let requester = Requester::new(&user.name, extra);
    let forbidden = agent::refused(SYSTEM_NAMESPACE, &requester, kind, new, old);
    let mut verdict = neonvm_api::admit(kind, new, old);
    let labels = serde_json::from_value(namespace_labels.clone()).unwrap_or_default();
    let policy = installation().in_namespace(&labels);
    verdict.errors.extend(neonvm_api::admission::refused(&policy, kind, new, old));
    let errors = verdict.errors.iter().map(|error| FieldError {
        reason: FieldReason::Invalid,
        field: error.path.clone(),
        message: format!("Invalid value: {}", error.message),
    });
    PluginVerdict {
        forbidden,
        errors: errors.collect(),
        warnings: verdict.warnings.iter().map(|w| format!("{}: {}", w.path, w.message)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use neonvm_apiserver_engine::context::User;
    use serde_json::json;

    use super::*;

    #[test]
    fn strategy_hpa_is_refused_where_nothing_would_carry_it_out() {
        let user = User::default();
        let object = |strategy: &str, most: u32| {
            json!({"apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler", "metadata": {"name": "a"},
                "spec": {"scalingStrategy": strategy, "minReplicas": 1, "maxReplicas": most,
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                    "metricsSources": [{"metricSourceType": "resource", "targetMetric": "cpu", "targetValue": "30"}]}})
        };
        let errors =
            |plugin: neonvm_apiserver_engine::plugins::Plugin, old: Option<&Value>, strategy: &str| {
                let written = Written {
                    group: "autoscaling.aibrix.ai",
                    kind: "PodAutoscaler",
                    namespace_labels: &Value::Null,
                    old,
                    user: &user,
                };
                plugin(written, &mut object(strategy, 5)).errors
            };
        let refused = errors(admit_without_controllers, None, "HPA");
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!(refused[0].field, "spec.scalingStrategy");
        assert!(
            errors(admit_without_controllers, None, "KPA").is_empty()
                && errors(admit, None, "HPA").is_empty()
        );
        // A stored object can still be changed, but not become one of strategy HPA.
        assert!(errors(admit_without_controllers, Some(&object("HPA", 4)), "HPA").is_empty());
        assert_eq!(errors(admit_without_controllers, Some(&object("KPA", 4)), "HPA").len(), 1);
    }
    #[test]
    fn a_service_that_would_have_endpoints_elsewhere_gets_a_warning() {
        let user = User::default();
        let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec});
        let warnings =
            |plugin: neonvm_apiserver_engine::plugins::Plugin, old: Option<&Value>, new: &Value| {
                let written =
                    Written { group: "", kind: "Service", namespace_labels: &Value::Null, old, user: &user };
                let mut same = new.clone();
                let verdict = plugin(written, &mut same);
                assert!(same == *new && verdict.errors.is_empty() && verdict.forbidden.is_none());
                verdict.warnings
            };
        let selecting = service(json!({"selector": {"app": "a"}, "ports": [{"port": 80}]}));
        let headless = service(json!({"selector": {"app": "a"}, "clusterIP": "None"}));
        for new in [&selecting, &headless] {
            let found = warnings(admit_without_controllers, None, new);
            assert!(found.len() == 1 && found[0].contains("no endpoints and no DNS name"), "{found:?}");
            assert!(warnings(admit_without_controllers, Some(new), new).is_empty());
            assert!(warnings(admit, None, new).is_empty());
        }
        let other = service(json!({"selector": {"app": "b"}}));
        assert_eq!(warnings(admit_without_controllers, Some(&selecting), &other).len(), 1);
        for spec in [
            json!({"ports": [{"port": 80}]}),
            json!({"selector": {}}),
            json!({"selector": null}),
            json!({"type": "ExternalName", "externalName": "x.example", "selector": {"app": "a"}}),
        ] {
            assert!(warnings(admit_without_controllers, None, &service(spec)).is_empty());
        }
    }
}
