//! Admission of an object as one step, for webhooks and for the embedded API server.

pub mod agent;

use neonvm_types::objects;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::pod_autoscaler;
use crate::{
    FieldError, IPPool, MigrationPolicy, PodAutoscaler, Policy, VirtualMachine, VirtualMachineMigration,
    apply_defaults, crd, next_start, normalise, removed, validate,
};

/// The result of admission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Faults; the object is refused if there are any.
    pub errors: Vec<FieldError>,
    /// Warnings for the author of an object that is accepted.
    pub warnings: Vec<FieldError>,
}

/// Where a VM has what changes at its next start; `/` is written `~1` in a pointer.
const NEXT_START: &str = "/metadata/annotations/vm.neon.tech~1at-next-start";

/// Path of a fault that concerns the object as a whole.
const OBJECT: &str = "object";

/// Normalises `new` and gives it its defaults, in place, then returns its faults. `old` is the stored object of an
/// update. Objects of other kinds are admitted unchanged.
///
/// An update is only checked if the spec changes (of a pod autoscaler, its annotations too), so that an object stored
/// under older rules can still lose its finalizers.
pub fn admit(kind: &str, new: &mut Value, old: Option<&Value>) -> Verdict {
    let removed = removed::take(kind, new);
    let errors = normalise(kind, new);
    apply_defaults(kind, new);
    if !errors.is_empty() {
        return Verdict { errors: unreadable(kind, new, errors), warnings: removed };
    }
    let old = old.map(|old| {
        let mut old = old.clone();
        // What is wrong with the stored object is not this writer's fault.
        removed::take(kind, &mut old);
        let _ = normalise(kind, &mut old);
        apply_defaults(kind, &mut old);
        old
    });
    if let Some(old) = &old {
        keep(kind, new, old);
    }
    // Other annotations change often and are not refused.
    let parts: &[&str] = match kind {
        "PodAutoscaler" => &["/spec", "/metadata/annotations"],
        "VirtualMachine" => &["/spec", NEXT_START],
        _ => &["/spec"],
    };
    if old.as_ref().is_some_and(|old| parts.iter().all(|part| old.pointer(part) == new.pointer(part))) {
        return Verdict::default();
    }
    let verdict = match kind {
        "VirtualMachine" => machine(new, old.as_ref()),
        "VirtualMachineMigration" => {
            check(new, old.as_ref(), validate::migration_create, validate::migration_update)
        }
        "MigrationPolicy" => {
            check(new, old.as_ref(), validate::migration_policy, |_: &MigrationPolicy, new| {
                validate::migration_policy(new)
            })
        }
        "IPPool" => check(new, old.as_ref(), validate::ip_pool, |_: &IPPool, new| validate::ip_pool(new)),
        "PodAutoscaler" => autoscaler(new, old.as_ref()),
        _ => Ok(Verdict::default()),
    };
    let mut verdict = verdict
        .unwrap_or_else(|error| Verdict { errors: unreadable(kind, new, vec![error]), warnings: Vec::new() });
    verdict.warnings.splice(..0, removed);
    verdict
}

/// What the system fills in once, and others may leave out: the stored value stays. The rules of the definitions refuse to remove it.
const KEPT: [(&str, &str); 3] = [
    ("VirtualMachine", "cpuScalingMode"),
    ("VirtualMachine", "targetArchitecture"),
    ("VirtualMachineMigration", "cancel"),
];

/// Gives `new` the values of [`KEPT`] that it leaves out, so that a manifest that was applied once can be written again.
fn keep(kind: &str, new: &mut Value, old: &Value) {
    for (_, field) in KEPT.iter().filter(|(of, _)| *of == kind) {
        let stored = old.pointer(&format!("/spec/{field}")).filter(|stored| !stored.is_null());
        let spec = new.get_mut("spec").and_then(Value::as_object_mut);
        if let (Some(stored), Some(spec)) = (stored, spec)
            && spec.get(*field).is_none_or(Value::is_null)
        {
            spec.insert((*field).to_owned(), stored.clone());
        }
    }
}

/// Every fault of an object that cannot be read, by the schema; `known` if that finds none.
fn unreadable(kind: &str, object: &Value, known: Vec<FieldError>) -> Vec<FieldError> {
    let mut all = crd::faults(kind, object);
    let named: Vec<FieldError> =
        known.into_iter().filter(|one| all.is_empty() || one.path != OBJECT).collect();
    all.retain(|fault| named.iter().all(|one| one.path != fault.path));
    named.into_iter().chain(all).collect()
}

