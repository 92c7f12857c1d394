//! Whether the images of a VM can be what they are named.

use neonvm_api::VirtualMachine;
use neonvm_builder::reference::Reference;
use neonvm_builder::store::Store;
use serde_json::Value;

use crate::args::vm::Create;
use crate::commands::place;
use crate::commands::resource::nearest;
use crate::connect::Connection;
use crate::error::{Code, Error, Result};
use crate::instance;
use crate::settings::Settings;

/// What a kubelet reports of an image that it cannot pull.
const REASONS: [&str; 4] = ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"];

/// The image of the root disk, as an object names it.
fn of(object: &Value) -> &str {
    object.pointer("/spec/guest/rootDisk/image").and_then(Value::as_str).unwrap_or_default()
}

/// How an image is named that is a file of the node: by this and an absolute path. Local clusters alone have such images.
const FILE: &str = "file://";

/// Why no registry and no node could have an image of this name.
fn problem(text: &str) -> Option<String> {
    match text.strip_prefix(FILE) {
        Some(path) => (!path.starts_with('/')).then(|| "the path of a file must be absolute".to_owned()),
        None => text.parse::<Reference>().err().map(|error| error.to_string()),
    }
}

/// An error if the image of the root disk has no name that a registry could have, and is no file.
pub(super) fn check(args: &Create, object: &Value) -> Result<()> {
    let text = of(object);
    // A missing one is reported with its field.
    let Some(problem) = problem(text).filter(|_| !text.is_empty()) else { return Ok(()) };
    let named = if args.file.is_some() { "spec.guest.rootDisk.image" } else { "--image" };
    Err(Error::new(Code::Usage, format!("{named}: {text:?} is not valid"))
        .cause(problem)
        .hint("write it as registry/name:tag, such as hello:1, or as file:///PATH"))
}

/// A note on an image that the local store does not have, but one of nearly the same name.
pub(super) fn meant(settings: &Settings, object: &Value) -> Option<String> {
    let wanted: Reference = of(object).parse().ok()?;
    let directory = place::images(settings.env());
    if !directory.exists() {
        return None;
    }
    let store = Store::open(&directory).ok()?;
    if store.get(&wanted.to_string()).is_ok() {
        return None;
    }
    let known: Vec<String> =
        store.list().ok()?.iter().filter_map(|entry| Some(short(entry.reference.as_ref()?))).collect();
    let near = nearest(&short(&wanted), &known)?;
    Some(format!("image {:?} is not in the local store; did you mean {near:?}?", short(&wanted)))
}

/// The same, for a cluster of this host: another one does not use the store.
pub(super) fn of_local_cluster(
    settings: &Settings,
    connection: &Connection,
    object: &Value,
) -> Option<String> {
    instance::of_server(settings.env(), settings, &connection.server)?;
    meant(settings, object)
}

/// A reference without what people leave out.
fn short(reference: &Reference) -> String {
    let text = reference.to_string();
    let short = text.strip_prefix("docker.io/").unwrap_or(&text);
    short.strip_prefix("library/").unwrap_or(short).to_owned()
}

/// Why an image of a VM that starts cannot be pulled, in the kubelet's words.
pub(super) fn unpullable(machine: &VirtualMachine) -> Option<String> {
    let mut conditions = machine.status.as_ref()?.conditions.iter();
    let found = conditions
        .find(|one| one.type_ == "Degraded" && one.status == "True" && one.reason == "PodNotStarting")?;
    REASONS.iter().any(|reason| found.message.contains(reason)).then(|| found.message.clone())
}

/// The error of waiting for such a VM.
pub(super) fn failure(name: &str, machine: &VirtualMachine, why: &str) -> Error {
    let guest = &machine.spec.guest;
    let kernel = guest.kernel_image.as_deref().unwrap_or_default();
    let part = match (kernel.is_empty(), why.contains(kernel), why.contains(&guest.root_disk.image)) {
        (false, true, _) => format!("its kernel image {kernel:?}"),
        (_, _, true) => format!("its image {:?}", guest.root_disk.image),
        _ => "an image".to_owned(),
    };
    Error::new(Code::Failed, format!("{name} does not start: {part} cannot be pulled")).cause(why).hint(format!(
        "correct the name and begin again: neonctl vm delete {name}; it starts by itself if the image appears"
    ))
}

