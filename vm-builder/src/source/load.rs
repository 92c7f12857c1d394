//! Loading: from any source to a tree.

use std::path::Path;
use std::sync::Arc;

use super::ingest::Ingested;
use super::loading::Loading;
use super::{
    Error, ImageSettings, LayerInfo, Loaded, Options, Progress, Source, docker_archive, formats, layout, root,
};
use crate::cache::{Budget, Cache, CachedLayer};
use crate::dockerfile;
use crate::layer::{Applier, Archive, LayerSources, Whiteouts};
use crate::reference::Reference;
use crate::registry::Puller;

/// Loads an image. File work is done in place: call it from a thread that may block, inside a tokio runtime with time
/// and network.
pub async fn load(source: &Source, options: &Options, progress: &dyn Progress) -> Result<Loaded, Error> {
    let cache = Cache::open(&options.cache)?;
    let budget = Arc::new(Budget::new(options.limits, cache.root()));
    let loading = Loading { options, cache: &cache, budget, progress };
    match source {
        Source::Registry(reference) => loading.registry(reference).await,
        Source::OciLayout { path, name } => {
            let place = layout::Directory::new(path);
            loading.ingested(&layout::load(&place, name.as_deref(), &loading)?, &source.text())
        }
        Source::OciArchive { path, name } => {
            let place = layout::TarFile::open(path, &loading)?;
            loading.ingested(&layout::load(&place, name.as_deref(), &loading)?, &source.text())
        }
        Source::DockerArchive { path, name } => {
            let place = layout::TarFile::open(path, &loading)?;
            loading.ingested(&docker_archive::load(&place, name.as_deref(), &loading)?, &source.text())
        }
        Source::RootTree(path) => {
            let (tree, sources) = root::walk(path, options)?;
            if let Some(format) = formats::of_tree(&tree) {
                return Err(Error::no_archive(path.display().to_string(), format));
            }
            let digest = super::tree_digest(&tree, &sources)?;
            Ok(Loaded {
                tree,
                sources: Box::new(sources),
                settings: loading.plain_settings(),
                digest,
                reference: source.text(),
                layers: Vec::new(),
            })
        }
        Source::RootTar(path) => loading.root_tar(path, &source.text()),
        Source::Dockerfile { path, arguments } => {
            let work = cache.work()?;
            let build = dockerfile::Build { file: path, arguments, options, progress };
            let built = dockerfile::build(&build, work.path())?;
            let loaded = Box::pin(load(&built, options, progress)).await?;
            Ok(Loaded { reference: source.text(), ..loaded })
        }
    }
}

impl Loading<'_> {
    async fn registry(&self, reference: &Reference) -> Result<Loaded, Error> {
        let pulled =
            Puller::new(reference, self.options, (self.cache, &self.budget), self.progress).pull().await?;
        let mut layers = Vec::new();
        for ((diff_id, layer), descriptor) in pulled.layers.into_iter().zip(&pulled.manifest.layers) {
            let info = LayerInfo {
                digest: Some(descriptor.digest),
                diff_id,
                size: layer.size,
                media_type: descriptor.media_type.clone(),
            };
            layers.push((info, layer));
        }
        let ingested = Ingested { digest: pulled.digest, settings: pulled.config.settings(), layers };
        self.ingested(&ingested, &reference.with_digest(pulled.digest).to_string())
    }

    /// Applies the layers of an image.
    fn ingested(&self, image: &Ingested, reference: &str) -> Result<Loaded, Error> {
        let layers = image.layers.iter().map(|(info, layer)| (format!("layer {}", info.diff_id), layer));
        let (tree, sources) = self.apply(layers, Whiteouts::Apply)?;
        Ok(Loaded {
            tree,
            sources: Box::new(sources),
            settings: image.settings.clone(),
            digest: image.digest,
            reference: reference.into(),
            layers: image.layers.iter().map(|(info, _)| info.clone()).collect(),
        })
    }

    fn apply<'b>(
        &self,
        layers: impl Iterator<Item = (String, &'b CachedLayer)>,
        whiteouts: Whiteouts,
    ) -> Result<(neonvm_disk::tree::Tree, LayerSources), Error> {
        let mut applier = Applier::new(self.options.limits);
        let mut files = Vec::new();
        for (name, layer) in layers {
            let source = neonvm_disk::tree::SourceId(u32::try_from(files.len()).unwrap_or(u32::MAX));
            if layer.size > 0
                && let Some(format) = formats::of_file(&layer.file)
                    .map_err(|error| Error::io("read", Path::new(&name), error))?
                && format.name != formats::ZEROS
            {
                let wanted = "a tar";
                return Err(Error::Format { what: name, format: format.name, wanted, remedy: format.remedy });
            }
            let handle =
                || layer.file.try_clone().map_err(|error| Error::io("open", Path::new(&name), error));
            files.push(handle()?);
            applier.apply(&mut Archive::new(name.clone(), handle()?)?, source, whiteouts)?;
        }
        Ok((applier.into_tree(), LayerSources::of_archives(files)))
    }

    fn root_tar(&self, path: &Path, reference: &str) -> Result<Loaded, Error> {
        let (layer, digest) = self.open_tar(path, true)?;
        let name = path.display().to_string();
        let (tree, sources) = self.apply([(name.clone(), &layer)].into_iter(), Whiteouts::Literal)?;
        let has = |name: &[u8]| tree.child(tree.root(), name).is_some();
        if has(b"oci-layout") && has(b"index.json") {
            let place = layout::TarFile::open(path, self)?;
            return self.ingested(&layout::load(&place, None, self)?, &format!("oci-archive:{name}"));
        }
        if has(b"manifest.json") && !has(b"etc") {
            let place = layout::TarFile::open(path, self)?;
            return self
                .ingested(&docker_archive::load(&place, None, self)?, &format!("docker-archive:{name}"));
        }
        if let Some(format) = formats::of_tree(&tree) {
            return Err(Error::no_archive(name, format));
        }
        let info = LayerInfo { digest: None, diff_id: digest, size: layer.size, media_type: String::new() };
        Ok(Loaded {
            tree,
            sources: Box::new(sources),
            settings: self.plain_settings(),
            digest,
            reference: reference.into(),
            layers: vec![info],
        })
    }

    /// Settings of sources that have none.
    fn plain_settings(&self) -> ImageSettings {
        ImageSettings {
            architecture: self.options.platform.architecture.clone(),
            os: self.options.platform.os.clone(),
            ..ImageSettings::default()
        }
    }
}
