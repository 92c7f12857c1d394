//! What `docker save` writes: a tar with `manifest.json`, configurations, and uncompressed layers.

use neonvm_types::objects;
use serde::Deserialize;

use super::Error;
use super::ingest::{self, Ingested, StoredLayer};
use super::layout::{ImageFiles, TarFile};
use super::loading::Loading;
use crate::reference::{Digest, Reference};
use crate::registry::ImageConfig;

#[derive(Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Brings an image of an archive into the cache.
pub(super) fn load(place: &TarFile, name: Option<&str>, loading: &Loading<'_>) -> Result<Ingested, Error> {
    let path = place.path().display().to_string();
    let malformed = |what: String, problem: String| Error::Malformed { what, problem };
    let bytes = place.document("manifest.json")?;
    let images: Vec<Saved> = objects::from_slice(&bytes)
        .map_err(|error| Error::no_document(format!("manifest.json in {path}"), &bytes, &error))?;
    let saved = chosen(place, &images, name)?;
    let bytes = place.document(&saved.config)?;
    let digest = Digest::from_bytes(&bytes);
    // The file is named by its digest, in one of two ways.
    let stated = saved.config.rsplit('/').next().unwrap_or_default().trim_end_matches(".json");
    if let Some(expected) = Digest::from_hex(stated)
        && expected != digest
    {
        let what = format!("{} in {path}", saved.config);
        return Err(Error::DigestMismatch { what, expected, actual: digest });
    }
    let what = format!("configuration in {path}");
    let config = ImageConfig::parse(&bytes, &what)?;
    config.check_platform(&loading.options.platform, &path)?;
    let diff_ids = config.diff_ids(saved.layers.len(), &what)?;
    let wanted: Vec<StoredLayer> = diff_ids
        .iter()
        .map(|diff_id| StoredLayer {
            stored: None,
            diff_id: *diff_id,
            media_type: String::new(),
            what: format!("layer {}", diff_id.hex().get(..12).unwrap_or_default()),
        })
        .collect();
    let layers = ingest::layers(loading, &wanted, &|index| {
        let file = saved.layers.get(index).map(String::as_str).unwrap_or_default();
        place.open(file)?.ok_or_else(|| malformed(path.clone(), format!("it has no {file:?}")))
    })?;
    Ok(Ingested { digest, settings: config.settings(), layers })
}

fn chosen<'a>(place: &TarFile, images: &'a [Saved], name: Option<&str>) -> Result<&'a Saved, Error> {
    let available: Vec<String> =
        images.iter().flat_map(|image| image.repo_tags.clone().unwrap_or_default()).collect();
    let path = place.path().to_path_buf();
    let Some(name) = name else {
        return match images {
            [image] => Ok(image),
            [] => Err(Error::ImageNotFound { place: path, name: String::new(), available }),
            _ => Err(Error::Ambiguous { place: path, available }),
        };
    };
    let wanted = name.parse::<Reference>().ok();
    let fits = |image: &&Saved| {
        let mut tags = image.repo_tags.iter().flatten();
        // `postgres:16` and `docker.io/library/postgres:16` are the same.
        tags.any(|tag| tag == name || (wanted.is_some() && tag.parse().ok() == wanted))
    };
    let found = images.iter().find(fits);
    found.ok_or_else(|| Error::ImageNotFound { place: path, name: name.into(), available })
}
