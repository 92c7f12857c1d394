//! The list of what is in an image, as SPDX 2.3 in JSON. The same contents give the same document.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use neonvm_builder::reference::Digest;
use serde_json::{Value, json};

use crate::packages::{Package, Packages};
use crate::{Error, licence};

/// Identifier of the image itself.
const IMAGE: &str = "SPDXRef-image";

/// What a list is made of.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Entries of packages, by identifier: programs share most of theirs.
    entries: BTreeMap<String, Value>,
    /// Licences that SPDX has no name for, and the copyright file of one package that has each.
    licences: BTreeMap<String, String>,
    /// Relationships among the packages of our programs.
    relations: Vec<Value>,
}

impl Contents {
    /// Adds Debian packages.
    ///
    /// # Errors
    /// If the file of a package cannot be read.
    pub fn debian(
        &mut self,
        packages: &Packages,
        which: &BTreeSet<usize>,
        release: &str,
    ) -> Result<(), Error> {
        for package in which.iter().filter_map(|index| packages.all().get(*index)) {
            let copyright = copyright_path(package);
            let way = packages.way(&copyright).and_then(|way| packages.get(&way.end));
            let text = match way {
                Some(found) => {
                    let bytes = std::fs::read(&found.host).map_err(Error::file("read", &found.host))?;
                    String::from_utf8_lossy(&bytes).into_owned()
                }
                None => String::new(),
            };
            let declared = licence::declared(package.field("Package"), &text);
            for name in licence::references(&declared) {
                self.licences.entry(name.to_owned()).or_insert_with(|| copyright.clone());
            }
            self.add(entry(package, &declared, release)?);
        }
        Ok(())
    }

    fn add(&mut self, entry: Value) {
        let id = entry.get("SPDXID").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.entries.insert(id, entry);
    }

    /// Adds the packages of a document that was made of our programs.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn programs(&mut self, path: &Path) -> Result<(), Error> {
        let bytes = std::fs::read(path).map_err(Error::file("read", path))?;
        let malformed = |problem: String| Error::Release { path: path.to_owned(), problem };
        let document: Value = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
        let list = |key: &str| document.get(key).and_then(Value::as_array).cloned();
        let packages = list("packages").ok_or_else(|| malformed("it lists no packages".to_owned()))?;
        packages.into_iter().for_each(|entry| self.add(entry));
        for relation in list("relationships").unwrap_or_default() {
            let of_document = relation.get("spdxElementId").is_some_and(|id| id == "SPDXRef-DOCUMENT");
            if !of_document && !self.relations.contains(&relation) {
                self.relations.push(relation);
            }
        }
        Ok(())
    }

    /// How many packages there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// The document. `name`: of the image, with its version.
    #[must_use]
    pub fn document(&self, name: &str, version: &str, created: &str) -> Value {
        let relation = |from: &str, kind: &str, to: &str| json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to });
        let mut relations = vec![relation("SPDXRef-DOCUMENT", "DESCRIBES", IMAGE)];
        relations.extend(self.entries.keys().map(|id| relation(IMAGE, "CONTAINS", id)));
        relations.extend(self.relations.iter().cloned());
        let image = json!({
            "SPDXID": IMAGE,
            "name": name,
            "versionInfo": version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": false,
            "primaryPackagePurpose": "CONTAINER",
            "licenseConcluded": "NOASSERTION",
            "licenseDeclared": "Apache-2.0",
            "copyrightText": "NOASSERTION",
        });
        let licences: Vec<Value> = self
            .licences
            .iter()
            .map(
                |(id, path)| json!({ "licenseId": id, "extractedText": format!("See {path} in the image.") }),
            )
            .collect();
        let packages: Vec<Value> = std::iter::once(image).chain(self.entries.values().cloned()).collect();
        let identity = Digest::from_bytes(Value::Array(packages.clone()).to_string().as_bytes());
        json!({
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": name,
            "documentNamespace": format!("https://vm.neon.tech/spdx/{name}/{}", identity.hex()),
            "creationInfo": { "created": created, "creators": ["Tool: neonvm-images"] },
            "packages": packages,
            "relationships": relations,
            "hasExtractedLicensingInfos": licences,
        })
    }
}

/// Where a package has its copyright file.
#[must_use]
pub fn copyright_path(package: &Package) -> String {
    format!("/usr/share/doc/{}/copyright", package.field("Package"))
}

fn entry(package: &Package, declared: &str, release: &str) -> Result<Value, Error> {
    let [name, version, architecture] = ["Package", "Version", "Architecture"].map(|key| package.field(key));
    let clean = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    let id: String = format!("{name}-{version}").chars().map(clean).collect();
    let sum = if package.file.is_file() {
        let mut file = std::fs::File::open(&package.file).map_err(Error::file("open", &package.file))?;
        let (digest, _) = Digest::of_reader(&mut file).map_err(Error::file("read", &package.file))?;
        json!([{ "algorithm": "SHA256", "checksumValue": digest.hex() }])
    } else {
        json!([])
    };
    let source = match package.field("Source") {
        "" => format!("{name} ({version})"),
        source if source.contains('(') => source.to_owned(),
        source => format!("{source} ({version})"),
    };
    let url = format!(
        "pkg:deb/debian/{}@{}?arch={architecture}&distro=debian-{release}",
        name.replace('+', "%2B"),
        version.replace('+', "%2B")
    );
    Ok(json!({
        "SPDXID": format!("SPDXRef-deb-{id}"),
        "name": name,
        "versionInfo": version,
        "supplier": format!("Organization: {}", package.field("Maintainer")),
        "sourceInfo": format!("built from Debian's source package {source}"),
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": declared,
        "copyrightText": "NOASSERTION",
        "checksums": sum,
        "externalRefs": [{ "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url }],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::tests::package;

    #[test]
    fn each_package_is_listed_with_source_and_licence() {
        let root = tempfile::tempdir().unwrap();
        let mut packages = Packages::default();
        package(
            &mut packages,
            root.path(),
            "a",
            &[("/usr/share/doc/a/copyright", b"Format: x\nLicense: Expat and Odd\n")],
        );
        package(&mut packages, root.path(), "b", &[("/usr/bin/b", b"b")]);
        let mut contents = Contents::default();
        contents.debian(&packages, &[0, 1].into(), "trixie").unwrap();
        let programs = root.path().join("p.json");
        let text = r#"{"packages":[{"SPDXID":"SPDXRef-x-1"}],"relationships":[{"spdxElementId":"SPDXRef-DOCUMENT"}]}"#;
        std::fs::write(&programs, text).unwrap();
        contents.programs(&programs).unwrap();
        assert_eq!(contents.count(), 3);
        let document = contents.document("neond", "1.2.3", "1970-01-01T00:00:00Z");
        assert_eq!(document, contents.document("neond", "1.2.3", "1970-01-01T00:00:00Z"));
        let package = &document["packages"][1];
        assert_eq!(package["licenseDeclared"], "LicenseRef-Odd AND MIT");
        assert_eq!(
            package["externalRefs"][0]["referenceLocator"],
            "pkg:deb/debian/a@1:2-3?arch=amd64&distro=debian-trixie"
        );
        assert_eq!(document["packages"][2]["licenseDeclared"], "LicenseRef-b-copyright");
        let licences: Vec<&str> = document["hasExtractedLicensingInfos"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["licenseId"].as_str().unwrap())
            .collect();
        assert_eq!(licences, ["LicenseRef-Odd", "LicenseRef-b-copyright"]);
        assert_eq!(document["relationships"].as_array().unwrap().len(), 4);
    }
}
