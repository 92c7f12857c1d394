//! A Debian package: an archive of a version, of what describes the package, and of its files
//! (<https://manpages.debian.org/deb.5>).

use md5::{Digest as _, Md5};

use super::tree::{Tree, gzip};

/// What a package is.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// Name of the package.
    pub(crate) name: &'static str,
    /// Version of the workspace.
    pub(crate) version: String,
    /// Packages that it works better with.
    pub(crate) recommends: &'static [&'static str],
    /// Packages that add to it.
    pub(crate) suggests: &'static [&'static str],
    /// One line.
    pub(crate) summary: &'static str,
    /// The lines below it.
    pub(crate) description: &'static [&'static str],
    /// Its files.
    pub(crate) files: Tree,
}

/// Who packs; reports go to the repository's page (SECURITY.md), no address is read.
pub(crate) const MAINTAINER: &str = "neonvm maintainers <maintainers@neonvm.invalid>";
/// Architecture of the packages.
pub(crate) const ARCHITECTURE: &str = "amd64";

impl Package {
    /// Name of the file of the package.
    pub(crate) fn file_name(&self) -> String {
        format!("{}_{}_{ARCHITECTURE}.deb", self.name, debian_version(&self.version))
    }

    /// The package.
    pub(crate) fn pack(&self, time: u64) -> anyhow::Result<Vec<u8>> {
        let mut about = Tree::default();
        about.file("control", self.control());
        about.file("md5sums", self.md5sums());
        let members = [
            ("debian-binary", b"2.0\n".to_vec()),
            ("control.tar.gz", gzip(&about.tar(true, time)?)?),
            ("data.tar.gz", gzip(&self.files.tar(true, time)?)?),
        ];
        let mut archive = ar::Builder::new(Vec::new());
        for (name, bytes) in members {
            let mut header = ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
            header.set_mtime(time);
            header.set_mode(0o100_644);
            archive.append(&header, bytes.as_slice())?;
        }
        Ok(archive.into_inner()?)
    }

    /// The programs are static: they depend on no package.
    fn control(&self) -> String {
        let mut text = format!(
            "Package: {}\nVersion: {}\nArchitecture: {ARCHITECTURE}\nMaintainer: {MAINTAINER}\n\
             Installed-Size: {}\n",
            self.name,
            debian_version(&self.version),
            self.files.kibibytes()
        );
        for (field, packages) in [("Recommends", self.recommends), ("Suggests", self.suggests)] {
            if !packages.is_empty() {
                text.push_str(&format!("{field}: {}\n", packages.join(", ")));
            }
        }
        text.push_str(&format!("Section: admin\nPriority: optional\nDescription: {}\n", self.summary));
        for line in self.description {
            text.push_str(&format!(" {}\n", if line.is_empty() { "." } else { line }));
        }
        text
    }

    fn md5sums(&self) -> String {
        self.files.files().map(|(path, bytes)| format!("{}  {path}\n", hex(&Md5::digest(bytes)))).collect()
    }
}

/// `0.3.0-rc1` is before `0.3.0`, which Debian writes `0.3.0~rc1`; a hyphen begins a revision there.
pub(crate) fn debian_version(version: &str) -> String {
    version.replacen('-', "~", 1)
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::Command;

    use neonvm_test_support::{need, needs};

    use super::*;

    fn small() -> Package {
        let mut files = Tree::default();
        files.program("usr/bin/neonctl", "#!/bin/sh\necho neonctl 9.8.7-rc1\n");
        files.link("usr/bin/kubectl-neonvm", "neonctl");
        files.file("usr/share/doc/neonctl/copyright", "text\n");
        Package {
            name: "neonctl",
            version: "9.8.7-rc1".into(),
            recommends: &["qemu-system-x86", "e2fsprogs"],
            suggests: &[],
            summary: "one line",
            description: &["First.", "", "Second."],
            files,
        }
    }

    #[test]
    fn two_packings_are_equal() {
        assert_eq!(small().pack(1_700_000_000).unwrap(), small().pack(1_700_000_000).unwrap());
        assert_ne!(small().pack(1_700_000_000).unwrap(), small().pack(1_700_000_001).unwrap());
    }

    #[test]
    fn members_have_the_order_and_the_owner_of_the_format() {
        let bytes = small().pack(1_700_000_000).unwrap();
        let mut archive = ar::Archive::new(bytes.as_slice());
        let mut names = Vec::new();
        while let Some(entry) = archive.next_entry() {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            assert_eq!((header.uid(), header.gid(), header.mtime()), (0, 0, 1_700_000_000));
            names.push(String::from_utf8_lossy(header.identifier()).into_owned());
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            assert!(names.len() > 1 || content == b"2.0\n");
        }
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
        assert_eq!(small().file_name(), "neonctl_9.8.7~rc1_amd64.deb");
    }

    #[test]
    fn sums_are_those_of_the_files() {
        let sums = small().md5sums();
        let lines: Vec<&str> = sums.lines().collect();
        assert_eq!(lines.len(), 2, "links have no sum: {sums}");
        assert!(
            lines.contains(&"e1cbb0c3879af8347246f12c559a86b5  usr/share/doc/neonctl/copyright"),
            "{sums}"
        );
    }

    #[test]
    fn dpkg_reads_what_was_packed() {
        let dpkg = need!(needs::program("dpkg-deb"));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(small().file_name());
        std::fs::write(&file, small().pack(1_700_000_000).unwrap()).unwrap();
        let ask = |arguments: &[&str]| {
            let output = Command::new(&dpkg).args(arguments).arg(&file).env("TZ", "UTC").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let info = ask(&["--info"]);
        for line in [
            " Package: neonctl",
            " Version: 9.8.7~rc1",
            " Architecture: amd64",
            " Recommends: qemu-system-x86, e2fsprogs",
            " Installed-Size: 8",
            " Description: one line",
            "  First.",
            "  .",
        ] {
            assert!(info.lines().any(|one| one == line), "{line:?} is missing:\n{info}");
        }
        let contents = ask(&["--contents"]);
        assert!(contents.contains("-rwxr-xr-x root/root"), "{contents}");
        assert!(contents.contains("2023-11-14 22:13 ./usr/bin/neonctl\n"), "{contents}");
        assert!(contents.contains("./usr/bin/kubectl-neonvm -> neonctl\n"), "{contents}");
        let to = directory.path().join("x");
        let status = Command::new(&dpkg).arg("--extract").arg(&file).arg(&to).status().unwrap();
        assert!(status.success());
        let starts = Command::new(to.join("usr/bin/kubectl-neonvm")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&starts.stdout), "neonctl 9.8.7-rc1\n");
    }
}
