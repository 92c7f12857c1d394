//! How people name a source on a command line.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::formats::{self, Packing};
use super::{Error, Source};
use crate::dockerfile;
use crate::layer::Archive;

/// Entries of a tar that are read to recognise its kind.
const LOOK_LIMIT: usize = 100_000;

impl Source {
    /// Reads `docker://reference`, a plain reference, `oci:path[:name]`, `oci-archive:path[:name]`,
    /// `docker-archive:path[:name]`, `dir:path`, `tar:path`, `dockerfile:path`, or the path of something that exists, which is
    /// recognised by its content: a directory with a file `oci-layout` is a layout, one with a `Dockerfile` its context, any other the root of
    /// a file system; a file of that name is a Dockerfile, a tar with
    /// `oci-layout` or `manifest.json` is an archive, any other the root of a file system.
    ///
    /// A relative path that could be a reference (`images/postgres`) is one, unless it exists, or has the name of a file (`disk.qcow2`,
    /// `root.tar.gz`); `docker://root.tar` is a reference.
    pub fn parse(text: &str) -> Result<Self, Error> {
        for (prefix, make) in FORMS {
            if let Some(rest) = text.strip_prefix(prefix) {
                return make(rest);
            }
        }
        let path = Path::new(text);
        if !text.is_empty() && path.exists() {
            return recognised(path);
        }
        if let Some((prefix, problem)) = ELSEWHERE.iter().find(|(prefix, _)| text.starts_with(*prefix)) {
            return Err(Error::Setting {
                setting: "source",
                value: text.to_owned(),
                problem: format!("{prefix} is not read: {problem}"),
            });
        }
        if text.starts_with(['/', '.', '~', '-']) || is_file_name(path) {
            return Err(Error::SourceMissing(path.to_path_buf()));
        }
        Ok(Self::Registry(text.parse()?))
    }

    /// The source as [`Self::parse`] reads it.
    pub fn text(&self) -> String {
        let named = |form: &str, path: &Path, name: &Option<String>| {
            let name = name.as_ref().map(|name| format!(":{name}")).unwrap_or_default();
            format!("{form}:{}{name}", path.display())
        };
        match self {
            Self::Registry(reference) => reference.to_string(),
            Self::OciLayout { path, name } => named("oci", path, name),
            Self::OciArchive { path, name } => named("oci-archive", path, name),
            Self::DockerArchive { path, name } => named("docker-archive", path, name),
            Self::RootTree(path) => format!("dir:{}", path.display()),
            Self::RootTar(path) => format!("tar:{}", path.display()),
            Self::Dockerfile { path, .. } => format!("dockerfile:{}", path.display()),
        }
    }
}

type Make = fn(&str) -> Result<Source, Error>;

const FORMS: [(&str, Make); 7] = [
    ("docker://", |rest| Ok(Source::Registry(rest.parse()?))),
    ("oci-archive:", |rest| split(rest).map(|(path, name)| Source::OciArchive { path, name })),
    ("docker-archive:", |rest| split(rest).map(|(path, name)| Source::DockerArchive { path, name })),
    ("oci:", |rest| split(rest).map(|(path, name)| Source::OciLayout { path, name })),
    ("dir:", |rest| existing(rest).map(Source::RootTree)),
    ("tar:", |rest| existing(rest).map(Source::RootTar)),
    ("dockerfile:", |rest| dockerfile(existing(rest)?)),
];

/// Endings of files that are no images in a registry.
const ENDINGS: [&str; 32] = [
    "tar",
    "tgz",
    "tbz",
    "tbz2",
    "txz",
    "tzst",
    "gz",
    "bz2",
    "xz",
    "zst",
    "lz4",
    "lzma",
    "zip",
    "7z",
    "rar",
    "cpio",
    "qcow2",
    "qcow",
    "img",
    "raw",
    "vmdk",
    "vhd",
    "vhdx",
    "vdi",
    "ova",
    "ovf",
    "iso",
    "squashfs",
    "sqsh",
    "erofs",
    "ext4",
    "dockerfile",
];

