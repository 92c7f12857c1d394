//! Licences of a package, out of its copyright file (<https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/>).

use std::collections::BTreeSet;

/// Debian's names, in lower case, and those of SPDX.
const NAMES: [(&str, &str); 46] = [
    ("apache-2", "Apache-2.0"),
    ("apache-2.0", "Apache-2.0"),
    ("artistic", "Artistic-1.0-Perl"),
    ("beerware", "Beerware"),
    ("bsd", "BSD-3-Clause"),
    ("bsd-2-clause", "BSD-2-Clause"),
    ("bsd-3-clause", "BSD-3-Clause"),
    ("bsd-4-clause", "BSD-4-Clause"),
    ("bsd-4-clause-uc", "BSD-4-Clause-UC"),
    ("bsl-1.0", "BSL-1.0"),
    ("cc0", "CC0-1.0"),
    ("cc0-1.0", "CC0-1.0"),
    ("cpl-1.0", "CPL-1.0"),
    ("expat", "MIT"),
    ("gfdl-1.2", "GFDL-1.2-only"),
    ("gfdl-1.3", "GFDL-1.3-only"),
    ("gpl", "GPL-1.0-or-later"),
    ("gpl-1", "GPL-1.0-only"),
    ("gpl-1+", "GPL-1.0-or-later"),
    ("gpl-2", "GPL-2.0-only"),
    ("gpl-2.0", "GPL-2.0-only"),
    ("gpl-2+", "GPL-2.0-or-later"),
    ("gpl-2.0+", "GPL-2.0-or-later"),
    ("gpl-3", "GPL-3.0-only"),
    ("gpl-3+", "GPL-3.0-or-later"),
    ("gplv3+", "GPL-3.0-or-later"),
    ("isc", "ISC"),
    ("lgpl", "LGPL-2.0-or-later"),
    ("lgpl-2", "LGPL-2.0-only"),
    ("lgpl-2+", "LGPL-2.0-or-later"),
    ("lgpl-2.0+", "LGPL-2.0-or-later"),
    ("lgpl-2.1", "LGPL-2.1-only"),
    ("lgpl-2.1+", "LGPL-2.1-or-later"),
    ("lgplv2.1+", "LGPL-2.1-or-later"),
    ("lgpl-3", "LGPL-3.0-only"),
    ("lgpl-3+", "LGPL-3.0-or-later"),
    ("libpng", "Libpng"),
    ("mit", "MIT"),
    ("mpl-1.1", "MPL-1.1"),
    ("mpl-2.0", "MPL-2.0"),
    ("openldap", "OLDAP-2.8"),
    ("openssl", "OpenSSL"),
    ("sleepycat", "Sleepycat"),
    ("unicode-dfs-2016", "Unicode-DFS-2016"),
    ("x11", "X11"),
    ("zlib", "Zlib"),
];

/// How a text refers to one of the licences that every Debian system has.
const COMMON: &str = "/usr/share/common-licenses/";

/// An SPDX expression for all that a copyright file names. What SPDX has no name for is `LicenseRef-…`.
#[must_use]
pub fn declared(package: &str, copyright: &str) -> String {
    let mut all: BTreeSet<String> = BTreeSet::new();
    if copyright.lines().take(5).any(|line| line.starts_with("Format:")) {
        let names = copyright.lines().filter_map(|line| line.strip_prefix("License:"));
        all.extend(names.map(str::trim).filter(|name| !name.is_empty()).flat_map(expressions));
    }
    if all.is_empty() {
        let ends = |letter: char| !(letter.is_ascii_alphanumeric() || "-.+".contains(letter));
        let mentions = copyright.match_indices(COMMON).map(|(at, _)| copyright.split_at(at + COMMON.len()).1);
        let names = mentions.map(|rest| rest.split(ends).next().unwrap_or_default().trim_end_matches('.'));
        all.extend(names.filter(|name| !name.is_empty()).map(spdx));
    }
    if all.is_empty() {
        return reference(&format!("{package}-copyright"));
    }
    all.into_iter().collect::<Vec<_>>().join(" AND ")
}

/// The names of licences in an expression that SPDX does not know.
pub fn references(expression: &str) -> impl Iterator<Item = &str> {
    expression.split([' ', '(', ')']).filter(|word| word.starts_with("LicenseRef-"))
}

/// `A or B, and C` as terms that all hold.
fn expressions(text: &str) -> Vec<String> {
    let text = text.replace(", ", " ");
    let term = |part: &str| {
        let any: BTreeSet<String> =
            part.split(" or ").map(str::trim).filter(|word| !word.is_empty()).map(spdx).collect();
        let any: Vec<String> = any.into_iter().collect();
        if any.len() > 1 { format!("({})", any.join(" OR ")) } else { any.concat() }
    };
    text.split(" and ").map(str::trim).filter(|part| !part.is_empty()).map(term).collect()
}

fn spdx(name: &str) -> String {
    let low = name.to_ascii_lowercase();
    let known = NAMES.iter().find(|(debian, _)| *debian == low);
    known.map_or_else(|| reference(name), |(_, spdx)| (*spdx).to_owned())
}

fn reference(name: &str) -> String {
    let clean = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    format!("LicenseRef-{}", name.chars().map(clean).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_debian_become_those_of_spdx() {
        let text = "Format: https://x\n\nFiles: *\nLicense: GPL-2+\n text\n\nFiles: a\nLicense: BSD-3-clause or GPL-2, and Expat\n\
                    \nLicense: Odd (thing)\n";
        assert_eq!(
            declared("p", text),
            "(BSD-3-Clause OR GPL-2.0-only) AND GPL-2.0-or-later AND LicenseRef-Odd--thing- AND MIT"
        );
        assert_eq!(references(&declared("p", text)).collect::<Vec<_>>(), ["LicenseRef-Odd--thing-"]);
    }

    #[test]
    fn texts_without_a_form_are_searched_for_common_licences() {
        let text = "It is in `/usr/share/common-licenses/LGPL-2.1', and in /usr/share/common-licenses/GPL-3.";
        assert_eq!(declared("p", text), "GPL-3.0-only AND LGPL-2.1-only");
        assert_eq!(declared("lib+x", "Do what you want."), "LicenseRef-lib-x-copyright");
        assert_eq!(declared("p", ""), "LicenseRef-p-copyright");
    }
}
