//! From flags to an object. Pure.

use neonvm_api::names::TRUE;
use neonvm_api::names::label::{AUTO_MIGRATION_ENABLED, SCALING_ENABLED};
use neonvm_api::virtual_machine::SUSPEND_AFTER;
use neonvm_types::{Bytes, MilliCpu};
use serde_json::{Map, Value, json};

use crate::args::vm::Create;
use crate::commands::flags::seconds;
use crate::commands::vm::size::{self, UNIT_CPU, UNIT_MEMORY};
use crate::error::{Code, Error, Result};

/// Size without a word about it.
const CPU: &str = "0.25..1";
const MEMORY: &str = "1Gi..4Gi";
/// A smaller disk has no room for a file system.
const SMALLEST_DISK: Bytes = Bytes::mib(1);

fn bad(flag: &str, text: &str, hint: &str) -> Error {
    Error::new(Code::Usage, format!("--{flag}: {text:?} is not valid")).hint(hint.to_owned())
}

fn sizes(args: &Create) -> Result<Value> {
    let (cpus, memory) = bounds(args)?;
    let start_cpu = match (&args.start_cpu, args.start_cu) {
        (Some(text), _) => size::cpu("start-cpu", text)?,
        (None, Some(units)) => UNIT_CPU.saturating_mul(units),
        (None, None) => cpus.0,
    };
    let start_memory = match (&args.start_memory, args.start_cu) {
        (Some(text), _) => size::memory("start-memory", text)?,
        (None, Some(units)) => UNIT_MEMORY.saturating_mul(u32::from(units)),
        (None, None) => memory.0,
    };
    start_within(args, "cpu", (start_cpu, cpus), &|cpu| format!("{} CPU", size::cores(*cpu)))?;
    start_within(args, "memory", (start_memory, memory), &|memory| size::with_unit(*memory))?;
    let step = args.memory_step.as_deref().map(|text| size::memory("memory-step", text)).transpose()?;
    let slots = size::slots(memory.0, memory.1, start_memory, step)?;
    let mut guest = json!({
        "cpus": { "min": cpus.0, "max": cpus.1, "use": start_cpu },
        "memorySlotSize": slots.size, "memorySlots": { "min": slots.min, "max": slots.max, "use": slots.start },
        "rootDisk": { "image": args.image.clone().unwrap_or_default() },
    });
    if let (Some(attach), Some(guest)) = (args.attach, guest.as_object_mut()) {
        guest.insert("attach".to_owned(), json!(attach));
    }
    Ok(guest)
}

/// An error that names the flags if the size at the start is not within the bounds.
fn start_within<T: PartialOrd>(
    args: &Create,
    resource: &str,
    (start, bounds): (T, Range<T>),
    shown: &dyn Fn(&T) -> String,
) -> Result<()> {
    if start >= bounds.0 && start <= bounds.1 {
        return Ok(());
    }
    let by_units = args.cu.is_some();
    let (start_flag, own) = match resource {
        "cpu" => ("--start-cpu", args.start_cpu.is_some()),
        _ => ("--start-memory", args.start_memory.is_some()),
    };
    let wanted = match (own, args.start_cu) {
        (false, Some(units)) => format!("--start-cu: {units} compute units ({})", shown(&start)),
        _ => format!("{start_flag}: {}", shown(&start)),
    };
    let flag = if by_units { "cu" } else { resource };
    let given = match resource {
        _ if by_units => args.cu.clone(),
        "cpu" => args.cpu.clone(),
        _ => args.memory.clone(),
    };
    let (range, origin) = match given {
        Some(text) => (text, ""),
        None => (format!("{}..{}", shown(&bounds.0), shown(&bounds.1)), " by default"),
    };
    let limit = if start < bounds.0 { "below" } else { "above" };
    Err(Error::new(Code::Usage, format!("{wanted} is {limit} the bounds of --{flag}, {range}{origin}"))
        .hint(format!("start within the bounds, or give others with --{flag} MIN..MAX")))
}

/// What `--suspend-after` writes into the spec; `never`: nothing.
pub(crate) fn idle(after: &str) -> Result<Option<Value>> {
    if after == "never" {
        return Ok(None);
    }
    let seconds = seconds("suspend-after", after)?;
    let (least, most) = SUSPEND_AFTER;
    if !(least.as_secs()..=most.as_secs()).contains(&seconds) {
        return Err(Error::new(Code::Usage, format!("--suspend-after: {after} is not between 10s and 720h"))
            .hint("write for example 5m, or never"));
    }
    Ok(Some(json!({ "suspendAfter": format!("{seconds}s") })))
}

