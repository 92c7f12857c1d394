//! Pushing an image to a registry.

use futures_util::{StreamExt as _, TryStreamExt as _};

use crate::reference::{Digest, Reference};
use crate::registry::Client;
use crate::source::{Error, Network, Progress};
use crate::store::{Blob, Image};

/// Pushes an image: blobs that the registry lacks, then the manifest under the tag of the reference, or by its
/// digest if it has no tag. Returns the digest of the manifest.
///
/// # Errors
/// See [`Error`]; also if the reference names another digest than the image has.
pub async fn push(
    image: &Image,
    reference: &Reference,
    network: &Network,
    progress: &dyn Progress,
) -> Result<Digest, Error> {
    let actual = image.digest();
    if let Some(expected) = reference.digest()
        && expected != actual
    {
        let what = format!("the image to be pushed to {reference}");
        return Err(Error::DigestMismatch { what, expected, actual });
    }
    let client = Client::connect(reference, network, progress).await?;
    let mut blobs: Vec<&Blob> = Vec::new();
    for blob in image.layers.iter().chain([&image.config]) {
        if !blobs.iter().any(|known| known.descriptor.digest == blob.descriptor.digest) {
            blobs.push(blob);
        }
    }
    let uploads = blobs.into_iter().map(|blob| {
        let client = &client;
        async move {
            let digest = blob.descriptor.digest.hex();
            let task = format!("blob {}", digest.get(..12).unwrap_or_default());
            progress.started(&task, Some(blob.descriptor.size));
            if !client.upload(blob, &task).await? {
                progress.advanced(&task, blob.descriptor.size);
            }
            progress.finished(&task);
            Ok::<_, Error>(())
        }
    });
    let parallel = network.parallel.max(1);
    futures_util::stream::iter(uploads).buffer_unordered(parallel).try_collect::<()>().await?;
    let target = reference.tag().map_or_else(|| actual.to_string(), str::to_owned);
    client.upload_manifest(&target, &image.media_type, &image.manifest, actual).await?;
    Ok(actual)
}
