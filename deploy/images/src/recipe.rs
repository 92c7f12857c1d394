//! Recipes: what is in an image. Data, so that a change of contents is no change of code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Error;

/// What an image is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Architecture {
    /// 64-bit x86.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// As Debian and OCI name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Directory of its libraries.
    #[must_use]
    pub fn triplet(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu",
            Self::Arm64 => "aarch64-linux-gnu",
        }
    }

    /// `e_machine` of its programs.
    #[must_use]
    pub fn machine(self) -> u16 {
        match self {
            Self::Amd64 => 62,
            Self::Arm64 => 183,
        }
    }
}

/// The distribution that packages come from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Debian {
    /// Name of the release.
    pub release: String,
    /// Keys that its lists are signed with.
    pub keyring: PathBuf,
    /// Lines of `sources.list` after `deb`: address, suite, components.
    pub sources: Vec<String>,
}

impl Debian {
    /// Reads a description.
    ///
    /// # Errors
    /// If it cannot be read or lacks something.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let found: Self = read(path)?;
        if found.sources.is_empty() {
            return Err(invalid(path, "sources: none is given; write `ADDRESS SUITE COMPONENT`"));
        }
        match found.sources.iter().find(|line| line.contains('\n') || line.split(' ').count() < 3) {
            Some(line) => Err(invalid(path, &format!("sources: {line:?} is not `ADDRESS SUITE COMPONENT`"))),
            None => Ok(found),
        }
    }
}

/// Words for every architecture and for single ones. `{triplet}` stands for the directory of libraries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Each {
    all: Vec<String>,
    amd64: Vec<String>,
    arm64: Vec<String>,
}

impl Each {
    /// Those for an architecture.
    #[must_use]
    pub fn for_architecture(&self, architecture: Architecture) -> Vec<String> {
        let own = match architecture {
            Architecture::Amd64 => &self.amd64,
            Architecture::Arm64 => &self.arm64,
        };
        let fill = |word: &String| word.replace("{triplet}", architecture.triplet());
        self.all.iter().chain(own).map(fill).collect()
    }

    fn every(&self) -> impl Iterator<Item = &String> {
        self.all.iter().chain(&self.amd64).chain(&self.arm64)
    }
}

/// How containers of an image are run, unless pods override it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// User and group, as numbers; empty: root.
    pub user: String,
    /// Environment.
    pub env: BTreeMap<String, String>,
}

/// A layer. What changes rarely is below, so that a new version fetches little.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Layer {
    /// What it is called in the image's history.
    pub name: String,
    /// Packages; what they depend on is looked through as well.
    pub packages: Each,
    /// Programs and modules of these packages, taken with all libraries that they need.
    pub programs: Each,
    /// Files of these packages; with a slash at the end, all below.
    pub files: Each,
    /// File of the image, and the directory of packages whose files it is made of.
    pub concatenate: BTreeMap<String, String>,
    /// Symbolic links: path and target.
    pub links: BTreeMap<String, String>,
    /// Directories and their modes, octal.
    pub directories: BTreeMap<String, String>,
    /// Files with their text.
    pub text: BTreeMap<String, String>,
    /// Programs of ours: path and name of the program.
    pub own: BTreeMap<String, String>,
    /// Directory for `vmlinuz` and `initramfs` of the guest kernel.
    pub kernel: Option<String>,
}

/// What an image is made of.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name in registries, below the prefix.
    pub name: String,
    /// For people.
    pub title: String,
    /// How it is run.
    #[serde(default)]
    pub config: Config,
    /// Lowest first.
    pub layers: Vec<Layer>,
}

impl Recipe {
    /// Reads a recipe.
    ///
    /// # Errors
    /// If it cannot be read; the message names the field.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let recipe: Self = read(path)?;
        recipe.check().map_err(|problem| invalid(path, &problem))?;
        Ok(recipe)
    }

    fn check(&self) -> Result<(), String> {
        let good = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        if self.name.is_empty() || !good(&self.name) {
            return Err(format!("name: {:?} is not lower-case letters and hyphens", self.name));
        }
        if self.layers.is_empty() {
            return Err("layers: none is given".to_owned());
        }
        self.layers.iter().enumerate().try_for_each(|(index, layer)| layer.check(&format!("layers[{index}]")))
    }
}

