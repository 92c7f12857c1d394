//! Brings the layers of local images into the cache, some at a time.

use std::io::{self, Read};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::counted::Counted;
use super::loading::Loading;
use super::{Error, ImageSettings, LayerInfo};
use crate::cache::CachedLayer;
use crate::reference::{Digest, Hasher};

/// An image with its layers in the cache.
pub(super) struct Ingested {
    pub(super) digest: Digest,
    pub(super) settings: ImageSettings,
    pub(super) layers: Vec<(LayerInfo, CachedLayer)>,
}

/// A layer as a local image has it.
pub(super) struct StoredLayer {
    /// Digest and length as stored, if the image names them.
    pub(super) stored: Option<(Digest, u64)>,
    pub(super) diff_id: Digest,
    pub(super) media_type: String,
    pub(super) what: String,
}

/// Bytes of a stored layer, and how many.
pub(super) type Opened = (Box<dyn Read + Send>, u64);

/// Brings layers into the cache; `open` gives the bytes of the one at an index.
pub(super) fn layers(
    loading: &Loading<'_>,
    wanted: &[StoredLayer],
    open: &(dyn Fn(usize) -> Result<Opened, Error> + Sync),
) -> Result<Vec<(LayerInfo, CachedLayer)>, Error> {
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(layer) = wanted.get(index) else { return };
            // The same layer twice needs no second look.
            if wanted.iter().take(index).any(|other| other.diff_id == layer.diff_id) {
                continue;
            }
            if let Err(error) = bring(loading, layer, &|| open(index)) {
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                next.store(wanted.len(), Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..loading.options.network.parallel.min(wanted.len()) {
            scope.spawn(work);
        }
        work();
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let found = wanted.iter().map(|layer| {
        let missing = || Error::NotCached(layer.what.clone());
        let cached = loading.cache.layer(layer.diff_id, false)?.ok_or_else(missing)?;
        let info = LayerInfo {
            digest: layer.stored.map(|(digest, _)| digest),
            diff_id: layer.diff_id,
            size: cached.size,
            media_type: layer.media_type.clone(),
        };
        Ok((info, cached))
    });
    found.collect()
}

fn bring(
    loading: &Loading<'_>,
    layer: &StoredLayer,
    open: &dyn Fn() -> Result<Opened, Error>,
) -> Result<(), Error> {
    if loading.cache.layer(layer.diff_id, loading.options.verify)?.is_some() {
        return Ok(());
    }
    let (reader, length) = open()?;
    if let Some((_, expected)) = layer.stored
        && expected != length
    {
        return Err(Error::LengthMismatch { what: layer.what.clone(), expected, actual: length });
    }
    loading.progress.started(&layer.what, Some(length));
    let mut reader =
        Counted { reader, task: &layer.what, progress: loading.progress, hasher: Hasher::default() };
    let unpacked = loading.cache.unpack(&layer.what, &mut reader, &loading.budget);
    if matches!(unpacked, Ok(_) | Err(Error::Malformed { .. }))
        && let Some((expected, _)) = layer.stored
    {
        // The digest of what is stored shows whether the store or the author of the image is to blame.
        io::copy(&mut reader, &mut io::sink())
            .map_err(|error| Error::Malformed { what: layer.what.clone(), problem: error.to_string() })?;
        let actual = reader.hasher.finish();
        if actual != expected {
            return Err(Error::DigestMismatch { what: layer.what.clone(), expected, actual });
        }
    }
    loading.cache.commit(unpacked?, Some(layer.diff_id), &layer.what)?;
    loading.progress.finished(&layer.what);
    Ok(())
}
