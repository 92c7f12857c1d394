//! The arrows between crates: which crate may depend on which. An edge that is not in `arrows.txt` is an error.

use crate::package::Package;

/// A line for each crate: its name, a colon, and the crates of ours that its product may use.
const ARROWS: &str = include_str!("../arrows.txt");

/// What nothing under `controllers/core/`, `types` or `api` may use: clocks, sockets, tasks, logs.
const SHELL_ONLY: &[&str] =
    &["tokio", "hyper", "hyper-util", "rustls", "tokio-rustls", "reqwest", "tracing", "redb", "rand", "axum"];

/// Everything that breaks the table.
pub(crate) fn faults(packages: &[Package]) -> Vec<String> {
    packages.iter().flat_map(|package| faults_of(package, packages)).collect()
}

fn faults_of(package: &Package, all: &[Package]) -> Vec<String> {
    let name = &package.name;
    let of_this = |line: &'static str| line.split_once(':').filter(|(known, _)| known == name);
    let Some((_, allowed)) = ARROWS.lines().find_map(of_this) else {
        return vec![format!("{name}: not in the table of arrows (tests/xtask/arrows.txt)")];
    };
    let allowed: Vec<&str> = allowed.split_whitespace().collect();
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
                "neonvm-stranger: not in the table of arrows (tests/xtask/arrows.txt)",
            ]
        );
    }
}
