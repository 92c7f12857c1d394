//! `xtask dist`: the packages of a release in `<target>/dist`: Debian packages, archives for any Linux, what they are made of, and
//! `SHA256SUMS`. The same programs and the same time give the same bytes.

mod changelog;
mod content;
mod deb;
mod time;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

use crate::package::target;
use crate::{guest, images, sbom, shipped};
use content::Source;

/// Version of the packages: that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What the programs are made of, as [`sbom::run`] writes it.
const SBOM: &str = "neonvm.spdx.json";

/// Builds the release and packs it; with `--programs DIR`, packs what is in that directory.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<bool> {
    let given = parse(arguments)?;
    let to = target(root)?.join(shipped::DIST);
    let good = match given {
        Some(_) => sbom::run(root)?,
        None => shipped::release(root)? && guest::release(root, &to)?,
    };
    if !good {
        return Ok(false);
    }
    let time = time::of_packages(root)?;
    let source = source(root, given.unwrap_or_else(|| to.clone()), &to)?;
    content::check_versions(&source)?;
    content::check_changelog(&source)?;
    if images::has_changes(root)? {
        println!("note: files differ from the commit, so its other builds will not have these bytes");
    }
    let packed = pack(&source, time)?;
    for (name, bytes) in &packed {
        let path = to.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{:9} KiB  {}", bytes.len().div_ceil(1024), path.display());
    }
    Ok(true)
}

fn parse(arguments: &[String]) -> anyhow::Result<Option<PathBuf>> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => Ok(None),
        ["--programs", directory] => Ok(Some(directory.into())),
        ["--programs"] => bail!("--programs needs a value: the directory of the programs"),
        [other, ..] => bail!("unknown flag {other:?}; there is --programs DIR"),
    }
}

fn source(root: &Path, programs: PathBuf, to: &Path) -> anyhow::Result<Source> {
    let read =
        |path: PathBuf| std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()));
    Ok(Source {
        programs,
        version: VERSION.to_owned(),
        licence: read(root.join("LICENSE"))?,
        changelog: read(root.join("CHANGELOG.md"))?,
        sbom: read(to.join(SBOM))?,
    })
}

/// Every file of the release by its name, with the sums of all.
fn pack(source: &Source, time: u64) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let written = content::written(source)?;
    let mut packed = BTreeMap::from([(SBOM.to_owned(), source.sbom.clone())]);
    for package in [content::cli_package(source, &written)?, content::cluster_package(source)?] {
        packed.insert(package.file_name(), package.pack(time)?);
    }
    let mut archives = vec![content::cli_archive(source, &written)?];
    for program in content::CLUSTER {
        archives.push(content::archive(source, program)?);
    }
    for (name, tree) in archives {
        packed.insert(format!("{name}.tar.gz"), tree::gzip(&tree.tar(false, time)?)?);
    }
    packed.insert("SHA256SUMS".to_owned(), sums(&packed).into_bytes());
    Ok(packed)
}

/// As `sha256sum` prints and reads them.
fn sums(packed: &BTreeMap<String, Vec<u8>>) -> String {
    let line = |(name, bytes): (&String, &Vec<u8>)| {
        let digest = Sha256::digest(bytes);
        format!("{}  {name}\n", deb::hex(&digest))
    };
    packed.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
