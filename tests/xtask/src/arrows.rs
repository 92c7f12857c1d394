//! The arrows between crates: which crate may depend on which. An edge that is not in the table is an error.

use crate::package::Package;

/// Crate, and the crates of ours that its product may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("neonvm-types", &[]),
    ("neonvm-api", &["neonvm-types"]),
    ("neonvm-apiserver-engine", &["neonvm-types"]),
    ("neonvm-core-vm-lifecycle", &["neonvm-types", "neonvm-api"]),
    ("neonvm-core-migration", &["neonvm-types", "neonvm-api", "neonvm-core-vm-lifecycle"]),
    ("neonvm-core-kubelet", &["neonvm-types", "neonvm-api"]),
    ("neonvm-core-overlay", &["neonvm-types", "neonvm-api"]),
    ("neonvm-core-scheduling", &["neonvm-types", "neonvm-api"]),
    ("neonvm-core-pod-autoscaler", &["neonvm-types", "neonvm-api"]),
    // Without its feature `agent`, as in the guest, it knows types only.
    ("neonvm-core-vertical-scaling", &["neonvm-types", "neonvm-api"]),
    ("neonvm-kit", &["neonvm-types", "neonvm-api"]),
    ("neonvm-hypervisor", &["neonvm-types", "neonvm-disk"]),
    (
        "neonvm-runner",
        &[
            "neonvm-types",
            "neonvm-api",
            "neonvm-core-vm-lifecycle",
            "neonvm-core-migration",
            "neonvm-kit",
            "neonvm-disk",
            "neonvm-hypervisor",
        ],
    ),
    (
        "neonvm-vm-controller",
        &[
            "neonvm-types",
            "neonvm-api",
            "neonvm-kit",
            "neonvm-core-migration",
            "neonvm-core-vm-lifecycle",
            "neonvm-core-overlay",
            "neonvm-core-scheduling",
        ],
    ),
    ("neonvm-vxlan-controller", &["neonvm-api", "neonvm-kit", "neonvm-core-overlay"]),
    // What a guest does not reach is in the overlay's crate.
    (
        "neonvm-node",
        &["neonvm-types", "neonvm-api", "neonvm-core-overlay", "neonvm-hypervisor", "neonvm-kit"],
    ),
    // The overlay's crate has the list of addresses that are closed to what tenants name.
    (
        "neonvm-pod-autoscaler",
        &["neonvm-types", "neonvm-api", "neonvm-kit", "neonvm-core-overlay", "neonvm-core-pod-autoscaler"],
    ),
    ("neonvm-scheduler", &["neonvm-types", "neonvm-api", "neonvm-kit", "neonvm-core-scheduling"]),
    ("neonvm-agent", &["neonvm-types", "neonvm-api", "neonvm-kit", "neonvm-core-vertical-scaling"]),
    // Reaches every parser.
    (
        "neonvm-fuzz",
        &[
            "neonvm-types",
            "neonvm-api",
            "neonvm-apiserver",
            "neonvm-apiserver-engine",
            "neonvm-builder",
            "neonvm-core-overlay",
            "neonvm-core-pod-autoscaler",
            "neonvm-core-vertical-scaling",
            "neonvm-core-vm-lifecycle",
            "neonvm-disk",
            "neonvm-guest",
            "neonvm-hypervisor",
            "neonvm-kernel",
            "neonvm-kit",
            "neonvm-runner",
        ],
    ),
    // Runs the cores themselves, not the services around them.
    (
        "neonvm-sim",
        &[
            "neonvm-types",
            "neonvm-api",
            "neonvm-core-vm-lifecycle",
            "neonvm-core-migration",
            "neonvm-core-overlay",
            "neonvm-core-scheduling",
            "neonvm-core-vertical-scaling",
            "neonvm-core-pod-autoscaler",
        ],
    ),
    // Pulls images; starts runners as processes, does not link them.
    (
        "neonvm-kubelet",
        &["neonvm-types", "neonvm-api", "neonvm-core-kubelet", "neonvm-kit", "neonvm-node", "neonvm-builder"],
    ),
    ("neonvm-apiserver", &["neonvm-types", "neonvm-api", "neonvm-apiserver-engine", "neonvm-kit"]),
    (
        "neonvm-neond",
        &[
            "neonvm-types",
            "neonvm-api",
            "neonvm-kit",
            "neonvm-hypervisor",
            "neonvm-apiserver",
            "neonvm-runner",
            "neonvm-vm-controller",
            "neonvm-node",
            "neonvm-pod-autoscaler",
            "neonvm-vxlan-controller",
            "neonvm-scheduler",
            "neonvm-agent",
            "neonvm-kubelet",
        ],
    ),
    // Disk formats are pure; the runner uses them too, without the registry client of the builder.
    ("neonvm-disk", &[]),
    ("neonvm-builder", &["neonvm-types", "neonvm-disk"]),
    ("neonvm-guest", &["neonvm-types", "neonvm-core-vertical-scaling"]),
    ("neonvm-kernel", &[]),
    // The objects of an installation; pure.
    ("neonvm-deploy", &["neonvm-api"]),
    // Reads the images of a release from the builder's store.
    ("neonvm-images", &["neonvm-types", "neonvm-builder"]),
    // Starts `neond local` as a process; does not link it. `podautoscaler explain` reckons with the core that decides.
    (
        "neonvm-cli",
        &[
            "neonvm-types",
            "neonvm-api",
            "neonvm-core-pod-autoscaler",
            "neonvm-deploy",
            "neonvm-kit",
            "neonvm-builder",
            "neonvm-disk",
            "neonvm-images",
            "neonvm-kernel",
        ],
    ),
    // Pods of Deployments as processes, for the example; no service uses it.
    ("neonvm-example-replicas", &["neonvm-kit"]),
    ("neonvm-xtask", &[]),
    // Talk to a server or run binaries; they know none of our types.
    ("neonvm-apiserver-conformance", &["neonvm-kit", "neonvm-apiserver"]),
    // What tests of services start; no product uses it.
    ("neonvm-test-cluster", &["neonvm-api", "neonvm-kit", "neonvm-apiserver", "neonvm-test-support"]),
    // Runs binaries, and knows of our crates only how a client of the API connects.
    ("neonvm-e2e", &["neonvm-kit", "neonvm-test-support"]),
    // What tests of every crate share; no product uses it.
    ("neonvm-test-support", &[]),
    (
        "neonvm-apiserver-endurance",
        &[
            "neonvm-types",
            "neonvm-api",
            "neonvm-apiserver-engine",
            "neonvm-kit",
            "neonvm-apiserver",
            "neonvm-apiserver-conformance",
            "neonvm-bench",
        ],
    ),
    (
        "neonvm-bench",
        &[
            "neonvm-types",
            "neonvm-api",
            "neonvm-apiserver-engine",
            "neonvm-core-scheduling",
            "neonvm-kit",
            "neonvm-apiserver",
            "neonvm-scheduler",
        ],
    ),
];

