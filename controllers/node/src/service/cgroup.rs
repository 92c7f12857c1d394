//! The pod of a process, by its cgroup. Pure.
//!
//! A kubelet names the cgroup of a pod after its UID: `pod<UID>` with the driver `cgroupfs`, `…-pod<UID>.slice` with `systemd`, where the
//! hyphens of the UID are underscores. Static pods have a hash of 32 digits in place of a UID. The runtime puts the containers below.

/// UID of the pod, from the text of `/proc/PID/cgroup`. All hierarchies have to agree.
pub(super) fn pod_uid(text: &str) -> Option<String> {
    let mut found: Option<String> = None;
    for line in text.lines() {
        // `ID:CONTROLLERS:PATH`
        let path = line.splitn(3, ':').nth(2)?;
        let Some(uid) = of_path(path) else { continue };
        match &found {
            Some(other) if *other != uid => return None,
            _ => found = Some(uid),
        }
    }
    found
}

/// Whether a cgroup lies below that of a pod.
pub(super) fn is_of(path: &str, uid: &str) -> bool {
    of_path(path).as_deref() == Some(uid) && of_part(path.rsplit('/').next().unwrap_or_default()).is_none()
}

/// The first part counts: what lies below it, processes of the pod may have made.
fn of_path(path: &str) -> Option<String> {
    path.split('/').find_map(of_part)
}

fn of_part(part: &str) -> Option<String> {
    let name = match part.strip_suffix(".slice") {
        Some(slice) => slice.rsplit_once('-').map_or(slice, |(_, name)| name),
        None => part,
    };
    let uid = name.strip_prefix("pod")?;
    let uid = if part.ends_with(".slice") { uid.replace('_', "-") } else { uid.to_owned() };
    is_uid(&uid).then_some(uid)
}

/// RFC 9562's form of 8-4-4-4-12 digits, or a static pod's 32.
fn is_uid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (lengths == [8, 4, 4, 4, 12] || lengths == [32]) && parts.iter().all(|part| part.bytes().all(is_digit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "5f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9d";

    #[test]
    fn pods_are_found_with_both_drivers_and_both_versions() {
        let id = "0123456789abcdef";
        for text in [
            format!("0::/kubepods/besteffort/pod{UID}/{id}\n"),
            format!("0::/kubepods/pod{UID}/{id}\n"),
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-{id}.scope\n",
                UID.replace('-', "_")
            ),
            format!(
                "0::/kubepods.slice/kubepods-pod{}.slice/crio-{id}.scope/container\n",
                UID.replace('-', "_")
            ),
            format!(
                "12:cpu,cpuacct:/kubepods/burstable/pod{UID}/{id}\n3:memory:/kubepods/burstable/pod{UID}/{id}\n0::/\n"
            ),
            // As a service sees it that is in a namespace of cgroups of its own, and in kubelets within containers.
            format!("0::/../../pod{UID}/{id}\n"),
            format!(
                "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{}.slice/x.scope\n",
                UID.replace('-', "_")
            ),
        ] {
            assert_eq!(pod_uid(&text).as_deref(), Some(UID), "{text}");
        }
        let fixed = "0123456789abcdef0123456789abcdef";
        assert_eq!(pod_uid(&format!("0::/kubepods/pod{fixed}/x")).as_deref(), Some(fixed));
    }

    #[test]
    fn other_processes_are_of_no_pod() {
        let other = "6f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9d";
        for text in [
            String::new(),
            "0::/\n".to_owned(),
            "0::/system.slice/containerd.service\n".to_owned(),
            "0::/kubepods/podx/y\n".to_owned(),
            format!("0::/kubepods/pod{}/x\n", UID.to_uppercase()),
            format!("1:cpu:/kubepods/pod{UID}/x\n2:memory:/kubepods/pod{other}/x\n"),
        ] {
            assert_eq!(pod_uid(&text), None, "{text}");
        }
        // A process of the pod can make cgroups below its own.
        let below = format!("0::/kubepods/pod{UID}/x/pod{other}\n");
        assert_eq!(pod_uid(&below).as_deref(), Some(UID));
    }

    #[test]
    fn a_cgroup_is_that_of_one_pod() {
        let other = "6f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9d";
        let path = format!("kubepods/burstable/pod{UID}/0123");
        assert!(is_of(&path, UID) && !is_of(&path, other));
        assert!(!is_of(&format!("kubepods/pod{UID}"), UID), "of the pod itself, whose containers are below");
        assert!(!is_of(&format!("kubepods/pod{other}/x/pod{UID}/y"), UID));
        assert!(!is_of("", UID) && !is_of("system.slice/a.service", UID) && !is_of("", ""));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC*") {
            let _ = (pod_uid(&text), is_of(&text, UID));
        }
    }
}
