//! Volumes of a pod: made before its containers start, kept up to date as long as they run.

pub(crate) mod atomic;
mod mounts;
mod payload;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{HostPathVolumeSource, Pod, Volume};
use kube::Client;
use tokio::time::{Duration, Instant};

use crate::downward::Self_;
use crate::files;
use crate::images::{Images, Request};
use crate::objects::{Followed, Kind, Objects};
use crate::problem::Problem;
use crate::storage::Storage;
use neonvm_core_kubelet::status::Surroundings;
use payload::{Gathering, is_secret};

pub(crate) struct VolumeSources {
    pub(crate) client: Client,
    pub(crate) objects: Arc<Objects>,
    pub(crate) images: Arc<Images>,
    pub(crate) storage: Storage,
    pub(crate) namespace: String,
    /// Certificate of the cluster's authority, PEM.
    pub(crate) authority: String,
    /// The node's, for limits that are not set.
    pub(crate) allocatable: (u64, u64),
    pub(crate) directory: PathBuf,
    /// Owner of these images: node and UID.
    pub(crate) user: String,
    /// The user of the pod, which is also the group of its volumes; `None`: the node's own.
    pub(crate) owner: Option<u32>,
}

/// A volume that is there.
#[derive(Clone, Debug)]
struct Source {
    path: PathBuf,
    /// Whether containers may write to it.
    writable: bool,
    /// Its files may be links of the node.
    has_links: bool,
}

impl Source {
    fn writable(path: PathBuf) -> Self {
        Self { path, writable: true, has_links: false }
    }
}

/// Objects that volumes show, and tokens in use.
#[derive(Debug, Default)]
pub(crate) struct Held {
    objects: BTreeMap<(Kind, String), Followed>,
    tokens: BTreeMap<(String, i64), (String, Instant)>,
}

impl Held {
    fn hold(&mut self, objects: &Objects, kind: Kind, namespace: &str, name: &str) -> &mut Followed {
        let hold = || Followed::from(objects.hold(kind, namespace, name));
        self.objects.entry((kind, name.to_owned())).or_insert_with(hold)
    }

    fn token(&self, key: &(String, i64)) -> Option<String> {
        let (token, until) = self.tokens.get(key)?;
        (Instant::now() < *until).then(|| token.clone())
    }

    fn keep_token(&mut self, key: (String, i64), token: String, seconds: u64) {
        // Renewed when four fifths of its time are over, as kubelets do.
        self.tokens.insert(key, (token, Instant::now() + Duration::from_secs(seconds / 5 * 4)));
    }

