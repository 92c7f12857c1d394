//! Pulling an image with a VM disk or a kernel from a registry into the local store.

use std::path::Path;
use std::sync::Arc;

use crate::cache::{Budget, Cache};
use crate::content;
use crate::export::DISK_PATH;
use crate::reference::{Digest, Reference};
use crate::registry::Puller;
use crate::source::{self, Error, Options, Progress, Source};
use crate::store::Store;

const KERNEL_PATH: &[u8] = b"/vmlinuz";

/// Stores an image under the name that it has in its registry, byte for byte, so that its digest stays. Returns the digest of its manifest.
/// The registry is queried unless the reference has a digest that the store has.
///
/// # Errors
/// See [`Error`]; also if the image has neither a VM disk nor a kernel.
pub async fn pull(
    reference: &Reference,
    options: &Options,
    store: &Path,
    progress: &dyn Progress,
) -> Result<Digest, Error> {
    let store = Store::open(store)?;
    if let Some(digest) = reference.digest()
        && store.get(&reference.to_string()).is_ok_and(|image| image.digest() == digest)
    {
        return Ok(digest);
    }
    let cache = Cache::open(&options.cache)?;
    let budget = Arc::new(Budget::new(options.limits, cache.root()));
    let work = cache.work()?;
    let puller = Puller::new(reference, options, (&cache, &budget), progress);
    let image = puller.image(work.path()).await?;
    // Judged before it is in the store, where VMs would find it.
    let beside = Store::open(&work.path().join("store"))?;
    beside.put(&image, reference)?;
    let path = beside.root().to_owned();
    let layout = Source::OciLayout { path, name: Some(image.digest().to_string()) };
    let loaded = Box::pin(source::load(&layout, options, progress)).await?;
    let has = |path: &[u8]| content::find(&loaded.tree, path).is_some();
    if !has(DISK_PATH.as_bytes()) && !has(KERNEL_PATH) {
        return Err(Error::NoDisk(reference.clone()));
    }
    store.put(&image, reference)
}
