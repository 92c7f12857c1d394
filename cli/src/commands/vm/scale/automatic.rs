//! What users may request for a VM that is scaled by its load: bounds, holds, on and off. Pure.

use std::time::Duration;

use neonvm_api::names::{TRUE, annotation, label};
use neonvm_api::{BoundResources, Hold, ScalingBounds, VirtualMachine, VmInfo};
use neonvm_types::{MilliCpu, Resources, Timestamp};
use serde_json::{Value, json};

use crate::args::vm::Scale;
use crate::commands::flags::duration;
use crate::commands::vm::size::{self, UNIT_CPU, UNIT_MEMORY, cores, in_units};
use crate::commands::vm::table;
use crate::error::{Code, Error, Result};

/// Changes of labels and annotations, and what they mean.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) labels: serde_json::Map<String, Value>,
    pub(super) annotations: serde_json::Map<String, Value>,
    pub(super) notes: Vec<String>,
    /// The size that is held from now on.
    pub(super) held: Option<Resources>,
}

/// A size in words: compute units if it is a whole number of them.
pub(super) fn words(size: Resources) -> String {
    match in_units(size.vcpus, size.mem) {
        Some(units) => format!("{units} CU"),
        None => format!("{} CPU, {}", cores(size.vcpus), size.mem),
    }
}

pub(super) fn flags(size: Resources) -> String {
    match in_units(size.vcpus, size.mem) {
        Some(units) => format!("--cu {units}"),
        None => format!("--cpu {} --memory {}", cores(size.vcpus), size.mem),
    }
}

/// `2cu`, or `CPU,MEMORY`.
fn end(flag: &str, text: &str) -> Result<Resources> {
    if let Some(units) = text.strip_suffix("cu") {
        let units = size::units(flag, units)?;
        return Ok(Resources::new(
            UNIT_CPU.saturating_mul(units),
            UNIT_MEMORY.saturating_mul(u32::from(units)),
        ));
    }
    let Some((cpu, memory)) = text.split_once(',') else {
        return Err(Error::new(Code::Usage, format!("--{flag}: {text:?} is not valid"))
            .hint("use compute units such as 4cu, or CPU and memory such as 2,8Gi"));
    };
    Ok(Resources::new(size::cpu(flag, cpu)?, size::memory(flag, memory)?))
}

/// The bounds a VM was made with.
fn made_with(machine: &VirtualMachine) -> Result<(Resources, Resources)> {
    let guest = &machine.spec.guest;
    let slot = guest.slot_size().map_err(|error| Error::new(Code::Failed, error.to_string()))?;
    let end = |cpu: MilliCpu, slots: u16| Resources::new(cpu, slot.saturating_mul(u32::from(slots)));
    Ok((end(guest.cpus.min, guest.memory_slots.min), end(guest.cpus.max, guest.memory_slots.max)))
}

fn info(machine: &VirtualMachine) -> Result<VmInfo> {
    VmInfo::from_vm(machine).map_err(|error| {
        Error::new(Code::Conflict, format!("the annotations of the VM are not valid: {error}"))
            .hint("correct them with kubectl annotate, or remove them")
    })
}

fn outside(name: &str, what: &str, size: Resources, (least, most): (Resources, Resources)) -> Option<Error> {
    (size.any_less(least) || size.any_greater(most)).then(|| {
        let bounds = format!("{} to {}", words(least), words(most));
        Error::new(
            Code::Conflict,
            format!("cannot {what} {name} at {}: it must lie within {bounds}", words(size)),
        )
    })
}

