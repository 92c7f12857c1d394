//! Whether the images of a VM can be what they are named.

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