/// Name and labels. A VM whose bounds are equal (`room`: they are not) has nothing to follow its load with.
fn metadata(args: &Create, room: bool) -> Result<Value> {
    let mut metadata = json!({ "name": args.name.clone().unwrap_or_default() });
    let mut own = labels("label", &args.label)?;
    if let (true, Some(own)) = (!args.no_autoscale && room, own.as_object_mut()) {
        own.entry(SCALING_ENABLED).or_insert(json!(TRUE));
    }
    if let (true, Some(own)) = (args.movable, own.as_object_mut()) {
        own.entry(AUTO_MIGRATION_ENABLED).or_insert(json!(TRUE));
    }
    if let (false, Some(metadata)) = (own == json!({}), metadata.as_object_mut()) {
        metadata.insert("labels".into(), own);
    }
    Ok(metadata)
}

pub(super) fn of_flags(args: &Create) -> Result<Value> {
    let mut guest = sizes(args)?;
    let mut spec = json!({ "restartPolicy": args.restart,
        "terminationGracePeriodSeconds": seconds("grace", &args.grace)? });
    let mut set = |path: &str, value: Value| {
        let (object, key) = match path.split_once('.') {
            Some(("guest", key)) => (&mut guest, key),
            _ => (&mut spec, path),
        };
        if let Some(object) = object.as_object_mut() {
            object.insert(key.to_owned(), value);
        }
    };
    if let Some(size) = &args.root_size {
        let size = size::memory("root-size", size)?;
        set("guest.rootDisk", json!({ "image": args.image, "size": size }));
    }
    if let Some(idle) = args.suspend_after.as_deref().map(idle).transpose()?.flatten() {
        set("idle", idle);
    }
    if let Some(swap) = &args.swap {
        set("guest.settings", json!({ "swap": size::memory("swap", swap)? }));
    }
    if let Some(kernel) = &args.kernel {
        set("guest.kernelImage", json!(kernel));
    }
    if let [program, arguments @ ..] = args.command.as_slice() {
        set("guest.command", json!([program]));
        if !arguments.is_empty() {
            set("guest.args", json!(arguments));
        }
    }
    if !args.port.is_empty() {
        set("guest.ports", args.port.iter().map(|text| port(text)).collect::<Result<_>>()?);
    }
    if !args.env.is_empty() {
        set("guest.env", args.env.iter().map(|text| variable(text)).collect::<Result<_>>()?);
    }
    for (field, list) in [("disks", disks(args)?), ("volumeClaimTemplates", claim_templates(args)?)] {
        if !list.is_empty() {
            set(field, Value::Array(list));
        }
    }
    if args.overlay {
        set("extraNetwork", json!({ "enable": true }));
    }
    if args.no_ssh {
        set("enableSSH", json!(false));
    }
    if !args.pull_secret.is_empty() {
        let secrets: Vec<Value> = args.pull_secret.iter().map(|name| json!({ "name": name })).collect();
        set("imagePullSecrets", Value::Array(secrets));
    }
    if !args.node_selector.is_empty() {
        set("nodeSelector", labels("node-selector", &args.node_selector)?);
    }
    set("guest", Value::Null);
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("guest".into(), guest);
    }
    let metadata = metadata(args, has_room(&spec))?;
    Ok(
        json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": spec }),
    )
}

/// Whether the bounds of CPU or memory differ.
fn has_room(spec: &Value) -> bool {
    ["cpus", "memorySlots"].iter().any(|resource| {
        let bounds = spec.pointer(&format!("/guest/{resource}"));
        bounds.is_some_and(|bounds| bounds.get("min") != bounds.get("max"))
    })
}

type Range<T> = (T, T);

fn bounds(args: &Create) -> Result<(Range<MilliCpu>, Range<Bytes>)> {
    if let Some(units) = &args.cu {
        let (least, most) = size::bounds("cu", units, size::units)?;
        let cpus = (UNIT_CPU.saturating_mul(least), UNIT_CPU.saturating_mul(most));
        let memory = |units: u16| UNIT_MEMORY.saturating_mul(u32::from(units));
        return Ok((cpus, (memory(least), memory(most))));
    }
    let cpus = size::bounds("cpu", args.cpu.as_deref().unwrap_or(CPU), size::cpu)?;
    let memory = size::bounds("memory", args.memory.as_deref().unwrap_or(MEMORY), size::memory)?;
    Ok((cpus, memory))
}

fn port(text: &str) -> Result<Value> {
    let hint = "write a port as 5432 or 53/udp";
    let (number, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let number: u16 = number.parse().ok().filter(|n| *n > 0).ok_or_else(|| bad("port", text, hint))?;
    let protocol = match protocol.to_lowercase().as_str() {
        "tcp" => "TCP",
        "udp" => "UDP",
        _ => return Err(bad("port", text, hint)),
    };
    Ok(json!({ "port": number, "protocol": protocol }))
}

pub(crate) fn variable(text: &str) -> Result<Value> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = parts.ok_or_else(|| bad("env", text, "write a variable as NAME=VALUE"))?;
    Ok(json!({ "name": name, "value": value }))
}

