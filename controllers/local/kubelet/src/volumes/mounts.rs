//! Where volumes appear: below the pod's root, at their mount path, as links. A process without containers around it sees
//! them there; `readOnly` is kept only as far as the files' own modes keep it, and a `subPath` of a config map or secret
//! follows its updates, other than in a container.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, VolumeMount};

use crate::files;
use crate::problem::Problem;

/// A path below a root, whatever it looks like. None: it tries to leave it.
fn below(root: &Path, path: &str) -> Option<PathBuf> {
    let mut result = root.to_path_buf();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => result.push(part),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(result)
}

fn link(target: &Path, at: &Path) -> io::Result<()> {
    if fs::read_link(at).is_ok_and(|old| old == target) {
        return Ok(());
    }
    if let Some(parent) = at.parent() {
        fs::create_dir_all(parent)?;
    }
    // An empty directory may have been made for something that is mounted within.
    if fs::symlink_metadata(at).is_ok_and(|old| old.is_dir()) {
        fs::remove_dir(at)?;
    }
    let next = files::beside(at);
    symlink(target, &next)?;
    fs::rename(&next, at)
}

/// All mounts of a pod's containers, shortest path first. `expand` resolves `subPathExpr`.
fn mounts(pod: &Pod) -> Result<BTreeMap<String, VolumeMount>, Problem> {
    let mut all: BTreeMap<String, VolumeMount> = BTreeMap::new();
    let spec = pod.spec.clone().unwrap_or_default();
    for container in spec.init_containers.into_iter().flatten().chain(spec.containers) {
        for mount in container.volume_mounts.into_iter().flatten() {
            let source = |mount: &VolumeMount| {
                (mount.name.clone(), mount.sub_path.clone(), mount.sub_path_expr.clone())
            };
            match all.get(&mount.mount_path) {
                Some(other) if source(other) != source(&mount) => {
                    let why = format!(
                        "two containers mount different volumes at {}; here they share their files",
                        mount.mount_path
                    );
                    return Err(Problem::last("UnsupportedVolume", why));
                }
                _ => drop(all.insert(mount.mount_path.clone(), mount)),
            }
        }
    }
    Ok(all)
}

/// Makes the volumes of a pod appear. `sources`: where each volume is.
pub(super) fn appear(
    pod: &Pod,
    root: &Path,
    sources: &BTreeMap<String, PathBuf>,
    expand: &dyn Fn(&str) -> String,
) -> Result<(), Problem> {
    for (path, mount) in mounts(pod)? {
        let wrong =
            |why: &dyn std::fmt::Display| Problem::mount(&mount.name, format_args!("at {path}: {why}"));
        let source = sources.get(&mount.name).ok_or_else(|| wrong(&"there is no such volume"))?;
        let at = below(root, &path).ok_or_else(|| wrong(&"it leads out of the container"))?;
        let sub = mount.sub_path_expr.as_deref().map(expand).or_else(|| mount.sub_path.clone());
        let target = match sub.as_deref().filter(|sub| !sub.is_empty()) {
            None => source.clone(),
            Some(sub) => {
                let target =
                    below(source, sub).ok_or_else(|| wrong(&"the sub path leads out of the volume"))?;
                if !target.exists() {
                    fs::create_dir_all(&target).map_err(|error| wrong(&error))?;
                }
                target
            }
        };
        link(&target, &at).map_err(|error| wrong(&error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_appear_within_one_another() {
        let directory = tempfile::tempdir().unwrap();
        let (root, volumes) = (directory.path().join("root"), directory.path().join("volumes"));
        for name in ["a", "b"] {
            fs::create_dir_all(volumes.join(name)).unwrap();
        }
        let pod = |mounts: serde_json::Value| -> Pod {
            serde_json::from_value(
                json!({ "spec": { "containers": [{ "name": "c", "volumeMounts": mounts }] } }),
            )
            .unwrap()
        };
        let sources = ["a", "b"].map(|name| (name.to_owned(), volumes.join(name))).into();
        let expand = |text: &str| text.replace("$(N)", "n");
        let good =
            pod(json!([{ "name": "b", "mountPath": "/vm/x/y" }, { "name": "a", "mountPath": "/vm/x" },
            { "name": "a", "mountPath": "/sub", "subPathExpr": "in/$(N)" }]));
        for _ in 0..2 {
            appear(&good, &root, &sources, &expand).unwrap();
        }
        fs::write(root.join("vm/x/y/file"), "1").unwrap();
        fs::write(root.join("sub/file"), "2").unwrap();
        assert_eq!(fs::read_to_string(volumes.join("b/file")).unwrap(), "1");
        assert_eq!(fs::read_to_string(volumes.join("a/in/n/file")).unwrap(), "2");
        for bad in [
            json!([{ "name": "a", "mountPath": "/../x" }]),
            json!([{ "name": "a", "mountPath": "/x", "subPath": "../b" }]),
            json!([{ "name": "none", "mountPath": "/x" }]),
        ] {
            assert!(appear(&pod(bad), &root, &sources, &expand).is_err());
        }
    }
}
