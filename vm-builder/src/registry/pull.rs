//! From a reference to manifest, configuration and cached layers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _};
use http::{Method, StatusCode};

use super::client::{Client, RegistryResponse, content_type};
use super::config::ImageConfig;
use super::failure::Report;
use super::manifest::{ACCEPT, Document, Manifest, choose, named, note};
use crate::cache::{Budget, Cache, CachedLayer, DOCUMENT_LIMIT};
use crate::reference::{Digest, Hasher, Reference};
use crate::source::{Error, Options, Progress, Pull};
use crate::store::{Blob, BlobContent, Descriptor, Image};

/// Deepest nesting of indexes.
const INDEX_DEPTH: usize = 4;

/// An image with its layers in the cache.
pub(crate) struct Pulled {
    pub(crate) digest: Digest,
    pub(crate) manifest: Manifest,
    pub(crate) config: ImageConfig,
    /// As in the manifest.
    pub(crate) layers: Vec<(Digest, CachedLayer)>,
}

/// Fetches what the cache lacks of an image.
pub(crate) struct Puller<'a> {
    reference: &'a Reference,
    options: &'a Options,
    progress: &'a dyn Progress,
    cache: &'a Cache,
    budget: &'a Arc<Budget>,
    /// Made when it is first needed: an image that is in the cache needs none.
    client: tokio::sync::OnceCell<Client<'a>>,
}

impl<'a> Puller<'a> {
    pub(crate) fn new(
        reference: &'a Reference,
        options: &'a Options,
        (cache, budget): (&'a Cache, &'a Arc<Budget>),
        progress: &'a dyn Progress,
    ) -> Self {
        Self { reference, options, progress, cache, budget, client: tokio::sync::OnceCell::new() }
    }

    pub(crate) async fn pull(&self) -> Result<Pulled, Error> {
        let (digest, manifest) = self.manifest().await?;
        let what = format!("configuration of {}", self.place());
        let (config, _) = self.config(&manifest, &what).await?;
        let diff_ids = config.diff_ids(manifest.layers.len(), &what)?;
        let mut files = self.layers(&manifest.layers, diff_ids).await?;
        let mut layers = Vec::new();
        for diff_id in diff_ids {
            let layer = match files.remove(diff_id) {
                Some(layer) => layer,
                // The same layer once more: another handle of the same file.
                None => self.again(*diff_id)?,
            };
            layers.push((*diff_id, layer));
        }
        self.cache.remember(self.reference, &self.options.platform, digest)?;
        Ok(Pulled { digest, manifest, config, layers })
    }

    /// The image as the registry stores it, with its layers as files of a directory. Its platform is checked.
    pub(crate) async fn image(&self, directory: &Path) -> Result<Image, Error> {
        let (digest, manifest) = self.manifest().await?;
        let what = format!("configuration of {}", self.place());
        let (_, bytes) = self.config(&manifest, &what).await?;
        let missing = || Error::NotCached(format!("manifest {digest}"));
        let document = self.cache.blob(digest)?.ok_or_else(missing)?;
        let client = self.announced(manifest.layers.iter()).await?;
        let mut layers = Vec::new();
        for descriptor in &manifest.layers {
            let path = directory.join(descriptor.digest.hex());
            if !path.exists() {
                client.fetch_blob(descriptor, &path).await?;
            }
            layers.push(Blob { descriptor: descriptor.clone(), content: BlobContent::File(path) });
        }
        let media_type = Document::media_type(&document);
        let config = Blob { descriptor: manifest.config, content: BlobContent::Bytes(bytes) };
        Ok(Image { manifest: document, media_type, config, layers })
    }

    /// The configuration, for a platform that fits, and its bytes.
    async fn config(&self, manifest: &Manifest, what: &str) -> Result<(ImageConfig, Vec<u8>), Error> {
        let bytes = self.blob(&manifest.config, what).await?;
        let config = ImageConfig::parse(&bytes, what)?;
        config.check_platform(&self.options.platform, &self.reference.to_string())?;
        Ok((config, bytes))
    }

