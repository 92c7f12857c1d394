//! Changes of a VM's spec that wait for its next start: a merge patch (RFC 7386) in an annotation.
//!
//! What a pod is made of cannot change while the pod exists. A change of it can be left in the annotation; the controller writes it
//! into the spec between two pods.

use serde_json::{Map, Value};

use crate::merge_patch::{difference, merge};
use crate::names::annotation::AT_NEXT_START;
use crate::{FieldError, VirtualMachine, VirtualMachineSpec, while_off};

/// Fields about what runs when; they take effect at once.
const AT_ONCE: [&str; 2] = ["powerState", "restartRequest"];

/// The patch that waits for the next start of the VM, if there is one.
///
/// # Errors
/// When the annotation is not a JSON object, or has a field that takes effect at once. The path of the error is the annotation's.
pub fn patch(vm: &VirtualMachine) -> Result<Option<Map<String, Value>>, FieldError> {
    let text = vm.metadata.annotations.as_ref().and_then(|annotations| annotations.get(AT_NEXT_START));
    let Some(text) = text else { return Ok(None) };
    let refused =
        |message: String| FieldError { path: format!("metadata.annotations[{AT_NEXT_START}]"), message };
    let patch: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        refused(format!("is not a JSON object, a merge patch of the spec: {error}; correct or remove it"))
    })?;
    match AT_ONCE.iter().find(|field| patch.contains_key(**field)) {
        Some(field) => Err(refused(format!("has {field}, which takes effect at once; set spec.{field}"))),
        None => Ok(Some(patch)),
    }
}

/// The VM as it will be after its next start, if a change waits for it: with a size within the bounds of then.
///
/// # Errors
/// As [`patch`], and when the result is not a VM.
pub fn changed(vm: &VirtualMachine) -> Result<Option<VirtualMachine>, FieldError> {
    let Some(patch) = patch(vm)? else { return Ok(None) };
    let unreadable = |error: serde_json::Error| FieldError {
        path: format!("metadata.annotations[{AT_NEXT_START}]"),
        message: format!("does not give a VM: {error}"),
    };
    let mut object = serde_json::to_value(vm).map_err(unreadable)?;
    if let Some(spec) = object.get_mut("spec") {
        merge(spec, &Value::Object(patch));
    }
    let mut next: VirtualMachine = neonvm_types::objects::from_value(object).map_err(unreadable)?;
    fit(&mut next.spec);
    next.spec.drop_stale_limits();
    Ok(Some(next))
}

/// The merge patch that turns the spec into that of the next start; empty if none waits or the annotation is not readable.
///
/// # Errors
/// As [`changed`].
pub fn amendment(vm: &VirtualMachine) -> Result<Option<Map<String, Value>>, FieldError> {
    let Some(next) = changed(vm)? else { return Ok(None) };
    let (before, after) = (serde_json::to_value(&vm.spec), serde_json::to_value(&next.spec));
    let difference = before.ok().zip(after.ok()).and_then(|(before, after)| difference(&before, &after));
    Ok(Some(difference.and_then(|change| change.as_object().cloned()).unwrap_or_default()))
}

/// Brings the size within the bounds.
fn fit(spec: &mut VirtualMachineSpec) {
    let (cpus, slots) = (&mut spec.guest.cpus, &mut spec.guest.memory_slots);
    cpus.r#use = cpus.r#use.max(cpus.min).min(cpus.max);
    slots.r#use = slots.r#use.max(slots.min).min(slots.max);
}

/// What of a change of the spec can be written at once, and what waits for the next start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Merge patch of the spec for now.
    pub now: Map<String, Value>,
    /// Merge patch of the spec for the annotation.
    pub later: Map<String, Value>,
}