/// What nothing under `controllers/core/`, `types` or `api` may use: clocks, sockets, tasks, logs.
const SHELL_ONLY: &[&str] =
    &["tokio", "hyper", "hyper-util", "rustls", "tokio-rustls", "reqwest", "tracing", "redb", "rand", "axum"];

/// Everything that breaks the table.
pub(crate) fn faults(packages: &[Package]) -> Vec<String> {
    packages.iter().flat_map(|package| faults_of(package, packages)).collect()
}

fn faults_of(package: &Package, all: &[Package]) -> Vec<String> {
    let name = &package.name;
    let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| known == name) else {
        return vec![format!("{name}: not in the table of arrows (tests/xtask/src/arrows.rs)")];
    };
    let ours = |dependency: &&String| all.iter().any(|other| other.name == **dependency);
    let wrong = package.dependencies.iter().filter(ours).filter(|to| !allowed.contains(&to.as_str()));
    let mut faults: Vec<String> = wrong.map(|to| format!("{name} must not depend on {to}")).collect();
    let pure = package.directory.starts_with("controllers/core")
        || name == "neonvm-apiserver-engine"
        || name == "neonvm-types"
        || name == "neonvm-api";
    if pure {
        let shell = package.dependencies.iter().filter(|to| SHELL_ONLY.contains(&to.as_str()));
        faults.extend(shell.map(|to| format!("{name} is pure and must not depend on {to}")));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.into(),
            dependencies: dependencies.iter().map(|&d| d.to_owned()).collect(),
            ..Package::default()
        }
    }

    #[test]
    fn an_arrow_against_the_table_is_a_fault() {
        let types = package("neonvm-types", &["serde", "neonvm-api"]);
        let api = package("neonvm-api", &["neonvm-types", "tokio"]);
        let stranger = package("neonvm-stranger", &[]);
        let faults = faults(&[types, api, stranger]);
        assert_eq!(
            faults,
            [
                "neonvm-types must not depend on neonvm-api",
                "neonvm-api is pure and must not depend on tokio",
                "neonvm-stranger: not in the table of arrows (tests/xtask/src/arrows.rs)",
            ]
        );
    }
}