/// An error of waiting, with the image that was probably meant.
pub(super) fn with_hint(error: Error, meant: Option<&str>) -> Error {
    match meant {
        Some(meant) if error.message.contains("cannot be pulled") => error.hint(meant),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::env::Env;

    fn starting(reason: &str, message: &str) -> VirtualMachine {
        serde_json::from_value(json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
            "metadata": { "name": "pg" }, "spec": { "guest": { "cpus": { "min": 1, "max": 2, "use": 1 },
                "memorySlots": { "min": 1, "max": 4, "use": 1 }, "kernelImage": "kernel:9", "rootDisk": { "image": "db:17" } } },
            "status": { "phase": "Pending", "conditions": [{ "type": "Degraded", "status": "True", "reason": reason,
                "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" }] } }))
        .unwrap()
    }

    #[test]
    fn an_image_that_cannot_be_pulled_ends_the_wait() {
        use crate::commands::watching::WaitProgress;
        for (message, part) in [
            ("ErrImagePull: db:17: not found", "its image \"db:17\" cannot be pulled"),
            (
                "ImagePullBackOff: Back-off pulling image \"kernel:9\"",
                "its kernel image \"kernel:9\" cannot be pulled",
            ),
            ("ImagePullBackOff", "an image cannot be pulled"),
        ] {
            let machine = starting("PodNotStarting", message);
            let WaitProgress::Never(error) = super::super::up("pg", Some(&machine)) else {
                panic!("{message}")
            };
            assert!(error.message.contains(part), "{error:?}");
            assert_eq!(
                (error.causes.as_slice(), error.code),
                ([message.to_owned()].as_slice(), Code::Failed)
            );
        }
        for machine in
            [starting("PodNotStarting", "CreateContainerConfigError"), starting("Other", "ErrImagePull")]
        {
            assert!(matches!(super::super::up("pg", Some(&machine)), WaitProgress::NotYet));
        }
    }

    #[test]
    fn names_of_images_and_files_are_taken() {
        for good in ["hello:1", "registry:5000/a/b:2", "file:///disks/a.qcow2"] {
            assert_eq!(problem(good), None, "{good}");
        }
        for bad in ["hello:1:2", "file://disk.qcow2", "UPPER"] {
            assert!(problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_mistyped_image_of_the_store_is_named() {
        let home = tempfile::tempdir().unwrap();
        let env =
            Env { vars: [("HOME".to_owned(), home.path().display().to_string())].into(), ..Env::default() };
        let settings = Settings::load(&env).unwrap();
        let object = |image: &str| json!({ "spec": { "guest": { "rootDisk": { "image": image } } } });
        assert_eq!(meant(&settings, &object("hello:2")), None);
        let store = Store::open(&place::images(&env)).unwrap();
        let image = neonvm_builder::store::Image::new(
            &json!({ "rootfs": { "diff_ids": [] } }),
            Vec::new(),
            &Default::default(),
        );
        store.put(&image.unwrap(), &"hello-http:1".parse().unwrap()).unwrap();
        let note = meant(&settings, &object("helo-http:1")).unwrap();
        assert!(note.contains("did you mean \"hello-http:1\"?"), "{note}");
        for other in ["hello-http:1", "docker.io/library/hello-http:1", "postgres:16", ":"] {
            assert_eq!(meant(&settings, &object(other)), None, "{other}");
        }
        let error = Error::new(Code::Failed, "pg does not start: an image cannot be pulled").hint("x");
        assert_eq!(with_hint(error, Some("y")).hint.as_deref(), Some("y"));
    }
}
