//! Disks with the content of a snapshot.

use serde_json::{Value, json};

use crate::args::vm::Create;
use crate::commands::resource::NamespaceClient;
use crate::commands::vm::snapshot::object::{self, Part};
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::settings::Settings;

/// Adds the disks of the snapshot that the flags name to the object, if they name one.
pub(super) fn add(settings: &Settings, args: &Create, vm: &mut Value) -> Result<()> {
    let Some(name) = &args.from_snapshot else { return Ok(()) };
    let parts = block_on(async {
        let client = NamespaceClient::open(settings).await?;
        object::of_name(&client, name).await
    })?;
    put(vm, &parts, args.storage_class.as_deref())
}

fn put(vm: &mut Value, parts: &[Part], class: Option<&str>) -> Result<()> {
    let Some(spec) = vm.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let mut extend = |field: &str, more: Vec<Value>| {
        let list = spec.entry(field).or_insert_with(|| json!([]));
        let list = list.as_array_mut()?;
        list.extend(more);
        Some(list.clone())
    };
    let disk = |part: &Part| json!({ "name": part.disk.name, "mountPath": part.disk.mount_path });
    let disks = extend("disks", parts.iter().map(disk).collect()).unwrap_or_default();
    extend("volumeClaimTemplates", parts.iter().map(|part| object::template(part, class)).collect());
    for part in parts {
        if disks.iter().filter(|disk| disk.get("name") == Some(&json!(part.disk.name))).count() > 1 {
            let text = format!("--from-snapshot: it has a disk {}, and another flag as well", part.disk.name);
            return Err(Error::new(Code::Usage, text).hint("give the other disk another name"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::vm::snapshot::object::DiskOf;

    #[test]
    fn a_vm_gets_the_disks_of_the_snapshot() {
        let disk = DiskOf {
            name: "data".into(),
            mount_path: "/data".into(),
            size: "1Gi".into(),
            access_modes: vec!["ReadWriteOnce".into()],
            ..DiskOf::default()
        };
        let part = Part { object: "s-data".into(), vm: "pg".into(), disk, ready: true };
        let mut vm = json!({ "spec": {} });
        put(&mut vm, std::slice::from_ref(&part), Some("fast")).unwrap();
        assert_eq!(vm["spec"]["disks"], json!([{ "name": "data", "mountPath": "/data" }]));
        let template = &vm["spec"]["volumeClaimTemplates"][0];
        assert_eq!(template["spec"]["dataSource"]["name"], "s-data");
        let error = put(&mut vm, &[part], None).unwrap_err();
        assert!(error.message.contains("it has a disk data"), "{}", error.message);
    }
}
