//! `images`

pub(super) mod list;
pub(super) mod load;
pub(super) mod push;
pub(super) mod save;

use std::path::{Path, PathBuf};

use neonvm_builder::reference::Reference;
use neonvm_images::release::{self, Packed};

use super::{place, registry};
use crate::args::images::Which;
use crate::env::Env;
use crate::error::{Code, Error, Result};

/// Version of the images that belong to this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The images of a release, read and found whole.
fn open(env: &Env, which: &Which) -> Result<(PathBuf, Vec<Packed>)> {
    let directory = directory(env, which)?;
    let images = release::open(&directory).map_err(|error| failed("cannot read the images", &error))?;
    Ok((directory, images))
}

/// The images, which must fit this program unless any version will do.
fn fitting(env: &Env, which: &Which, any_version: bool) -> Result<Vec<Packed>> {
    let (directory, images) = open(env, which)?;
    let problems = release::problems(&images, VERSION);
    if problems.is_empty() || any_version {
        return Ok(images);
    }
    let first = Error::new(
        Code::Conflict,
        format!("the images in {} do not match the version of this program", directory.display()),
    );
    let hint =
        "build them from the same commit as neonctl, or use --any-version if they are right for the cluster";
    Err(problems.into_iter().fold(first, Error::cause).hint(hint))
}

/// Where the images are: as given, beside this program, or in cargo's target directory, which is the one above.
fn directory(env: &Env, which: &Which) -> Result<PathBuf> {
    let architecture = which.arch.clone().unwrap_or_else(|| place::architecture().to_owned());
    let places: Vec<PathBuf> = match (&which.from, &env.beside) {
        (Some(from), _) => vec![from.clone()],
        (None, Some(beside)) => [Some(beside.as_path()), beside.parent()]
            .into_iter()
            .flatten()
            .map(|place| place.join(release::DIRECTORY))
            .collect(),
        (None, None) => Vec::new(),
    };
    let is_layout = |path: &Path| path.join("oci-layout").is_file();
    let candidates = places.iter().flat_map(|place| [place.join(&architecture), place.clone()]);
    candidates.into_iter().find(|path| is_layout(path)).ok_or_else(|| {
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        Error::new(Code::NotFound, format!("no images for {architecture} in {}", looked.join(" or ")))
            .hint("build them with cargo xtask images, or set their directory with --from")
    })
}

/// The images with their full names.
fn named<'a>(images: &'a [Packed], registry: Option<&str>) -> Result<Vec<(Reference, &'a Packed)>> {
    let name = |image: &'a Packed| {
        let version = if image.labels.version.is_empty() { VERSION } else { &image.labels.version };
        let reference = release::reference(registry, &image.name, version);
        let wrong = |error: neonvm_images::Error| {
            Error::new(Code::Usage, error.to_string())
                .hint("write --registry as HOST[:PORT][/PREFIX], in lower case")
        };
        Ok((reference.map_err(wrong)?, image))
    };
    images.iter().map(name).collect()
}

fn failed(attempt: &str, error: &neonvm_images::Error) -> Error {
    match error {
        neonvm_images::Error::Store(error) => registry::load_error(attempt, error),
        other => Error::new(Code::Failed, attempt).cause(other.to_string()),
    }
}
