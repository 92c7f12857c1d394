//! OCI image layouts: directories, and tars of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use neonvm_types::objects;
use serde::Deserialize;

use super::ingest::{self, Ingested, Opened, StoredLayer};
use super::loading::Loading;
use super::{Error, printable};
use crate::cache::{DOCUMENT_LIMIT, read_limited};
use crate::layer::{Archive, Entry, EntryKind, Run};
use crate::reference::Digest;
use crate::registry::{Document, ImageConfig, IndexEntry, Manifest, choose, note};
use crate::store::Descriptor;

/// Most files in a tar of a layout.
const FILE_LIMIT: usize = 1_000_000;
/// Deepest nesting of indexes.
const INDEX_DEPTH: usize = 4;

/// Files by name: a directory, or a tar.
pub(super) trait ImageFiles: Sync {
    fn path(&self) -> &Path;
    /// A file and its length. None if there is none.
    fn open(&self, name: &str) -> Result<Option<Opened>, Error>;

    /// A small file.
    fn document(&self, name: &str) -> Result<Vec<u8>, Error> {
        let what = || format!("{} in {}", name, self.path().display());
        let Some((reader, length)) = self.open(name)? else {
            return Err(Error::NoImage { place: self.path().to_owned(), missing: name.to_owned() });
        };
        if length > DOCUMENT_LIMIT {
            return Err(Error::Limit { what: what(), limit: DOCUMENT_LIMIT, unit: "bytes", flag: None });
        }
        let mut bytes = Vec::new();
        reader
            .take(DOCUMENT_LIMIT)
            .read_to_end(&mut bytes)
            .map_err(|error| Error::Malformed { what: what(), problem: error.to_string() })?;
        Ok(bytes)
    }

    /// A manifest or configuration, checked against its digest.
    fn checked(&self, digest: Digest) -> Result<Vec<u8>, Error> {
        let name = blob_name(digest);
        if self.open(&name)?.is_none() {
            return Err(Error::BlobMissing { place: self.path().display().to_string(), digest });
        }
        let bytes = self.document(&name)?;
        let actual = Digest::from_bytes(&bytes);
        if actual != digest {
            let what = format!("{name} in {}", self.path().display());
            return Err(Error::DigestMismatch { what, expected: digest, actual });
        }
        Ok(bytes)
    }
}

pub(super) fn blob_name(digest: Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_path_buf())
    }
}

impl ImageFiles for Directory {
    fn path(&self) -> &Path {
        &self.0
    }

    fn open(&self, name: &str) -> Result<Option<Opened>, Error> {
        let path = self.0.join(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("open", &path, error)),
        };
        let length = file.metadata().map_err(|error| Error::io("read", &path, error))?.len();
        Ok(Some((Box::new(file), length)))
    }

    fn document(&self, name: &str) -> Result<Vec<u8>, Error> {
        let path = self.0.join(name);
        read_limited(&path, DOCUMENT_LIMIT).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if self.0.is_dir() => {
                Error::NoImage { place: self.0.clone(), missing: name.to_owned() }
            }
            _ => Error::io("read", &path, error),
        })
    }
}

enum Spot {
    Run(Option<Run>),
    /// The same as another name: Docker's archives have links where layers repeat.
    Link(String),
}

/// A tar with files that can be read by name.
pub(super) struct TarFile {
    path: PathBuf,
    file: File,
    spots: BTreeMap<String, Spot>,
}

impl TarFile {
    pub(super) fn open(path: &Path, loading: &Loading<'_>) -> Result<Self, Error> {
        let (opened, _) = loading.open_tar(path, false)?;
        let file = opened.file;
        let reader = file.try_clone().map_err(|error| Error::io("open", path, error))?;
        let mut archive = Archive::new(path.display().to_string(), reader)?;
        let mut spots = BTreeMap::new();
        while let Some(entry) = archive.next_entry()? {
            if spots.len() >= FILE_LIMIT {
                let what = path.display().to_string();
                return Err(Error::Limit { what, limit: FILE_LIMIT as u64, unit: "files", flag: None });
            }
            if let Some((name, spot)) = spot(&entry) {
                spots.insert(name, spot);
            }
        }
        Ok(Self { path: path.to_path_buf(), file, spots })
    }
}

fn spot(entry: &Entry) -> Option<(String, Spot)> {
    let name = joined("", std::str::from_utf8(&entry.path).ok()?)?;
    let link = std::str::from_utf8(&entry.link).ok()?;
    let spot = match &entry.kind {
        EntryKind::File { length, runs } => match runs.as_slice() {
            [] if *length == 0 => Spot::Run(None),
            [run] if run.at == 0 && run.length == *length => Spot::Run(Some(*run)),
            // No program stores blobs as sparse files.
            _ => return None,
        },
        EntryKind::HardLink => Spot::Link(joined("", link)?),
        EntryKind::Symlink => {
            let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
            Spot::Link(joined(parent, link)?)
        }
        _ => return None,
    };
    Some((name, spot))
}

