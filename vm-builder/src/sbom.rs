//! A software bill of materials of a tree, as SPDX 2.3 in JSON: every package in the package databases of the image
//! (dpkg, also the form of distroless images, and apk). Deterministic: no time of making, a namespace that comes from
//! the content.

mod packages;

use neonvm_disk::tree::{Sources, Tree};
use serde_json::{Value, json};

pub use packages::{Package, packages};

/// The SPDX document of a tree, as JSON.
pub fn document(
    tree: &Tree,
    sources: &dyn Sources,
    name: &str,
    digest: &str,
    created: Option<&str>,
) -> Value {
    let packages = packages(tree, sources);
    let id = |index: usize| format!("SPDXRef-Package-{index}");
    let item = |(index, package): (usize, &Package)| {
        json!({
            "SPDXID": id(index),
            "name": package.name,
            "versionInfo": package.version,
            "supplier": package.maintainer.as_ref().map_or_else(|| "NOASSERTION".to_owned(), |who| format!("Organization: {who}")),
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": false,
            "licenseConcluded": "NOASSERTION",
            "licenseDeclared": "NOASSERTION",
            "externalRefs": [{
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": package.url(),
            }],
        })
    };
    let relationships: Vec<Value> = (0..packages.len())
        .map(|index| {
            json!({ "spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": id(index) })
        })
        .collect();
    json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": format!("urn:neonvm:sbom:{digest}"),
        "creationInfo": {
            "created": created.unwrap_or("1970-01-01T00:00:00Z"),
            "creators": [format!("Tool: neonvm-builder-{}", env!("CARGO_PKG_VERSION"))],
        },
        "packages": packages.iter().enumerate().map(item).collect::<Vec<_>>(),
        "relationships": relationships,
    })
}

#[cfg(test)]
mod tests {
    use neonvm_disk::tree::{Kind, NoSources, Time};

    use super::*;
    use crate::inject::{add, file};

    #[test]
    fn packages_of_both_databases_are_listed() {
        let mut tree = Tree::new();
        let mut write = |path: &str, text: &str| {
            let mut here = tree.root();
            let (directories, name) = path.rsplit_once('/').unwrap();
            for part in directories.split('/') {
                here = match tree.child(here, part.as_bytes()) {
                    Some(found) => found,
                    None => add(
                        &mut tree,
                        here,
                        part,
                        0o755,
                        Time::default(),
                        Kind::Directory(Default::default()),
                    )
                    .unwrap(),
                };
            }
            add(&mut tree, here, name, 0o644, Time::default(), file(&text.as_bytes().into()));
        };
        write(
            "var/lib/dpkg/status",
            "Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2+1\nMaintainer: M <m@x>\nDescription: a\n b: c\n\n\
             Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n",
        );
        write("var/lib/dpkg/status.d/base", "Package: base-files\nArchitecture: amd64\nVersion: 12\n");
        write("lib/apk/db/installed", "C:x\nP:musl\nV:1.2.4-r2\nA:x86_64\n\nP:zlib\nV:1.3\nA:x86_64\n");
        write("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n");
        let document = document(&tree, &NoSources, "x", "sha256:1", None);
        let urls: Vec<&str> = document["packages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|package| package["externalRefs"][0]["referenceLocator"].as_str().unwrap())
            .collect();
        assert_eq!(
            urls,
            [
                "pkg:apk/debian/musl@1.2.4-r2?arch=x86_64",
                "pkg:apk/debian/zlib@1.3?arch=x86_64",
                "pkg:deb/debian/base-files@12?arch=amd64",
                "pkg:deb/debian/bash@5.2%2B1?arch=amd64",
            ]
        );
        assert_eq!(document["relationships"].as_array().unwrap().len(), 4);
    }
}