impl Layer {
    fn check(&self, field: &str) -> Result<(), String> {
        let absolute = |name: &str, path: &str| {
            let inside = !path.split('/').any(|part| part == ".." || part == ".");
            if path.starts_with('/') && inside && path.len() > 1 && !path.contains("//") {
                Ok(())
            } else {
                Err(format!("{field}.{name}: {path:?} is not an absolute path without dots"))
            }
        };
        if self.name.is_empty() {
            return Err(format!("{field}.name is missing"));
        }
        self.programs.every().try_for_each(|path| absolute("programs", path))?;
        self.files.every().try_for_each(|path| absolute("files", path))?;
        for (name, map) in [("concatenate", &self.concatenate), ("links", &self.links), ("text", &self.text)]
        {
            map.keys().try_for_each(|path| absolute(name, path))?;
        }
        self.concatenate.values().try_for_each(|path| absolute("concatenate", path))?;
        self.own.keys().chain(&self.kernel).try_for_each(|path| absolute("own or kernel", path))?;
        for (path, mode) in &self.directories {
            absolute("directories", path)?;
            parse_mode(mode).ok_or_else(|| format!("{field}.directories: {mode:?} is not an octal mode"))?;
        }
        let plain = |name: &&String| name.is_empty() || name.contains('/') || name.starts_with('.');
        match self.own.values().find(plain) {
            Some(name) => Err(format!("{field}.own: {name:?} is not the name of a program")),
            None => Ok(()),
        }
    }
}

/// A mode, such as `1777`.
pub(crate) fn parse_mode(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o1777)
}

fn invalid(path: &Path, problem: &str) -> Error {
    Error::Recipe { path: path.to_owned(), problem: problem.to_owned() }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = std::fs::read_to_string(path).map_err(Error::file("read", path))?;
    serde_saphyr::from_str(&text).map_err(|error| invalid(path, error.to_string().trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.yaml");
        std::fs::write(&path, text).unwrap();
        Recipe::read(&path).unwrap_err().to_string()
    }

    #[test]
    fn the_recipes_of_this_repository_can_be_used() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR"));
        for (file, name) in [("services.yaml", "neond"), ("runner.yaml", "neonvm-runner")] {
            let recipe = Recipe::read(&place.join(file)).unwrap();
            assert_eq!(recipe.name, name);
        }
        assert_eq!(Debian::read(&place.join("debian.yaml")).unwrap().release, "trixie");
    }

    #[test]
    fn an_architecture_has_its_own_words_and_those_of_all() {
        let text = "all: [a]\namd64: ['/lib/{triplet}/x']\narm64: [c]\n";
        let each: Each = serde_saphyr::from_str(text).unwrap();
        assert_eq!(each.for_architecture(Architecture::Amd64), ["a", "/lib/x86_64-linux-gnu/x"]);
        assert_eq!(each.for_architecture(Architecture::Arm64), ["a", "c"]);
    }

    #[test]
    fn a_bad_recipe_is_refused_with_its_field() {
        let layer = |rest: &str| refused(&format!("name: a\ntitle: A\nlayers:\n  - name: x\n{rest}"));
        for (rest, field) in [
            ("    files: {all: [usr/x]}\n", "layers[0].files"),
            ("    links: {/../x: y}\n", "layers[0].links"),
            ("    directories: {/tmp: '9'}\n", "layers[0].directories"),
            ("    own: {/x: ../y}\n", "layers[0].own"),
            ("    packges: {}\n", "packges"),
        ] {
            let error = layer(rest);
            assert!(error.contains(field), "{error}");
        }
        assert!(refused("name: A\ntitle: A\nlayers: [{name: x}]").contains("name: \"A\""));
        assert!(refused("name: a\ntitle: A\nlayers: []").contains("layers: none"));
    }
}