/// What a policy refuses of a VM that is written. Parts that an update leaves as they were are not its writer's fault: the controller
/// refuses them when it makes a pod. Objects of other kinds, and those that [`admit`] refuses, pass.
#[must_use]
pub fn refused(policy: &Policy, kind: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if kind == "VirtualMachineMigration" {
        // A migration does not change.
        let new = read::<VirtualMachineMigration>(new).ok().filter(|_| old.is_none());
        return new.map(|new| policy.refusals_of_migration(&new.spec)).unwrap_or_default();
    }
    if kind != "VirtualMachine" {
        return Vec::new();
    }
    let Ok(vm) = read::<VirtualMachine>(new) else { return Vec::new() };
    let at = |object: &Value, path: &str| {
        let whole = path.split('[').next().unwrap_or(path);
        object.pointer(&format!("/{}", whole.replace('.', "/"))).cloned()
    };
    let mut refusals = policy.refusals(&vm.spec);
    // What the spec will be is its author's request, too.
    if let Ok(Some(next)) = next_start::changed(&vm) {
        let later =
            policy.refusals(&next.spec).into_iter().filter(|one| !refusals.contains(one)).collect::<Vec<_>>();
        if old.is_none_or(|old| old.pointer(NEXT_START) != new.pointer(NEXT_START)) && !later.is_empty() {
            return later;
        }
    }
    refusals.retain(|refusal| old.is_none_or(|old| at(old, &refusal.path) != at(new, &refusal.path)));
    refusals
}

fn read<T: DeserializeOwned>(object: &Value) -> Result<T, FieldError> {
    objects::from_value(object.clone())
        .map_err(|error| FieldError { path: OBJECT.to_owned(), message: format!("cannot be read: {error}") })
}

fn check<T: DeserializeOwned>(
    new: &Value,
    old: Option<&Value>,
    create: impl FnOnce(&T) -> Vec<FieldError>,
    update: impl FnOnce(&T, &T) -> Vec<FieldError>,
) -> Result<Verdict, FieldError> {
    let new: T = read(new)?;
    // An old object that cannot be read leaves nothing to compare with; the new one must stand by itself.
    let errors = match old.map(read::<T>) {
        Some(Ok(old)) => update(&old, &new),
        _ => create(&new),
    };
    Ok(Verdict { errors, warnings: Vec::new() })
}

fn autoscaler(new: &Value, old: Option<&Value>) -> Result<Verdict, FieldError> {
    let verdict =
        check(new, old, validate::pod_autoscaler, |_: &PodAutoscaler, new| validate::pod_autoscaler(new))?;
    let warnings = pod_autoscaler::warnings(&read::<PodAutoscaler>(new)?);
    Ok(Verdict { warnings, ..verdict })
}

fn machine(new: &Value, old: Option<&Value>) -> Result<Verdict, FieldError> {
    let mut verdict = check(new, old, validate::virtual_machine_create, validate::virtual_machine_update)?;
    let vm = read::<VirtualMachine>(new)?;
    if old.is_none_or(|old| old.pointer(NEXT_START) != new.pointer(NEXT_START)) {
        verdict.errors.extend(at_next_start(&vm));
    }
    Ok(Verdict { warnings: validate::virtual_machine_warnings(&vm), ..verdict })
}

