//! Where volumes appear: below the pod's root, at their mount path, as links. A process without containers around it sees
//! them there; `readOnly` is kept only as far as the files' own modes keep it, and a `subPath` of a config map or secret
//! follows its updates, other than in a container. In a root of the pod's own ([`crate::confined`]) they are mounted.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, VolumeMount};

use super::Source;
use crate::files;
use crate::mount::Mount;
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

/// Makes what a part of a volume is mounted at, within another volume.
fn point(target: &Path, at: &Path) -> io::Result<()> {
    if fs::symlink_metadata(at).is_ok_and(|old| old.is_symlink()) {
        fs::remove_file(at)?;
    }
    if target.is_dir() {
        fs::create_dir_all(at)?;
        return fs::set_permissions(at, fs::Permissions::from_mode(0o755));
    }
    if let Some(parent) = at.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::File::options().write(true).create(true).truncate(false).open(at).map(drop)
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
                // They share a root as well.
                Some(VolumeMount { read_only: None | Some(false), .. }) => {}
                _ => drop(all.insert(mount.mount_path.clone(), mount)),
            }
        }
    }
    Ok(all)
}

/// Makes the volumes of a pod appear. `sources`: where each volume is. With `own_root` those within others are not links, so that they can
/// be mounted. What is mounted in a root of its own, shortest path first.
pub(super) fn appear(
    pod: &Pod,
    root: &Path,
    sources: &BTreeMap<String, Source>,
    expand: &dyn Fn(&str) -> String,
    own_root: bool,
) -> Result<Vec<Mount>, Problem> {
    let mut all: Vec<Mount> = Vec::new();
    for (path, mount) in mounts(pod)? {
        let wrong =
            |why: &dyn std::fmt::Display| Problem::mount(&mount.name, format_args!("at {path}: {why}"));
        let source = sources.get(&mount.name).ok_or_else(|| wrong(&"there is no such volume"))?;
        let at = below(root, &path).ok_or_else(|| wrong(&"it leads out of the container"))?;
        let inside = below(Path::new("/"), &path).unwrap_or_default();
        let sub = mount.sub_path_expr.as_deref().map(expand).or_else(|| mount.sub_path.clone());
        let sub = below(Path::new(""), sub.as_deref().unwrap_or_default());
        let sub = sub.ok_or_else(|| wrong(&"the sub path leads out of the volume"))?;
        let target = if sub.as_os_str().is_empty() { source.path.clone() } else { source.path.join(&sub) };
        if !target.exists() && !sub.as_os_str().is_empty() {
            part(&source.path, &target).map_err(|error| wrong(&error))?;
        }
        let is_within = all.iter().any(|other| inside.starts_with(&other.at));
        let made = if own_root && is_within { point(&target, &at) } else { link(&target, &at) };
        made.map_err(|error| wrong(&error))?;
        let writable = source.writable && mount.read_only != Some(true);
        let volume = source.path.clone();
        all.push(Mount { at: inside, volume, sub, writable, has_links: source.has_links });
    }
    Ok(all)
}

/// Makes a part of a volume, with the mode of the volume.
fn part(volume: &Path, target: &Path) -> io::Result<()> {
    fs::create_dir_all(target)?;
    fs::set_permissions(target, fs::metadata(volume)?.permissions())
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
        let source = |name: &str| Source { path: volumes.join(name), writable: true, has_links: false };
        let sources = ["a", "b"].map(|name| (name.to_owned(), source(name))).into();
        let expand = |text: &str| text.replace("$(N)", "n");
        let good =
            pod(json!([{ "name": "b", "mountPath": "/vm/x/y" }, { "name": "a", "mountPath": "/vm/x" },
            { "name": "a", "mountPath": "/sub", "subPathExpr": "in/$(N)" }]));
        for _ in 0..2 {
            appear(&good, &root, &sources, &expand, false).unwrap();
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
            assert!(appear(&pod(bad), &root, &sources, &expand, false).is_err());
        }
        // In a root of its own the one is mounted within the other.
        let mounts = appear(&good, &root, &sources, &expand, true).unwrap();
        let paths: Vec<&Path> = mounts.iter().map(|mount| mount.at.as_path()).collect();
        assert_eq!(paths, [Path::new("/sub"), Path::new("/vm/x"), Path::new("/vm/x/y")]);
        assert!(fs::symlink_metadata(volumes.join("a/y")).unwrap().is_dir());
        assert!(mounts[0].open().is_ok());
        fs::remove_dir_all(volumes.join("a/in")).unwrap();
        symlink("/etc", volumes.join("a/in")).unwrap();
        assert!(mounts[0].open().is_err(), "a link of the runner leads nowhere");
    }
}