fn labels(flag: &str, texts: &[String]) -> Result<Value> {
    let mut labels = Map::new();
    for text in texts {
        let parts = text.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) = parts.ok_or_else(|| bad(flag, text, "write a label as KEY=VALUE"))?;
        labels.insert(key.to_owned(), json!(value));
    }
    Ok(Value::Object(labels))
}

/// An empty disk, as a flag describes it.
pub(crate) fn disk(flag: &str, text: &str) -> Result<Value> {
    let (name, size, path) = sized(flag, text)?;
    Ok(json!({ "name": name, "mountPath": path, "emptyDisk": { "size": size, "discard": true } }))
}

/// Name, size and path of a disk that is made.
fn sized<'a>(flag: &str, text: &'a str) -> Result<(&'a str, neonvm_types::Bytes, &'a str)> {
    let hint = "write a disk as NAME=SIZE:PATH, such as data=10Gi:/var/lib/data";
    let (name, size, path) = three(text).ok_or_else(|| bad(flag, text, hint))?;
    let size = size::memory(flag, size)?;
    if size < SMALLEST_DISK {
        let why = format!("{size} bytes are too few for a file system; write a unit, such as {size}Gi");
        return Err(bad(flag, text, &why));
    }
    Ok((name, size, path))
}

/// The parts of `A=B:C`.
fn three(text: &str) -> Option<(&str, &str, &str)> {
    let (first, rest) = text.split_once('=')?;
    let (second, third) = rest.split_once(':')?;
    Some((first, second, third))
}

/// The claims of the disks on volumes of their own.
fn claim_templates(args: &Create) -> Result<Vec<Value>> {
    args.volume.iter().map(|text| claim_template(text, args.storage_class.as_deref())).collect()
}

/// The claim of a disk on a volume of its own.
pub(crate) fn claim_template(text: &str, class: Option<&str>) -> Result<Value> {
    let (name, size, _) = sized("volume", text)?;
    let mut spec =
        json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } } });
    if let (Some(class), Some(spec)) = (class, spec.as_object_mut()) {
        spec.insert("storageClassName".to_owned(), json!(class));
    }
    Ok(json!({ "metadata": { "name": name }, "spec": spec }))
}

/// A disk on a volume of its own.
pub(crate) fn volume(text: &str) -> Result<Value> {
    let (name, _, path) = sized("volume", text)?;
    Ok(json!({ "name": name, "mountPath": path }))
}

/// A disk on an existing claim.
pub(crate) fn claim(text: &str) -> Result<Value> {
    let hint = "write it as NAME=CLAIM:PATH, such as data=pg-data:/var/lib/data";
    let (name, claim, path) = three(text).ok_or_else(|| bad("claim", text, hint))?;
    Ok(json!({ "name": name, "mountPath": path, "persistentVolumeClaim": { "claimName": claim } }))
}

