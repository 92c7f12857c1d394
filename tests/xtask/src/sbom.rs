//! `xtask sbom`: what the shipped programs are made of, as SPDX 2.3 in JSON (<https://spdx.github.io/spdx-spec/v2.3/>) in
//! `<target>/dist/neonvm.spdx.json`. The same commit gives the same document: its time is the commit's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::package;

/// Crates whose programs are shipped: the command line, the services, the program inside guests.
const SHIPPED: [&str; 3] = ["neonvm-cli", "neonvm-neond", "neonvm-guest"];
/// What they are built for; others have the same packages but for a few of the system's.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Writes the document.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let document = of_packages(root, &SHIPPED)?;
    let directory = package::target(root)?.join("dist");
    std::fs::create_dir_all(&directory)?;
    let path = directory.join("neonvm.spdx.json");
    std::fs::write(&path, serde_json::to_string_pretty(&document)? + "\n")?;
    let count = document.get("packages").and_then(Value::as_array).map_or(0, Vec::len);
    println!("{}: {count} packages", path.display());
    Ok(true)
}

/// The document of what some crates are made of.
pub(crate) fn of_packages(root: &Path, shipped: &[&str]) -> anyhow::Result<Value> {
    let metadata = package::resolved(root, PLATFORM)?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let (id, time) = commit(root)?;
    document(&metadata, &checksums(&lock), &id, &time, shipped)
}

/// The commit that is built, and its time as SPDX has it: in UTC.
pub(crate) fn commit(root: &Path) -> anyhow::Result<(String, String)> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%H %cd"]);
    let output = git.env("TZ", "UTC").current_dir(root).output().context("cannot run git log")?;
    if !output.status.success() {
        bail!("git log failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let (id, time) = text.trim().split_once(' ').context("git shows no time of the commit")?;
    Ok((id.to_owned(), time.to_owned()))
}

/// SHA-256 of each package that came from a registry, by `name version`.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let blocks = lock.split("[[package]]").skip(1);
    let entry = |block: &str| {
        let value = |key: &str| {
            let start = format!("{key} = ");
            block.lines().find_map(|line| Some(line.strip_prefix(&start)?.trim_matches('"').to_owned()))
        };
        Some((format!("{} {}", value("name")?, value("version")?), value("checksum")?))
    };
    blocks.filter_map(entry).collect()
}

/// Identifiers of the packages that the shipped ones are built from, themselves included. Dependencies of builds and tests run on
/// the build host, and are not shipped.
fn reached<'a>(metadata: &'a Value, shipped: &[&str]) -> BTreeSet<&'a str> {
    let nodes = resolved(metadata);
    let of = |id: &str| nodes.iter().find(|node| node["id"] == id);
    let normal =
        |dependency: &&Value| items(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
    let mut found: BTreeSet<&str> = BTreeSet::new();
    let packages = items(&metadata["packages"]).iter();
    let shipped = packages.filter(|package| shipped.iter().any(|name| package["name"] == *name));
    let mut open: Vec<&str> = shipped.filter_map(|package| package["id"].as_str()).collect();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            let dependencies = of(id).map(|node| items(&node["deps"])).unwrap_or_default();
            open.extend(dependencies.iter().filter(normal).filter_map(|one| one["pkg"].as_str()));
        }
    }
    found
}

/// The packages of the dependency graph, each with those that it depends on.
fn resolved(metadata: &Value) -> &[Value] {
    metadata.pointer("/resolve/nodes").map(items).unwrap_or_default()
}

