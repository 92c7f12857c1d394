//! The distribution of this host, for hints: how it calls a package, and how it installs one.

use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Debian,
    /// Fedora, RHEL and its rebuilds.
    Fedora,
    Suse,
    Arch,
    Other,
}

/// Identifiers in `os-release`, as distributions use them in `ID` or `ID_LIKE`.
const IDENTIFIERS: [(&str, Family); 9] = [
    ("debian", Family::Debian),
    ("ubuntu", Family::Debian),
    ("fedora", Family::Fedora),
    ("rhel", Family::Fedora),
    ("centos", Family::Fedora),
    ("suse", Family::Suse),
    ("opensuse", Family::Suse),
    ("arch", Family::Arch),
    ("archlinux", Family::Arch),
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Package {
    pub(super) debian: &'static str,
    pub(super) fedora: &'static str,
    pub(super) suse: &'static str,
    pub(super) arch: &'static str,
}

impl Package {
    /// A package that has the same name everywhere.
    pub(super) const fn everywhere(name: &'static str) -> Self {
        Self { debian: name, fedora: name, suse: name, arch: name }
    }
}

impl Family {
    pub(super) fn of_host() -> Self {
        let files = ["/etc/os-release", "/usr/lib/os-release"].map(Path::new);
        let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
        Self::of(&text.unwrap_or_default())
    }

    /// That of an `os-release`: by `ID`, else by the first known word of `ID_LIKE`.
    fn of(text: &str) -> Self {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
            line.unwrap_or_default().trim_matches(['"', '\'']).to_ascii_lowercase()
        };
        let known = |word: &str| {
            // openSUSE has `opensuse-leap` and others.
            let word = word.split('-').next().unwrap_or_default();
            IDENTIFIERS.iter().find_map(|(id, family)| (*id == word).then_some(*family))
        };
        let (id, like) = (value("ID"), value("ID_LIKE"));
        std::iter::once(id.as_str()).chain(like.split_whitespace()).find_map(known).unwrap_or(Self::Other)
    }

    pub(super) fn install(self, package: &Package) -> String {
        match self {
            Self::Debian => format!("apt-get install {}", package.debian),
            Self::Fedora => format!("dnf install {}", package.fedora),
            Self::Suse => format!("zypper install {}", package.suse),
            Self::Arch => format!("pacman -S {}", package.arch),
            Self::Other => format!("install the package that Debian calls {}", package.debian),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_known_by_their_own_name_or_by_that_of_their_parent() {
        for (text, family) in [
            ("PRETTY_NAME=\"Debian GNU/Linux 13\"\nID=debian\n", Family::Debian),
            ("ID=ubuntu\nID_LIKE=debian\n", Family::Debian),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", Family::Debian),
            ("ID=fedora\n", Family::Fedora),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", Family::Fedora),
            ("ID=\"opensuse-tumbleweed\"\nID_LIKE=\"opensuse suse\"\n", Family::Suse),
            ("ID='sles'\nID_LIKE=suse\n", Family::Suse),
            ("ID=arch\n", Family::Arch),
            ("ID=manjaro\nID_LIKE=arch\n", Family::Arch),
            ("ID=nixos\n", Family::Other),
            ("VERSION_ID=1\n", Family::Other),
            ("", Family::Other),
        ] {
            assert_eq!(Family::of(text), family, "{text}");
        }
    }

    #[test]
    fn hints_are_commands_of_the_distribution() {
        let package = Package { debian: "a", fedora: "b", suse: "c", arch: "d" };
        let families = [Family::Debian, Family::Fedora, Family::Suse, Family::Arch, Family::Other];
        assert_eq!(
            families.map(|family| family.install(&package)),
            [
                "apt-get install a",
                "dnf install b",
                "zypper install c",
                "pacman -S d",
                "install the package that Debian calls a"
            ]
        );
    }
}