    /// Waits until something shown has changed, or a token is to be renewed.
    pub(crate) async fn changed(&mut self) {
        let waits: Vec<_> = self.objects.values_mut().map(|object| Box::pin(object.changed())).collect();
        let renewal = self.tokens.values().map(|(_, until)| *until).min();
        let renewal = async {
            match renewal {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let any = async {
            if waits.is_empty() {
                std::future::pending::<()>().await;
            }
            let _ = futures_util::future::select_all(waits).await;
        };
        tokio::select! {
            () = renewal => {}
            () = any => {}
        }
    }
}

impl VolumeSources {
    fn own<'a>(&self, pod: &'a Pod, around: &'a Surroundings) -> Self_<'a> {
        Self_ { pod, around, allocatable: self.allocatable }
    }

    fn place(&self, volume: &str) -> PathBuf {
        self.directory.join("volumes").join(volume)
    }

    /// Makes all volumes and lets them appear below the pod's root. What is there already is kept. Where they are.
    ///
    /// # Errors
    /// The first volume that cannot be made, and why.
    pub(crate) async fn lay_out(
        &self,
        pod: &Pod,
        around: &Surroundings,
        held: &mut Held,
    ) -> Result<Vec<crate::mount::Mount>, Problem> {
        let mut sources = BTreeMap::new();
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        for volume in volumes {
            sources.insert(volume.name.clone(), self.make(volume, pod, around, held).await?);
        }
        let own = self.own(pod, around);
        let variables = self.fixed_variables(own);
        let expand = |text: &str| crate::env::expand(text, &variables);
        mounts::appear(pod, &self.directory.join("root"), &sources, &expand, self.owner.is_some())
    }

    /// Variables that paths may name: those with their value in the pod itself.
    fn fixed_variables(&self, own: Self_<'_>) -> BTreeMap<String, String> {
        let containers = own.pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut known = BTreeMap::new();
        for variable in containers.flat_map(|container| container.env.iter().flatten()) {
            let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
            if let Some(text) = variable.value.clone().or_else(|| own.field(field?)) {
                known.insert(variable.name.clone(), text);
            }
        }
        known
    }

    async fn make(
        &self,
        volume: &Volume,
        pod: &Pod,
        around: &Surroundings,
        held: &mut Held,
    ) -> Result<Source, Problem> {
        let place = self.place(&volume.name);
        let wrong = |error: std::io::Error| Problem::mount(&volume.name, error);
        if volume.empty_dir.is_some() {
            if !place.exists() {
                files::directory(&place, 0o777).map_err(wrong)?;
            }
            return Ok(Source::writable(place));
        }
        if let Some(source) = &volume.host_path {
            return host_path(&volume.name, source).map(Source::writable);
        }
        if let Some(source) = &volume.image {
            let spec = pod.spec.clone().unwrap_or_default();
            let secrets = spec.image_pull_secrets.unwrap_or_default();
            let request = Request {
                reference: source.reference.clone().unwrap_or_default(),
                policy: source.pull_policy.clone(),
                namespace: self.namespace.clone(),
                secrets: secrets.into_iter().map(|secret| secret.name).collect(),
                user: self.user.clone(),
            };
            let path = self.images.ensure(&request, pod, &self.objects).await?;
            return Ok(Source { path, writable: false, has_links: true });
        }
        if let Some(source) = &volume.persistent_volume_claim {
            let path = self.storage.provide(&volume.name, &self.namespace, &source.claim_name).await?;
            return Ok(Source { path, writable: source.read_only != Some(true), has_links: false });
        }
        if self.write(volume, pod, around, held).await?.is_some() {
            return Ok(Source { path: place, writable: false, has_links: false });
        }
        let why = format!("volume {:?} is of a kind that this node does not have", volume.name);
        Err(Problem::last("UnsupportedVolume", why))
    }

    /// Writes a volume of the API's objects. None: it is another kind of volume.
    async fn write(
        &self,
        volume: &Volume,
        pod: &Pod,
        around: &Surroundings,
        held: &mut Held,
    ) -> Result<Option<bool>, Problem> {
        let own = self.own(pod, around);
        let payload = atomic::Payload::new();
        let mut gathering = Gathering { context: self, own, volume: &volume.name, payload, held };
        if !gathering.gather(volume).await? {
            return Ok(None);
        }
        let (mut payload, place) = (gathering.payload, self.place(&volume.name));
        let mut mode = if is_secret(volume) { 0o700 } else { 0o755 };
        if self.owner.is_some() {
            // At once: while it is written again, the group can read it.
            mode |= 0o050;
            // As with kubelets the group of the pod's volumes reads them.
            payload.values_mut().for_each(|(_, mode)| *mode |= 0o440);
        }
        let write = || -> std::io::Result<bool> {
            files::directory(&place, mode)?;
            if let Some(group) = self.owner {
                files::give_to_group(&place, group)?;
            }
            atomic::write(&place, &payload, self.owner)
        };
        write().map(Some).map_err(|error| Problem::mount(&volume.name, error))
    }

    /// Writes again what objects, tokens or the pod itself have changed.
    pub(crate) async fn refresh(
        &self,
        pod: &Pod,
        around: &Surroundings,
        held: &mut Held,
    ) -> Result<(), Problem> {
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        let mut first = Ok(());
        for volume in volumes {
            match self.write(volume, pod, around, held).await {
                Ok(Some(true)) => {
                    tracing::info!(volume = volume.name, directory = %self.directory.display(), "updated");
                }
                Ok(_) => {}
                // The others are brought up to date all the same.
                Err(problem) => first = first.and(Err(problem)),
            }
        }
        first
    }
}

fn host_path(name: &str, source: &HostPathVolumeSource) -> Result<PathBuf, Problem> {
    let path = Path::new(&source.path);
    let wrong = |error: std::io::Error| Problem::mount(name, format_args!("{}: {error}", source.path));
    let kind = source.type_.as_deref().unwrap_or("");
    match kind {
        "DirectoryOrCreate" if !path.exists() => files::directory(path, 0o755).map_err(wrong)?,
        "FileOrCreate" if !path.exists() => drop(fs::File::create(path).map_err(wrong)?),
        _ => {}
    }
    if kind.is_empty() {
        return Ok(path.to_path_buf());
    }
    let found = fs::metadata(path).map_err(wrong)?.file_type();
    let fits = match kind {
        "Directory" | "DirectoryOrCreate" => found.is_dir(),
        "File" | "FileOrCreate" => found.is_file(),
        "Socket" => found.is_socket(),
        "CharDevice" => found.is_char_device(),
        "BlockDevice" => found.is_block_device(),
        _ => false,
    };
    if fits {
        return Ok(path.to_path_buf());
    }
    Err(Problem::mount(name, format_args!("{} is not of type {kind}", source.path)))
}