    /// What fetches these layers, if there is room for them.
    async fn announced(&self, layers: impl Iterator<Item = &Descriptor>) -> Result<&Client<'a>, Error> {
        let client = self.client(&format!("layer of {}", self.reference)).await?;
        let stored = layers.map(|layer| layer.size).fold(0, u64::saturating_add);
        self.budget.announce(&format!("{}, compressed,", self.reference), stored)?;
        Ok(client)
    }

    fn again(&self, diff_id: Digest) -> Result<CachedLayer, Error> {
        self.cache.layer(diff_id, false)?.ok_or_else(|| Error::NotCached(format!("layer {diff_id}")))
    }

    fn place(&self) -> String {
        format!("{}/{}", self.reference.registry(), self.reference.repository())
    }

    async fn client(&self, what: &str) -> Result<&Client<'a>, Error> {
        if self.options.pull == Pull::Never {
            return Err(Error::NotCached(what.into()));
        }
        let network = &self.options.network;
        self.client.get_or_try_init(|| Client::connect(self.reference, network, self.progress)).await
    }

    async fn manifest(&self) -> Result<(Digest, Manifest), Error> {
        let place = self.place();
        let known = match (self.reference.digest(), self.options.pull) {
            (Some(digest), _) => Some(digest),
            (None, Pull::Always) => None,
            (None, Pull::Missing | Pull::Never) => {
                self.cache.recall(self.reference, &self.options.platform)?
            }
        };
        let cached = match known {
            Some(digest) => self.cache.blob(digest)?.map(|bytes| (digest, bytes, String::new())),
            None => None,
        };
        let (mut digest, mut bytes, mut media_type) = match cached {
            Some(found) => found,
            None => self.fetch_manifest(&self.reference.target(), self.reference.digest()).await?,
        };
        for _ in 0..INDEX_DEPTH {
            match Document::parse(&bytes, &media_type, &named(&place, digest))? {
                Document::Manifest(manifest) => return Ok((digest, manifest)),
                Document::Index(entries) => {
                    let image = self.reference.to_string();
                    let entry = choose(&entries, &self.options.platform, &image)?;
                    if let Some(text) = note(&entries, &self.options.platform, entry) {
                        self.progress.note(&format!("{image}: {text}"));
                    }
                    digest = entry.descriptor.digest;
                    media_type.clone_from(&entry.descriptor.media_type);
                    bytes = match self.cache.blob(digest)? {
                        Some(bytes) => bytes,
                        None => self.fetch_manifest(&digest.to_string(), Some(digest)).await?.1,
                    };
                }
            }
        }
        let problem = format!("indexes are nested more than {INDEX_DEPTH} deep");
        Err(Error::Malformed { what: self.reference.to_string(), problem })
    }

    async fn fetch_manifest(
        &self,
        target: &str,
        expected: Option<Digest>,
    ) -> Result<(Digest, Vec<u8>, String), Error> {
        let client = self.client(&self.reference.to_string()).await?;
        let path = format!("manifests/{target}");
        let answer = client.document(Method::GET, &path, ACCEPT, DOCUMENT_LIMIT).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(self.not_found(client, target, &answer).await),
            status => return Err(client.answered(status, &path, &answer.body, None)),
        }
        let actual = Digest::from_bytes(&answer.body);
        let stated = answer.header("docker-content-digest").and_then(|text| text.parse().ok());
        if let Some(expected) = expected.or(stated)
            && expected != actual
        {
            let what = format!("manifest of {}", self.place());
            return Err(Error::DigestMismatch { what, expected, actual });
        }
        self.cache.put_blob(&answer.body)?;
        let media_type = content_type(&answer).to_owned();
        Ok((actual, answer.body, media_type))
    }

    /// Whether the tag or the repository is what is missing.
    async fn not_found(&self, client: &Client<'_>, target: &str, answer: &RegistryResponse) -> Error {
        let (registry, repository) =
            (self.reference.registry().to_owned(), self.reference.repository().to_owned());
        let is_unknown = |report: &Report| report.has("NAME_UNKNOWN");
        let mut unknown = is_unknown(&Report::parse(&answer.body));
        if !unknown && let Ok(tags) = client.document(Method::GET, "tags/list?n=1", "*/*", 1 << 20).await {
            unknown = tags.status == StatusCode::NOT_FOUND && is_unknown(&Report::parse(&tags.body));
        }
        if unknown {
            return Error::RepositoryNotFound { registry, repository };
        }
        let target =
            if target.contains(':') { format!("manifest {target}") } else { format!("tag {target}") };
        Error::ManifestUnknown { registry, repository, target }
    }

    async fn blob(&self, descriptor: &Descriptor, what: &str) -> Result<Vec<u8>, Error> {
        if let Some(bytes) = self.cache.blob(descriptor.digest)? {
            return Ok(bytes);
        }
        let client = self.client(what).await?;
        let path = format!("blobs/{}", descriptor.digest);
        let answer = client.document(Method::GET, &path, "*/*", DOCUMENT_LIMIT).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                return Err(Error::BlobMissing { place: self.place(), digest: descriptor.digest });
            }
            status => return Err(client.answered(status, &path, &answer.body, None)),
        }
        let mut hasher = Hasher::default();
        hasher.update(&answer.body);
        descriptor.check(what, hasher)?;
        self.cache.put_blob(&answer.body)?;
        Ok(answer.body)
    }

    /// All layers, each once, some at a time.
    async fn layers(
        &self,
        descriptors: &[Descriptor],
        diff_ids: &[Digest],
    ) -> Result<BTreeMap<Digest, CachedLayer>, Error> {
        let mut files = BTreeMap::new();
        let mut missing: BTreeMap<Digest, &Descriptor> = BTreeMap::new();
        for (descriptor, diff_id) in descriptors.iter().zip(diff_ids) {
            if files.contains_key(diff_id) || missing.contains_key(diff_id) {
                continue;
            }
            match self.cache.layer(*diff_id, self.options.verify)? {
                Some(layer) => {
                    files.insert(*diff_id, layer);
                }
                None => {
                    missing.insert(*diff_id, descriptor);
                }
            }
        }
        if missing.is_empty() {
            return Ok(files);
        }
        // In the order of the image, which is the order in which people see them.
        let mut order: Vec<_> = missing.into_iter().collect();
        order.sort_by_key(|(_, wanted)| {
            descriptors.iter().position(|descriptor| descriptor.digest == wanted.digest)
        });
        let client = self.announced(order.iter().map(|(_, layer)| *layer)).await?;
        let fetches = order.into_iter().map(|(diff_id, descriptor)| async move {
            let layer = client.fetch_layer(self.cache, descriptor, diff_id, self.budget).await?;
            Ok::<_, Error>((diff_id, layer))
        });
        let parallel = self.options.network.parallel.max(1);
        let fetched: Vec<_> =
            futures_util::stream::iter(fetches).buffer_unordered(parallel).try_collect().await?;
        files.extend(fetched);
        Ok(files)
    }
}