fn document(
    metadata: &Value,
    checksums: &BTreeMap<String, String>,
    commit: &str,
    time: &str,
    shipped: &[&str],
) -> anyhow::Result<Value> {
    let reached = reached(metadata, shipped);
    if reached.is_empty() {
        bail!("cargo metadata shows none of {shipped:?}");
    }
    let all = items(&metadata["packages"]).iter();
    let all: Vec<&Value> =
        all.filter(|package| package["id"].as_str().is_some_and(|id| reached.contains(id))).collect();
    let packages: Vec<Value> = all.iter().map(|package| entry(package, checksums)).collect();
    let relation = |from: &str, kind: &str, to: &str| json!({"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to});
    let names: BTreeMap<&str, String> =
        all.iter().filter_map(|package| Some((package["id"].as_str()?, identifier(package)))).collect();
    let mut relations = Vec::new();
    for package in &all {
        if shipped.iter().any(|name| package["name"] == *name) {
            relations.push(relation("SPDXRef-DOCUMENT", "DESCRIBES", &identifier(package)));
        }
    }
    for node in resolved(metadata) {
        let Some(from) = node["id"].as_str().and_then(|id| names.get(id)) else { continue };
        let targets = items(&node["dependencies"]).iter().filter_map(|id| names.get(id.as_str()?));
        relations.extend(targets.map(|to| relation(from, "DEPENDS_ON", to)));
    }
    Ok(json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": "neonvm",
        "documentNamespace": format!("https://vm.neon.tech/spdx/{commit}"),
        "creationInfo": {"created": time, "creators": ["Tool: cargo xtask sbom"]},
        "packages": packages,
        "relationships": relations,
    }))
}

fn entry(package: &Value, checksums: &BTreeMap<String, String>) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    let (name, version) = (text("name"), text("version"));
    // Older manifests separate alternatives by a slash, which SPDX does not know.
    let license =
        package["license"].as_str().map_or("NOASSERTION".to_owned(), |text| text.replace('/', " OR "));
    let place = if package["source"].is_null() {
        "NOASSERTION".to_owned()
    } else {
        format!("https://crates.io/api/v1/crates/{name}/{version}/download")
    };
    let mut entry = json!({
        "SPDXID": identifier(package),
        "name": name,
        "versionInfo": version,
        "downloadLocation": place,
        "filesAnalyzed": false,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": license,
        "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
            "referenceLocator": format!("pkg:cargo/{name}@{version}")}],
    });
    let checksum = checksums.get(&format!("{name} {version}"));
    if let (Some(sum), Some(entry)) = (checksum, entry.as_object_mut()) {
        entry.insert("checksums".to_owned(), json!([{"algorithm": "SHA256", "checksumValue": sum}]));
    }
    entry
}

/// Letters, digits, points and hyphens are all that identifiers may have.
fn identifier(package: &Value) -> String {
    let text = format!(
        "{}-{}",
        package["name"].as_str().unwrap_or_default(),
        package["version"].as_str().unwrap_or_default()
    );
    let clean = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    format!("SPDXRef-{}", text.chars().map(clean).collect::<String>())
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shipped_is_listed_with_licence_and_checksum() {
        let root = package::root().unwrap();
        let metadata = package::resolved(&root, PLATFORM).unwrap();
        let lock = std::fs::read_to_string(root.join("Cargo.lock")).unwrap();
        let document =
            document(&metadata, &checksums(&lock), "c0ffee", "2026-01-02T03:04:05Z", &SHIPPED).unwrap();
        let packages = items(&document["packages"]);
        let found = |name: &str| packages.iter().find(|package| package["name"] == name);
        assert_eq!(found("neonvm-neond").unwrap()["downloadLocation"], "NOASSERTION");
        let rustls = found("rustls").unwrap();
        assert_eq!(rustls["checksums"][0]["checksumValue"].as_str().unwrap().len(), 64);
        assert!(
            rustls["externalRefs"][0]["referenceLocator"]
                .as_str()
                .unwrap()
                .starts_with("pkg:cargo/rustls@0.")
        );
        // What only tests need is not shipped.
        assert!(found("proptest").is_none() && found("neonvm-test-support").is_none());
        let own = |package: &&Value| package["name"].as_str().unwrap().starts_with("neonvm-");
        for package in packages.iter().filter(|package| !own(package)) {
            assert_ne!(package["licenseDeclared"], "NOASSERTION", "{package}");
            assert!(!package["checksums"].is_null(), "{package}");
        }
        let names: BTreeSet<&str> =
            packages.iter().filter_map(|package| package["SPDXID"].as_str()).collect();
        assert_eq!(names.len(), packages.len(), "identifiers are unique");
        for relation in items(&document["relationships"]) {
            assert!(names.contains(relation["relatedSpdxElement"].as_str().unwrap()), "{relation}");
        }
    }
}