/// Faults of what a VM becomes at its next start.
fn at_next_start(vm: &VirtualMachine) -> Vec<FieldError> {
    let next = match next_start::changed(vm) {
        Ok(Some(next)) => next,
        Ok(None) => return Vec::new(),
        Err(error) => return vec![error],
    };
    let mut faults = validate::virtual_machine_create(&next);
    for fault in &mut faults {
        fault.message = format!("at its next start: {}", fault.message);
    }
    faults
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn machine() -> Value {
        json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": "a"}, "spec": {"guest": {
            "cpus": {"min": 0.25, "max": 1, "use": 0.25}, "memorySlots": {"min": 1, "max": 4, "use": 1},
            "rootDisk": {"image": "i", "execute": ["x"]}}}})
    }

    fn paths(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|error| error.path.as_str()).collect()
    }

    #[test]
    fn an_update_answers_for_what_it_changes() {
        let policy = Policy::default();
        let mut old = machine();
        old["spec"]["initScript"] = json!("id");
        let mut new = old.clone();
        assert_eq!(paths(&refused(&policy, "VirtualMachine", &new, None)), ["spec.initScript"]);
        assert_eq!(refused(&policy, "VirtualMachine", &new, Some(&old)), []);
        new["spec"]["overcommit"] = json!({"cpu": "2"});
        assert_eq!(paths(&refused(&policy, "VirtualMachine", &new, Some(&old))), ["spec.overcommit"]);
        assert_eq!(refused(&policy, "IPPool", &new, None), []);
    }

    #[test]
    fn a_machine_is_normalised_completed_and_warned_about() {
        let mut new = machine();
        let verdict = admit("VirtualMachine", &mut new, None);
        assert_eq!(verdict.errors, []);
        assert_eq!(paths(&verdict.warnings), ["spec.guest.rootDisk.execute"]);
        assert_eq!(new.pointer("/spec/guest/cpus/min"), Some(&json!("250m")));
        assert_eq!(new.pointer("/spec/runnerPort"), Some(&json!(25183)));
    }

    #[test]
    fn faults_of_each_step_refuse_it() {
        for (pointer, value, path) in [
            ("/spec/guest/cpus/min", json!("x"), "spec.guest.cpus.min"),
            ("/spec/guest/memorySlots", json!("x"), "spec.guest.memorySlots"),
            ("/spec/guest/cpus/use", json!(2), "spec.guest.cpus.use"),
        ] {
            let mut new = machine();
            *new.pointer_mut(pointer).unwrap() = value;
            assert_eq!(paths(&admit("VirtualMachine", &mut new, None).errors), [path]);
        }
    }

    #[test]
    fn every_field_that_is_missing_or_of_another_type_is_named() {
        let mut new = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": {"name": "a"}, "spec": {
            "enableSSH": "yes", "tls": ["issuer"], "podResources": [], "restartPolicy": "Sometimes", "guest": {"cpus": {"min": "x"}, "memorySlots": {"min": 70_000, "max": 1},
            "rootDisk": {}, "ports": [{}, {"port": "http"}], "command": "sleep"}, "disks": [{"name": "d"}]}});
        let errors = admit("VirtualMachine", &mut new, None).errors;
        let mut found = paths(&errors);
        found.sort_unstable();
        assert_eq!(
            found,
            [
                "spec.disks[0].mountPath",
                "spec.enableSSH",
                "spec.guest.command",
                "spec.guest.cpus.max",
                "spec.guest.cpus.min",
                "spec.guest.cpus.use",
                "spec.guest.memorySlots.min",
                "spec.guest.memorySlots.use",
                "spec.guest.ports[0].port",
                "spec.guest.ports[1].port",
                "spec.guest.rootDisk.image",
                "spec.podResources",
                "spec.restartPolicy",
                "spec.tls",
            ]
        );
        for (kind, path) in [
            ("VirtualMachine", "spec"),
            ("VirtualMachineMigration", "spec"),
            ("PodAutoscaler", "spec"),
            ("IPPool", "spec"),
        ] {
            let errors = admit(kind, &mut json!({"metadata": {"name": "a"}}), None).errors;
            assert_eq!(paths(&errors), [path], "{errors:?}");
        }
    }

    #[test]
    fn a_change_for_the_next_start_is_checked_like_a_spec() {
        let mut old = machine();
        old["status"] = json!({"podName": "a-1"});
        let with = |patch: &str| {
            let mut new = old.clone();
            new["metadata"]["annotations"] = json!({"vm.neon.tech/at-next-start": patch});
            let verdict = admit("VirtualMachine", &mut new, Some(&old));
            let refused = refused(&Policy::default(), "VirtualMachine", &new, Some(&old));
            verdict.errors.into_iter().chain(refused).map(|error| error.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(with(r#"{"guest": {"cpus": {"max": "4"}}}"#), [""; 0]);
        let errors = with(r#"{"guest": {"cpus": {"max": "100m"}}}"#);
        assert!(
            errors[0].starts_with("spec.guest.cpus.use: at its next start: 100m is below min 250m"),
            "{errors:?}"
        );
        assert!(
            with("x")[0]
                .starts_with("metadata.annotations[vm.neon.tech/at-next-start]: is not a JSON object")
        );
        assert!(
            with(r#"{"initScript": "id"}"#)[0].starts_with("spec.initScript"),
            "a policy counts for later, too"
        );
    }

    #[test]
    fn an_update_is_compared_in_canonical_form() {
        let old = machine();
        let mut new = machine();
        new["spec"]["guest"]["cpus"] = json!({"min": "250m", "max": "1", "use": 1});
        assert_eq!(admit("VirtualMachine", &mut new, Some(&old)).errors, []);
        new["spec"]["guest"]["cpus"]["max"] = json!(2);
        assert_eq!(admit("VirtualMachine", &mut new, Some(&old)).errors, [], "it has no pod");
        let mut old = old;
        old["status"] = json!({"podName": "a-1"});
        assert_eq!(paths(&admit("VirtualMachine", &mut new, Some(&old)).errors), ["spec.guest.cpus.max"]);
    }

    #[test]
    fn an_object_stored_under_older_rules_can_lose_its_finalizer() {
        let mut old = machine();
        old["spec"]["guest"]["cpus"]["use"] = json!(9);
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!([]);
        new["metadata"]["annotations"] = json!({"a": "b"});
        assert_eq!(admit("VirtualMachine", &mut new, Some(&old)), Verdict::default());
        new["spec"]["guest"]["cpus"]["use"] = json!(8);
        assert_eq!(paths(&admit("VirtualMachine", &mut new, Some(&old)).errors), ["spec.guest.cpus.use"]);
    }

    #[test]
    fn the_other_kinds() {
        let mut migration = json!({"metadata": {"name": "m"}, "spec": {"vmName": ""}});
        assert_eq!(paths(&admit("VirtualMachineMigration", &mut migration, None).errors), ["spec.vmName"]);
        let mut pool = json!({"metadata": {"name": "p"}, "spec": {"range": "x", "allocations": {}}});
        assert_eq!(paths(&admit("IPPool", &mut pool, None).errors), ["spec.range"]);
        let mut autoscaler = json!({"metadata": {"name": "a"}, "spec": {"scaleTargetRef": {"kind": "D", "name": "d"},
            "maxReplicas": 1, "scalingStrategy": "KPA"}});
        assert_eq!(paths(&admit("PodAutoscaler", &mut autoscaler, None).errors), ["spec.metricsSources"]);
        let old = autoscaler.clone();
        assert_eq!(admit("PodAutoscaler", &mut autoscaler, Some(&old)), Verdict::default());
        autoscaler["metadata"]["annotations"] = json!({"autoscaling.aibrix.ai/panic-threshold": "x"});
        assert_eq!(admit("PodAutoscaler", &mut autoscaler, Some(&old)).errors.len(), 2);
        let mut old_words = json!({"metadata": {"name": "a", "annotations": {
            "kpa.autoscaling.aibrix.ai/panic-window": "10s"}}, "spec": {
            "scaleTargetRef": {"kind": "D", "name": "d"}, "maxReplicas": 1, "scalingStrategy": "KPA",
            "metricsSources": [{"metricSourceType": "pod", "protocolType": "http", "path": "/m", "port": "1",
                "targetMetric": "m", "targetValue": 1, "quantile": 0.99}]}});
        let verdict = admit("PodAutoscaler", &mut old_words, None);
        assert_eq!((verdict.errors, verdict.warnings.len()), (Vec::new(), 1));
        assert_eq!(old_words.pointer("/spec/metricsSources/0/quantile"), Some(&json!("0.99")));
        assert_eq!(admit("Pod", &mut json!({"spec": 1}), None), Verdict::default());
    }

    proptest! {
        #[test]
        fn what_is_admitted_once_is_admitted_unchanged(use_milli in 250u32..=1000, slots in 1u16..=4) {
            let mut new = machine();
            new["spec"]["guest"]["cpus"]["use"] = json!(f64::from(use_milli) / 1000.0);
            new["spec"]["guest"]["memorySlots"]["use"] = json!(slots);
            prop_assert_eq!(admit("VirtualMachine", &mut new, None).errors, []);
            let stored = new.clone();
            prop_assert_eq!(admit("VirtualMachine", &mut new, Some(&stored)), Verdict::default());
            prop_assert_eq!(new, stored);
        }
    }
}