/// What is to be changed. `now` is the time of the wall clock; `asked` the size that was named, if one was.
pub(super) fn changes(
    machine: &VirtualMachine,
    args: &Scale,
    asked: Option<Resources>,
    now: Timestamp,
) -> Result<Changes> {
    let mut changes = Changes::default();
    let mut on = table::is_on(machine);
    if let Some(auto) = &args.auto {
        on = auto == "on";
        changes.labels.insert(label::SCALING_ENABLED.into(), json!(if on { TRUE } else { "false" }));
        changes.notes.push(format!("scaling by load {auto}"));
        if !on {
            changes.annotations.insert(annotation::HOLD.into(), Value::Null);
        }
    }
    if args.min.is_some() || args.max.is_some() {
        bounds(machine, args, &mut changes)?;
        if !on {
            changes.notes.push("(scaling by load is off: --auto on turns it on)".into());
        }
    }
    let name = &args.name;
    match (&args.hold, asked) {
        (Some(hold), _) if hold == "off" && args.force => {
            return Err(Error::new(Code::Usage, "--force cannot be combined with --hold off"));
        }
        (None, Some(_)) if on => {
            return Err(Error::new(
                Code::Conflict,
                format!("{name} is autoscaled; a fixed size would be overwritten"),
            )
            .hint(format!(
                "hold the size for some time: add --hold 30m; or permanently: neonctl vm scale {name} --auto off"
            )));
        }
        (None, _) => {}
        (Some(hold), None) if hold == "off" => {
            changes.annotations.insert(annotation::HOLD.into(), Value::Null);
            changes.notes.push("is no longer held".into());
        }
        (Some(hold), _) if hold == "off" => {
            return Err(Error::new(Code::Usage, "--hold off cannot be combined with a size"));
        }
        (Some(_), _) if !on => {
            return Err(Error::new(
                Code::Conflict,
                format!("{name} is not scaled by its load and keeps its size without --hold"),
            )
            .hint("omit --hold"));
        }
        (Some(text), asked) => hold(machine, args, (text, asked, now), &mut changes)?,
    }
    Ok(changes)
}

fn hold(
    machine: &VirtualMachine,
    args: &Scale,
    (text, asked, now): (&str, Option<Resources>, Timestamp),
    changes: &mut Changes,
) -> Result<()> {
    let span = duration("hold", text)?;
    let year = Duration::from_secs(365 * 86_400);
    if span < Duration::from_secs(1) || span > year {
        return Err(Error::new(Code::Usage, format!("--hold: {text:?} is not between 1s and a year")));
    }
    let info = info(machine)?;
    let size = asked.unwrap_or_else(|| info.using());
    if let Some(error) = outside(&args.name, "hold", size, (info.min(), info.max())) {
        return Err(error.hint("widen the bounds first: --min, --max"));
    }
    let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    let until = Timestamp::from_unix(now.unix().saturating_add(seconds)).unwrap_or(now);
    let value = serde_json::to_string(&Hold { size, until, force: args.force }).map_err(unwritable)?;
    changes.annotations.insert(annotation::HOLD.into(), json!(value));
    let force = if args.force { ", CPU without the guest's consent" } else { "" };
    changes.notes.push(format!("held at {}{force}, autoscaling resumes in {text}", words(size)));
    changes.held = Some(size);
    Ok(())
}

/// An annotation is never written empty because its value could not be.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unwritable(error: serde_json::Error) -> Error {
    Error::new(Code::Failed, "cannot write the annotation").cause(error.to_string())
}