/// Forms of other programs, and what to do instead.
const ELSEWHERE: [(&str, &str); 9] = [
    ("http://", "download it, and give the path of the file"),
    ("https://", "download it, and give the path of the file; an image is named without https://"),
    ("file:", "give the path alone"),
    ("docker-daemon:", "save it with docker save -o FILE IMAGE, and give docker-archive:FILE"),
    ("containers-storage:", "save it with podman save -o FILE IMAGE, and give docker-archive:FILE"),
    ("podman:", "save it with podman save -o FILE IMAGE, and give docker-archive:FILE"),
    ("docker-image://", "give the reference alone"),
    ("oci-layout://", "give oci:DIRECTORY"),
    ("sif:", "unpack it into a directory, and give dir:DIRECTORY"),
];

/// Whether a path that does not exist is probably a mistyped file.
fn is_file_name(path: &Path) -> bool {
    let ending = path.extension().and_then(std::ffi::OsStr::to_str).unwrap_or_default().to_ascii_lowercase();
    // What follows a colon is a tag or a digest.
    (ENDINGS.contains(&ending.as_str()) || dockerfile::is_name(path))
        && !path.as_os_str().as_bytes().contains(&b':')
}

fn dockerfile(path: PathBuf) -> Result<Source, Error> {
    Ok(Source::Dockerfile { path: dockerfile::file_at(path)?, arguments: Vec::new() })
}

fn existing(text: &str) -> Result<PathBuf, Error> {
    let path = PathBuf::from(text);
    match std::fs::metadata(&path) {
        Ok(_) if !text.is_empty() => Ok(path),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("read", &path, error)),
        _ => Err(Error::SourceMissing(path)),
    }
}

/// Splits `path[:name]` where a path exists: both may hold colons.
fn split(text: &str) -> Result<(PathBuf, Option<String>), Error> {
    if !text.is_empty() && Path::new(text).exists() {
        return Ok((text.into(), None));
    }
    for (index, _) in text.match_indices(':') {
        let (path, name) = text.split_at(index);
        let name = name.get(1..).unwrap_or_default();
        if !path.is_empty() && !name.is_empty() && Path::new(path).exists() {
            return Ok((path.into(), Some(name.to_owned())));
        }
    }
    Err(Error::SourceMissing(text.split(':').next().unwrap_or(text).into()))
}

fn recognised(path: &Path) -> Result<Source, Error> {
    let path = path.to_path_buf();
    if path.is_dir() {
        let is_layout = path.join("oci-layout").is_file() && path.join("index.json").is_file();
        if is_layout {
            return Ok(Source::OciLayout { path, name: None });
        }
        return if dockerfile::of_directory(&path).is_some() {
            dockerfile(path)
        } else {
            Ok(Source::RootTree(path))
        };
    }
    if dockerfile::is_name(&path) {
        return dockerfile(path);
    }
    let mut file = File::open(&path).map_err(|error| Error::io("open", &path, error))?;
    let failed = |error| Error::io("read", &path, error);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::other("it is no regular file")));
    }
    let mut head = [0; 6];
    let count = file.read(&mut head).map_err(failed)?;
    if Packing::of(head.get(..count).unwrap_or_default()) != Packing::None {
        // Its content is recognised when it is loaded, since it must be decompressed for that.
        return Ok(Source::RootTar(path));
    }
    if let Some(format) = formats::of_file(&file).map_err(failed)? {
        return Err(Error::no_archive(path.display().to_string(), format));
    }
    let mut archive = Archive::new(path.display().to_string(), file)?;
    let mut names = BTreeSet::new();
    for _ in 0..LOOK_LIMIT {
        let Some(entry) = archive.next_entry()? else { break };
        let name = entry.path.strip_prefix(b"./").unwrap_or(&entry.path);
        if matches!(name, b"oci-layout" | b"index.json" | b"manifest.json") {
            names.insert(name.to_vec());
        }
    }
    let has = |name: &[u8]| names.contains(name);
    Ok(if has(b"oci-layout") && has(b"index.json") {
        Source::OciArchive { path, name: None }
    } else if has(b"manifest.json") {
        Source::DockerArchive { path, name: None }
    } else {
        Source::RootTar(path)
    })
}