fn disks(args: &Create) -> Result<Vec<Value>> {
    let mut disks = Vec::new();
    for text in &args.disk {
        disks.push(disk("disk", text)?);
    }
    for text in &args.volume {
        disks.push(volume(text)?);
    }
    for text in &args.claim {
        disks.push(claim(text)?);
    }
    for (flag, texts, source, key) in [
        ("config-map", &args.config_map, "configMap", "name"),
        ("secret", &args.secret, "secret", "secretName"),
    ] {
        for text in texts {
            let parts = text.split_once(':').filter(|(name, _)| !name.is_empty());
            let (name, path) = parts.ok_or_else(|| bad(flag, text, "write it as NAME:PATH"))?;
            disks.push(json!({ "name": name, "mountPath": path, "watch": true, source: { key: name } }));
        }
    }
    Ok(disks)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command, vm};

    fn object(line: &str) -> Result<Value> {
        let words = line.split_whitespace();
        let args = Args::try_parse_from(["neonctl", "vm", "create"].into_iter().chain(words)).unwrap();
        let Command::Vm(vm::Command::Create(create)) = args.command else { unreachable!() };
        of_flags(&create)
    }

    #[test]
    fn every_flag_has_its_field_and_the_result_is_valid() {
        let mut object = object(
            "pg --image img:1 --cpu 0.25..4 --memory 512Mi..4Gi --start-cpu 1 --start-memory 1Gi --port 5432 --port 53/udp \
             --env A=b=c --disk data=10Gi:/data --config-map conf:/conf --secret cert:/cert --volume rows=1Ti:/rows --storage-class fast --claim old=pg-old:/old --swap 1Gi --root-size 20Gi \
             --restart OnFailure --grace 1m --no-ssh --pull-secret login --overlay --movable --node-selector a=b --label c=d --kernel k:1 -- /bin/x -y",
        )
        .unwrap();
        let verdict = neonvm_api::admit("VirtualMachine", &mut object, None);
        assert!(verdict.errors.is_empty(), "{:?}", verdict.errors);
        let at = |path: &str| object.pointer(path).cloned().unwrap_or_default();
        assert_eq!(at("/spec/guest/cpus"), json!({ "min": "250m", "max": 4, "use": 1 }));
        assert_eq!(at("/spec/guest/memorySlots"), json!({ "min": 1, "max": 8, "use": 2 }));
        assert_eq!(at("/spec/guest/memorySlotSize"), "512Mi");
        assert_eq!(at("/spec/guest/rootDisk/size"), "20Gi");
        assert_eq!(at("/spec/guest/env/0"), json!({ "name": "A", "value": "b=c" }));
        assert_eq!((at("/spec/guest/command"), at("/spec/guest/args")), (json!(["/bin/x"]), json!(["-y"])));
        assert_eq!(at("/spec/disks/0/emptyDisk/size"), "10Gi");
        assert_eq!(
            (at("/spec/disks/1/name"), at("/spec/disks/1/mountPath")),
            (json!("rows"), json!("/rows"))
        );
        assert_eq!(at("/spec/disks/2/persistentVolumeClaim/claimName"), "pg-old");
        assert_eq!(at("/spec/disks/4/secret/secretName"), "cert");
        let rows = at("/spec/volumeClaimTemplates/0");
        assert_eq!(
            (&rows["metadata"]["name"], &rows["spec"]["storageClassName"]),
            (&json!("rows"), &json!("fast"))
        );
        assert_eq!(rows["spec"]["resources"]["requests"]["storage"], "1Ti");
        assert_eq!(at("/spec/terminationGracePeriodSeconds"), 60);
        assert_eq!((at("/spec/enableSSH"), at("/metadata/labels/c")), (json!(false), json!("d")));
        assert_eq!(at("/spec/imagePullSecrets"), json!([{ "name": "login" }]));
        assert_eq!(at("/spec/extraNetwork/enable"), json!(true));
        assert_eq!(object["metadata"]["labels"][AUTO_MIGRATION_ENABLED], TRUE);
    }

    #[test]
    fn compute_units_are_both() {
        let object = object("pg --image i --cu 1..12 --start-cu 4").unwrap();
        let guest = &object["spec"]["guest"];
        assert_eq!(guest["cpus"], json!({ "min": "250m", "max": 3, "use": 1 }));
        assert_eq!(guest["memorySlots"], json!({ "min": 1, "max": 12, "use": 4 }));
    }

    #[test]
    fn a_start_outside_of_the_bounds_names_the_flags() {
        for (line, parts) in [
            (
                "x --image i --cu 1..4 --start-cu 8",
                ["--start-cu: 8 compute units", "above the bounds of --cu, 1..4"],
            ),
            (
                "x --image i --cu 2..4 --start-cu 1",
                ["--start-cu: 1 compute units", "below the bounds of --cu, 2..4"],
            ),
            (
                "x --image i --cpu 1..2 --start-cpu 3",
                ["--start-cpu: 3.00 CPU", "above the bounds of --cpu, 1..2"],
            ),
            (
                "x --image i --start-memory 8Gi",
                ["--start-memory: 8Gi", "bounds of --memory, 1Gi..4Gi by default"],
            ),
            ("x --image i --cu 1..4 --start-memory 8Gi", ["--start-memory: 8Gi", "bounds of --cu, 1..4"]),
        ] {
            let error = object(line).unwrap_err();
            assert!(
                parts.iter().all(|part| error.message.contains(part)) && error.hint.is_some(),
                "{error:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (line, part) in [
            ("x --image i --port 0", "--port"),
            ("x --image i --port 1/sctp", "--port"),
            ("x --image i --env =x", "--env"),
            ("x --image i --disk data", "--disk"),
            ("x --image i --volume data=5:/x", "--volume"),
            ("x --image i --claim data", "--claim"),
            ("x --image i --cpu 2..1", "--cpu"),
            ("x --image i --memory 1Ki", "--memory"),
            ("x --image i --grace soon", "--grace"),
            ("x --image i --grace 500ms", "--grace"),
            ("x --image i --cpu 0.0001", "--cpu"),
            ("x --image i --cpu 0.25..1.0005", "--cpu"),
            ("x --image i --label x", "--label"),
        ] {
            let error = object(line).unwrap_err();
            assert!(
                error.code == Code::Usage && error.message.contains(part) && error.hint.is_some(),
                "{error:?}"
            );
        }
    }
}