/// A name below a directory, without `.` and `..`. None if it leads out.
fn joined(directory: &str, name: &str) -> Option<String> {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

impl ImageFiles for TarFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str) -> Result<Option<Opened>, Error> {
        let mut name = joined("", name).unwrap_or_default();
        for _ in 0..8 {
            match self.spots.get(&name) {
                None => return Ok(None),
                Some(Spot::Link(target)) => name.clone_from(target),
                Some(Spot::Run(run)) => {
                    let file = self.file.try_clone().map_err(|error| Error::io("open", &self.path, error))?;
                    let (offset, length) = run.map_or((0, 0), |run| (run.offset, run.length));
                    return Ok(Some((Box::new(Section { file, offset, left: length }), length)));
                }
            }
        }
        let problem = format!("too many links at {}", printable(name.as_bytes()));
        Err(Error::Malformed { what: self.path.display().to_string(), problem })
    }
}

struct Section {
    file: File,
    offset: u64,
    left: u64,
}

impl Read for Section {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let limit = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.file.read_at(into.get_mut(..limit).unwrap_or_default(), self.offset)?;
        if count == 0 && limit > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.offset += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<IndexEntry>,
}

const NAMES: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/// The entries of an index that a name means: all, if there is none and they are one image.
fn named(place: &Path, index: Index, name: Option<&str>) -> Result<Vec<IndexEntry>, Error> {
    let names_of = |entry: &IndexEntry| -> Vec<String> {
        NAMES.iter().filter_map(|key| entry.descriptor.annotations.get(*key).cloned()).collect()
    };
    let mut available: Vec<String> =
        index.manifests.iter().filter_map(|entry| names_of(entry).into_iter().next()).collect();
    available.sort();
    available.dedup();
    let place = place.to_path_buf();
    let Some(name) = name else {
        if index.manifests.is_empty() {
            return Err(Error::ImageNotFound { place, name: String::new(), available });
        }
        if available.len() > 1 {
            return Err(Error::Ambiguous { place, available });
        }
        return Ok(index.manifests);
    };
    let fits = |entry: &IndexEntry| {
        names_of(entry).iter().any(|has| has == name) || entry.descriptor.digest.to_string() == name
    };
    let found: Vec<_> = index.manifests.into_iter().filter(fits).collect();
    if found.is_empty() {
        return Err(Error::ImageNotFound { place, name: name.into(), available });
    }
    Ok(found)
}

/// Brings an image of a layout into the cache.
pub(super) fn load(
    place: &dyn ImageFiles,
    name: Option<&str>,
    loading: &Loading<'_>,
) -> Result<Ingested, Error> {
    let what = place.path().display().to_string();
    let bytes = place.document("index.json")?;
    let index: Index = objects::from_slice(&bytes)
        .map_err(|error| Error::no_document(format!("index.json in {what}"), &bytes, &error))?;
    let entries = named(place.path(), index, name)?;
    let platform = &loading.options.platform;
    let chosen = |entries: &[IndexEntry]| -> Result<Descriptor, Error> {
        let entry = choose(entries, platform, &what)?;
        if let Some(text) = note(entries, platform, entry) {
            loading.progress.note(&format!("{what}: {text}"));
        }
        Ok(entry.descriptor.clone())
    };
    let mut descriptor = chosen(&entries)?;
    for _ in 0..INDEX_DEPTH {
        let bytes = place.checked(descriptor.digest)?;
        let title = format!("manifest {} in {what}", descriptor.digest);
        match Document::parse(&bytes, &descriptor.media_type, &title)? {
            Document::Manifest(manifest) => return image(place, descriptor.digest, &manifest, loading),
            Document::Index(entries) => descriptor = chosen(&entries)?,
        }
    }
    Err(Error::Malformed { what, problem: format!("indexes are nested more than {INDEX_DEPTH} deep") })
}

fn image(
    place: &dyn ImageFiles,
    digest: Digest,
    manifest: &Manifest,
    loading: &Loading<'_>,
) -> Result<Ingested, Error> {
    let path = place.path().display().to_string();
    let what = format!("configuration in {path}");
    let config = ImageConfig::parse(&place.checked(manifest.config.digest)?, &what)?;
    config.check_platform(&loading.options.platform, &path)?;
    let diff_ids = config.diff_ids(manifest.layers.len(), &what)?;
    let wanted: Vec<StoredLayer> = manifest
        .layers
        .iter()
        .zip(diff_ids)
        .map(|(layer, diff_id)| StoredLayer {
            stored: Some((layer.digest, layer.size)),
            diff_id: *diff_id,
            media_type: layer.media_type.clone(),
            what: format!("layer {}", layer.digest.hex().get(..12).unwrap_or_default()),
        })
        .collect();
    let layers = ingest::layers(loading, &wanted, &|index| {
        let missing = |digest| Error::BlobMissing { place: path.clone(), digest };
        let digest = wanted.get(index).and_then(|layer| layer.stored).map_or(digest, |(digest, _)| digest);
        place.open(&blob_name(digest))?.ok_or_else(|| missing(digest))
    })?;
    Ok(Ingested { digest, settings: config.settings(), layers })
}