fn bounds(machine: &VirtualMachine, args: &Scale, changes: &mut Changes) -> Result<()> {
    let info = info(machine)?;
    let made = made_with(machine)?;
    let min = args.min.as_deref().map(|text| end("min", text)).transpose()?.unwrap_or_else(|| info.min());
    let max = args.max.as_deref().map(|text| end("max", text)).transpose()?.unwrap_or_else(|| info.max());
    if min.any_greater(max) {
        return Err(Error::new(
            Code::Conflict,
            format!("the minimum, {}, would be above the maximum, {}", words(min), words(max)),
        ));
    }
    for (what, size) in [("set the minimum of", min), ("set the maximum of", max)] {
        if let Some(error) = outside(&args.name, what, size, made) {
            return Err(error.hint(
                "wider bounds take effect at the next start: neonctl vm set NAME --cu MIN..MAX, or --cpu and --memory",
            ));
        }
    }
    let one = |size: Resources| BoundResources { cpu: size.vcpus.to_quantity(), mem: size.mem.to_quantity() };
    let bounds = ScalingBounds { min: one(min), max: one(max) };
    let faults = bounds.validate(info.mem.slot_size);
    if let Some(fault) = faults.first() {
        return Err(Error::new(Code::Usage, format!("the bounds are not valid: {fault}")));
    }
    let value = if (min, max) == made {
        Value::Null
    } else {
        json!(serde_json::to_string(&bounds).map_err(unwritable)?)
    };
    changes.annotations.insert(annotation::BOUNDS.into(), value);
    let range = |least: Resources, most: Resources| match (
        in_units(least.vcpus, least.mem),
        in_units(most.vcpus, most.mem),
    ) {
        (Some(least), Some(most)) => format!("{least}..{most} CU"),
        _ => format!("{}..{}, {}..{}", cores(least.vcpus), cores(most.vcpus), least.mem, most.mem),
    };
    changes.notes.push(format!("bounds {} -> {}", range(info.min(), info.max()), range(min, max)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command, vm};

    fn machine(enabled: bool) -> VirtualMachine {
        let mut object = json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": "pg", "namespace": "default", "labels": { label::SCALING_ENABLED: enabled.to_string() } },
            "spec": { "guest": { "cpus": { "min": "250m", "max": 3, "use": 1 }, "memorySlotSize": "1Gi",
                "memorySlots": { "min": 1, "max": 12, "use": 4 }, "rootDisk": { "image": "i" } } } });
        let verdict = neonvm_api::admit("VirtualMachine", &mut object, None);
        assert!(verdict.errors.is_empty(), "{:?}", verdict.errors);
        serde_json::from_value(object).unwrap()
    }

    fn change(line: &str, enabled: bool, asked: Option<Resources>) -> Result<Changes> {
        let words = ["neonctl", "vm", "scale", "pg"].into_iter().chain(line.split_whitespace());
        let Command::Vm(vm::Command::Scale(args)) = Args::parse_from(words).command else {
            panic!("another command")
        };
        changes(&machine(enabled), &args, asked, Timestamp::from_unix(0).unwrap())
    }

    fn units(count: u16) -> Resources {
        Resources::new(UNIT_CPU.saturating_mul(count), UNIT_MEMORY.saturating_mul(u32::from(count)))
    }

    #[test]
    fn bounds_are_an_annotation_and_those_it_was_made_with_none() {
        let changed = change("--min 2cu --max 10cu", true, None).unwrap();
        assert_eq!(
            changed.annotations[annotation::BOUNDS],
            r#"{"min":{"cpu":"500m","mem":"2Gi"},"max":{"cpu":"2500m","mem":"10Gi"}}"#
        );
        assert_eq!(changed.notes, ["bounds 1..12 CU -> 2..10 CU"]);
        assert_eq!(
            change("--min 1cu --max 3,12Gi", true, None).unwrap().annotations[annotation::BOUNDS],
            Value::Null
        );
    }

    #[test]
    fn a_hold_shows_its_size_and_end() {
        let changed = change("--hold 30m", true, Some(units(2))).unwrap();
        assert_eq!(
            changed.annotations[annotation::HOLD],
            r#"{"size":{"vCPUs":"500m","mem":"2Gi"},"until":"1970-01-01T00:30:00Z"}"#
        );
        assert_eq!((changed.held, changed.notes.len()), (Some(units(2)), 1));
        let forced = change("--hold 30m --force", true, Some(units(2))).unwrap();
        assert_eq!(
            forced.annotations[annotation::HOLD],
            r#"{"size":{"vCPUs":"500m","mem":"2Gi"},"until":"1970-01-01T00:30:00Z","force":true}"#
        );
        assert_eq!(change("--hold 30m", true, None).unwrap().held, Some(units(4)), "the present size");
        assert_eq!(change("--hold off", true, None).unwrap().annotations[annotation::HOLD], Value::Null);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_way_out() {
        for (line, enabled, asked, code) in [
            ("--cu 2", true, Some(units(2)), Code::Conflict),
            ("--hold 5m", false, Some(units(2)), Code::Conflict),
            ("--cu 13 --hold 5m", true, Some(units(13)), Code::Conflict),
            ("--max 13cu", true, None, Code::Conflict),
            ("--min 5cu --max 4cu", true, None, Code::Conflict),
            ("--min 5", true, None, Code::Usage),
            ("--min 1,1500Mi", true, None, Code::Usage),
            ("--hold off --force", true, None, Code::Usage),
            ("--hold 0s", true, None, Code::Usage),
            ("--hold soon", true, None, Code::Usage),
        ] {
            let error = change(line, enabled, asked).unwrap_err();
            assert_eq!(error.code, code, "{line}: {error:?}");
        }
    }

    #[test]
    fn off_lets_a_size_be_fixed_and_ends_a_hold() {
        let changed = change("--auto off --cu 2", true, Some(units(2))).unwrap();
        assert_eq!(changed.labels[label::SCALING_ENABLED], "false");
        assert_eq!(changed.annotations[annotation::HOLD], Value::Null);
        assert!(change("--auto on --cu 2", false, Some(units(2))).is_err());
    }
}
