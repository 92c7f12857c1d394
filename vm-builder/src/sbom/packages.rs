//! Package databases.

use std::collections::BTreeMap;

use neonvm_disk::tree::{Sources, Tree};

use crate::content::{find, read};

/// No package database is larger.
const LARGEST: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// `apk` or `deb`.
    pub manager: &'static str,
    /// Distribution, such as `debian`.
    pub distribution: String,
    pub name: String,
    /// Version, as the package manager writes it.
    pub version: String,
    /// Architecture, as the package manager writes it.
    pub architecture: String,
    pub maintainer: Option<String>,
}

impl Package {
    /// The package URL (purl).
    pub fn url(&self) -> String {
        let Self { manager, distribution, name, version, architecture, .. } = self;
        let [distribution, name, version] = [distribution, name, version].map(|text| escape(text));
        format!("pkg:{manager}/{distribution}/{name}@{version}?arch={}", escape(architecture))
    }
}

fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    let encode = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

/// The packages of a tree, sorted.
pub fn packages(tree: &Tree, sources: &dyn Sources) -> Vec<Package> {
    let text = |path: &str| {
        let bytes = read(tree, sources, path.as_bytes(), LARGEST)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let release = text("/etc/os-release").or_else(|| text("/usr/lib/os-release")).unwrap_or_default();
    let id = release.lines().find_map(|line| line.strip_prefix("ID=")).unwrap_or("linux");
    let distribution = id.trim_matches('"').to_owned();
    let mut debian = text("/var/lib/dpkg/status").unwrap_or_default();
    let parts = find(tree, b"/var/lib/dpkg/status.d").and_then(|directory| tree.names(directory));
    // Distroless images have one file for each package; some of them are lists of checksums.
    for name in parts.into_iter().flat_map(BTreeMap::keys).filter(|name| !name.ends_with(b".md5sums")) {
        let path = format!("/var/lib/dpkg/status.d/{}", String::from_utf8_lossy(name));
        debian.push_str("\n\n");
        debian.push_str(&text(&path).unwrap_or_default());
    }
    let alpine = text("/lib/apk/db/installed").unwrap_or_default();
    let mut all: Vec<Package> =
        paragraphs(&debian).filter_map(|fields| of_debian(&fields, &distribution)).collect();
    all.extend(paragraphs(&alpine).filter_map(|fields| of_alpine(&fields, &distribution)));
    all.sort();
    all.dedup();
    all
}

/// `Key: value` or `K:value` lines, divided by empty lines; continuation lines are left out.
fn paragraphs(text: &str) -> impl Iterator<Item = BTreeMap<&str, &str>> {
    text.split("\n\n").map(|paragraph| paragraph_fields(paragraph).collect())
}

fn paragraph_fields(paragraph: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = paragraph.lines().filter(|line| !line.starts_with([' ', '\t']));
    lines.filter_map(|line| line.split_once(':')).map(|(key, value)| (key, value.trim()))
}

fn of_debian(fields: &BTreeMap<&str, &str>, distribution: &str) -> Option<Package> {
    if fields.get("Status").is_some_and(|status| !status.ends_with(" installed")) {
        return None;
    }
    Some(Package {
        manager: "deb",
        distribution: distribution.to_owned(),
        name: (*fields.get("Package")?).to_owned(),
        version: (*fields.get("Version")?).to_owned(),
        architecture: fields.get("Architecture").copied().unwrap_or("all").to_owned(),
        maintainer: fields.get("Maintainer").map(|&who| who.to_owned()),
    })
}

fn of_alpine(fields: &BTreeMap<&str, &str>, distribution: &str) -> Option<Package> {
    Some(Package {
        manager: "apk",
        distribution: distribution.to_owned(),
        name: (*fields.get("P")?).to_owned(),
        version: (*fields.get("V")?).to_owned(),
        architecture: fields.get("A").copied().unwrap_or("noarch").to_owned(),
        maintainer: fields.get("m").map(|&who| who.to_owned()),
    })
}