/// Plans how the VM gets this spec.
#[must_use]
pub fn plan(vm: &VirtualMachine, target: &Value) -> Plan {
    let current = serde_json::to_value(&vm.spec).unwrap_or_default();
    let has_pod = vm.status.as_ref().is_some_and(|status| !status.pod_name.is_empty());
    let mut target = target.clone();
    limits_follow_disks(&vm.spec, &mut target, has_pod);
    let change =
        difference(&current, &target).and_then(|change| change.as_object().cloned()).unwrap_or_default();
    let mut plan = if has_pod { split(&change) } else { Plan { now: change, later: Map::new() } };
    let mut spec = current;
    merge(&mut spec, &Value::Object(plan.now.clone()));
    let Ok(mut spec) = serde_json::from_value::<VirtualMachineSpec>(spec) else { return plan };
    if spec.guest.cpus.min > spec.guest.cpus.max {
        // The new minimum is above the maximum of now.
        let moved = remove(&mut plan.now, &["guest", "cpus", "min"]);
        put(&mut plan.later, &["guest", "cpus", "min"], moved);
        spec.guest.cpus.min = vm.spec.guest.cpus.min;
    }
    // The size that the bounds of now allow; the next start brings it within the bounds of then.
    fit(&mut spec);
    let (before, after) = (&vm.spec.guest, &spec.guest);
    let cpu = (before.cpus.r#use != after.cpus.r#use).then_some(after.cpus.r#use);
    replace(&mut plan.now, &["guest", "cpus", "use"], cpu.and_then(|cpu| serde_json::to_value(cpu).ok()));
    let slots = (before.memory_slots.r#use != after.memory_slots.r#use).then_some(after.memory_slots.r#use);
    replace(&mut plan.now, &["guest", "memorySlots", "use"], slots.map(Value::from));
    plan
}

/// The limits of a disk go with it: at once, or, while there is a pod, at the next start as [`changed`] has it.
fn limits_follow_disks(before: &VirtualMachineSpec, target: &mut Value, has_pod: bool) {
    let Ok(mut after) = serde_json::from_value::<VirtualMachineSpec>(target.clone()) else { return };
    after.drop_stale_limits();
    let mut kept = VirtualMachineSpec { disks: after.disks.clone(), ..before.clone() };
    kept.drop_stale_limits();
    let waits = has_pod && kept.disk_limits == after.disk_limits;
    let limits = if waits { &before.disk_limits } else { &after.disk_limits };
    let limits = serde_json::to_value(limits).ok().filter(|limits| *limits != Value::Array(Vec::new()));
    if let Some(fields) = target.as_object_mut() {
        fields.remove("diskLimits");
        fields.extend(limits.map(|limits| ("diskLimits".to_owned(), limits)));
    }
}

/// Sets a value, or removes it.
fn replace(patch: &mut Map<String, Value>, path: &[&str], value: Option<Value>) {
    match value {
        Some(_) => put(patch, path, value),
        None => drop(remove(patch, path)),
    }
}

/// Parts a patch by the table of [`while_off`].
fn split(change: &Map<String, Value>) -> Plan {
    fn walk(prefix: &str, change: &Map<String, Value>) -> Plan {
        let mut plan = Plan::default();
        for (name, value) in change {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                _ if while_off::has(&path) => {
                    plan.later.insert(name.clone(), value.clone());
                }
                Value::Object(below) => {
                    let parts = walk(&path, below);
                    for (target, part) in [(&mut plan.now, parts.now), (&mut plan.later, parts.later)] {
                        if !part.is_empty() {
                            target.insert(name.clone(), Value::Object(part));
                        }
                    }
                }
                _ => drop(plan.now.insert(name.clone(), value.clone())),
            }
        }
        plan
    }
    walk("", change)
}

/// Takes a value out, and the objects that are empty without it. Recursion is as deep as the path is long.
fn remove(patch: &mut Map<String, Value>, path: &[&str]) -> Option<Value> {
    let (first, rest) = path.split_first()?;
    if rest.is_empty() {
        return patch.remove(*first);
    }
    let below = patch.get_mut(*first)?.as_object_mut()?;
    let found = remove(below, rest)?;
    if below.is_empty() {
        patch.remove(*first);
    }
    Some(found)
}

fn put(patch: &mut Map<String, Value>, path: &[&str], value: Option<Value>) {
    let Some(((last, parents), value)) = path.split_last().zip(value) else { return };
    let mut node = patch;
    for name in parents {
        let below = node.entry((*name).to_owned()).or_insert_with(|| Value::Object(Map::new()));
        let Some(fields) = below.as_object_mut() else { return };
        node = fields;
    }
    node.insert((*last).to_owned(), value);
}

/// The paths below `spec` that the patch changes, in order.
#[must_use]
pub fn paths(patch: &Map<String, Value>) -> Vec<String> {
    fn collect(prefix: &str, fields: &Map<String, Value>, paths: &mut Vec<String>) {
        for (name, value) in fields {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                Value::Object(below) if !below.is_empty() => collect(&path, below, paths),
                _ => paths.push(path),
            }
        }
    }
    let mut paths = Vec::new();
    collect("", patch, &mut paths);
    paths
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn vm(annotation: &str) -> VirtualMachine {
        serde_json::from_value(json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": {"name": "a", "annotations": {AT_NEXT_START: annotation}}, "spec": {"guest": {
            "cpus": {"min": "250m", "max": "1", "use": "250m"}, "memorySlots": {"min": 1, "max": 4, "use": 1},
            "rootDisk": {"image": "i"}}}}))
        .unwrap()
    }

    #[test]
    fn the_patch_is_merged_into_the_spec() {
        let vm = vm(r#"{"guest": {"cpus": {"max": "4"}, "command": ["a"]}}"#);
        let next = changed(&vm).unwrap().unwrap();
        assert_eq!(next.spec.guest.cpus.max.to_string(), "4");
        assert_eq!(next.spec.guest.cpus.min, vm.spec.guest.cpus.min);
        assert_eq!(next.spec.guest.command, ["a"]);
        assert_eq!(paths(&patch(&vm).unwrap().unwrap()), ["guest.command", "guest.cpus.max"]);
    }

    #[test]
    fn what_is_no_patch_is_refused_with_the_annotation_as_path() {
        for (text, part) in [
            ("[]", "not a JSON object"),
            ("{", "not a JSON object"),
            (r#"{"powerState": "Stopped"}"#, "set spec.powerState"),
            (r#"{"guest": 1}"#, "does not give a VM"),
        ] {
            let error = changed(&vm(text)).unwrap_err();
            assert_eq!(error.path, "metadata.annotations[vm.neon.tech/at-next-start]");
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn what_needs_no_pod_waits_for_the_next_start_of_a_vm_that_has_one() {
        let mut vm = vm("");
        vm.metadata.annotations = None;
        let mut target = serde_json::to_value(&vm.spec).unwrap();
        merge(
            &mut target,
            &json!({"guest": {"cpus": {"min": "500m", "max": "4"}, "env": [{"name": "A", "value": "1"}]}, "overcommit": {"cpu": "2"}}),
        );
        let off = plan(&vm, &target);
        assert_eq!(off.later, Map::new());
        assert_eq!(off.now["guest"]["cpus"], json!({"min": "500m", "max": "4", "use": "500m"}));
        vm.status = Some(serde_json::from_value(json!({"podName": "a-1"})).unwrap());
        let on = plan(&vm, &target);
        let now = json!({"guest": {"cpus": {"min": "500m", "use": "500m"}}, "overcommit": {"cpu": "2"}});
        assert_eq!(Value::Object(on.now), now);
        let later = json!({"guest": {"cpus": {"max": "4"}, "env": [{"name": "A", "value": "1"}]}});
        assert_eq!(Value::Object(on.later), later);
        // A minimum above the maximum of now waits with the maximum.
        merge(&mut target, &json!({"guest": {"cpus": {"min": "2"}}}));
        let on = plan(&vm, &target);
        assert_eq!(on.now.get("guest"), None);
        assert_eq!(on.later["guest"]["cpus"], json!({"min": "2", "max": "4"}));
    }

    /// Least, present and largest size, in units.
    fn bounds() -> impl Strategy<Value = [u32; 3]> {
        proptest::array::uniform3(1u32..=8).prop_map(|mut three| {
            three.sort_unstable();
            three
        })
    }

    fn spec(cpus: [u32; 3], slots: [u32; 3]) -> Value {
        let cpu = |units: u32| json!(format!("{}m", units * 250));
        json!({"cpus": {"min": cpu(cpus[0]), "use": cpu(cpus[1]), "max": cpu(cpus[2])},
            "memorySlots": {"min": slots[0], "use": slots[1], "max": slots[2]}, "rootDisk": {"image": "i"}})
    }

    proptest! {
        /// Whatever bounds a running VM gets: admission takes the change of now, and the next start has the bounds of then.
        #[test]
        fn any_bounds_can_be_planned(cpus in bounds(), slots in bounds(), next_cpus in bounds(), next_slots in bounds()) {
            let object = |guest: Value| json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
                "metadata": {"name": "a"}, "spec": {"guest": guest}, "status": {"podName": "a-1"}});
            let mut old = object(spec(cpus, slots));
            prop_assert_eq!(crate::admit("VirtualMachine", &mut old, None).errors, []);
            let vm: VirtualMachine = serde_json::from_value(old.clone()).unwrap();
            let mut target = serde_json::to_value(&vm.spec).unwrap();
            merge(&mut target, &json!({"guest": spec(next_cpus, next_slots)}));
            let plan = plan(&vm, &target);
            let mut new = old.clone();
            merge(&mut new, &json!({"spec": plan.now}));
            if !plan.later.is_empty() {
                let later = Value::Object(plan.later.clone()).to_string();
                new["metadata"]["annotations"] = json!({AT_NEXT_START: later});
            }
            let verdict = crate::admit("VirtualMachine", &mut new, Some(&old));
            prop_assert_eq!(verdict.errors, [], "{:?}", plan);
            let vm: VirtualMachine = serde_json::from_value(new).unwrap();
            let next = changed(&vm).unwrap().unwrap_or(vm).spec.guest;
            let wanted: VirtualMachine = serde_json::from_value(object(spec(next_cpus, next_slots))).unwrap();
            let wanted = wanted.spec.guest;
            prop_assert_eq!((next.cpus.min, next.cpus.max), (wanted.cpus.min, wanted.cpus.max));
            let bounds = |slots: crate::virtual_machine::MemorySlots| (slots.min, slots.max);
            prop_assert_eq!(bounds(next.memory_slots), bounds(wanted.memory_slots));
        }
    }

    /// The limits of a disk that is removed go with it, without being named; others can change at any time.
    #[test]
    fn limits_go_with_their_disk() {
        let limits = json!([{"disk": "data", "iops": 100}, {"disk": "rootdisk", "iops": 50}]);
        let mut vm = vm("");
        vm.metadata.annotations = None;
        let plain = serde_json::to_value(&vm.spec).unwrap();
        let mut both = plain.clone();
        merge(
            &mut both,
            &json!({"disks": [{"name": "data", "mountPath": "/data", "emptyDisk": {"size": "1Gi"}}], "diskLimits": limits}),
        );
        vm.spec = serde_json::from_value(both.clone()).unwrap();
        let mut without = both.clone();
        without["disks"] = json!([]);
        let rest = json!([{"disk": "rootdisk", "iops": 50}]);
        assert_eq!(plan(&vm, &without).now["diskLimits"], rest);
        vm.status = Some(serde_json::from_value(json!({"podName": "a-1"})).unwrap());
        let on = plan(&vm, &without);
        assert_eq!((on.now.len(), paths(&on.later)), (0, vec!["disks".to_owned()]), "{on:?}");
        vm.metadata.annotations = Some([(AT_NEXT_START.into(), Value::Object(on.later).to_string())].into());
        let next = changed(&vm).unwrap().unwrap();
        assert_eq!(serde_json::to_value(&next.spec.disk_limits).unwrap(), rest);
        let unlimited = plan(&vm, &plain);
        assert_eq!(unlimited.now["diskLimits"], Value::Null);
    }

    #[test]
    fn the_size_of_the_next_start_is_within_its_bounds() {
        let vm = vm(r#"{"guest": {"cpus": {"max": "100m", "min": "50m"}, "memorySlots": {"min": 2}}}"#);
        let next = changed(&vm).unwrap().unwrap().spec.guest;
        assert_eq!((next.cpus.r#use.milli(), next.memory_slots.r#use), (100, 2));
        let patch = amendment(&vm).unwrap().unwrap();
        assert_eq!(patch["guest"]["cpus"]["use"], "100m");
        assert_eq!(patch["guest"]["memorySlots"], json!({"min": 2, "use": 2}));
    }
}
