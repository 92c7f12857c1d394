//! Volumes of the class `local`: directories of the node. A claim gets its volume from the node on which the first pod that uses it is
//! placed. What a claim needs beyond that, controllers of Kubernetes do elsewhere: its volume grows, and goes with it.

pub(crate) mod object;
mod shared;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::select;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Error, ResourceExt as _};
use neonvm_api::names::annotation::SELECTED_NODE;
use serde_json::{Value, json};

use crate::problem::Problem;
use crate::{files, sys};
use neonvm_core_kubelet::status::has_ended;
use object::{CLAIM_IN_USE, Care, PROVISIONER};

/// Directory of the volumes below that of the node.
pub(crate) const DIRECTORY: &str = "volumes";
/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Pause before what did not succeed, or waits for the end of a pod, is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// The volumes of a node.
#[derive(Clone)]
pub(crate) struct Storage {
    client: Client,
    node: String,
    directory: PathBuf,
}

/// Whether a node with this directory has no volume.
pub(crate) fn is_empty(data: &Path) -> bool {
    std::fs::read_dir(data.join(DIRECTORY)).into_iter().flatten().flatten().next().is_none()
}

/// Sends a request. The error is the reason of a pod that waits.
async fn within<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(answer) => answer.map_err(|error| neonvm_kit::error::causes(&error)),
        Err(_) => Err(format!("the API server did not answer within {} s", DEADLINE.as_secs())),
    }
}

/// The same; an object that is there already, or is gone already, is as good.
async fn settled<T>(request: impl Future<Output = Result<T, Error>>, code: u16) -> Result<(), String> {
    let request = async {
        match request.await {
            Err(Error::Api(status)) if status.code == code => Ok(()),
            answer => answer.map(drop),
        }
    };
    within(request).await
}

impl Storage {
    /// Those of the node with this name, below its directory.
    pub(crate) fn new(client: Client, node: &str, data: &Path) -> Self {
        Self { client, node: node.to_owned(), directory: data.join(DIRECTORY) }
    }

    fn claims(&self, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// The directory of the volume that a claim has, or gets now, for a pod's volume of this name.
    ///
    /// # Errors
    /// If there is no such claim, or its volume is not on this node.
    pub(crate) async fn provide(
        &self,
        volume: &str,
        namespace: &str,
        claim: &str,
    ) -> Result<PathBuf, Problem> {
        let wrong = |why: String| Problem::mount(volume, format_args!("claim {claim}: {why}"));
        let found = within(self.claims(namespace).get_opt(claim)).await.map_err(wrong)?;
        let found = found.ok_or_else(|| wrong("it does not exist".to_owned()))?;
        if found.metadata.deletion_timestamp.is_some() {
            return Err(wrong("it is being deleted".to_owned()));
        }
        let spec = found.spec.clone().unwrap_or_default();
        if spec.volume_mode.as_deref() == Some("Block") {
            let why = "volumes of this node are directories, and the claim has volumeMode Block; make a claim of volumeMode Filesystem";
            return Err(Problem::last(
                "UnsupportedVolume",
                format!("volume {volume:?}: claim {claim}: {why}"),
            ));
        }
        let bound = match spec.volume_name.filter(|name| !name.is_empty()) {
            Some(name) => within(self.volumes().get(&name)).await.map_err(wrong)?,
            None => self.bind(&found).await.map_err(wrong)?,
        };
        let path = PathBuf::from(object::path(&bound, &self.node).map_err(wrong)?);
        if !path.is_dir() {
            let name = bound.name_any();
            return Err(wrong(format!("the directory {} of volume {name} is gone", path.display())));
        }
        if sys::can_make_roots() && path.starts_with(&self.directory) {
            let shared = shared::share(&path);
            shared
                .map_err(|error| wrong(format!("{} cannot be given to the pods: {error}", path.display())))?;
        }
        Ok(path)
    }

    /// Makes the volume of a claim here, unless another node has made it.
    async fn bind(&self, claim: &PersistentVolumeClaim) -> Result<PersistentVolume, String> {
        let spec = claim.spec.clone().unwrap_or_default();
        let class = spec.storage_class_name.clone().unwrap_or_default();
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        let found = within(classes.get_opt(&class)).await?;
        let Some(found) = found.filter(|found| found.provisioner == PROVISIONER) else {
            return Err(format!(
                "it has no volume, and its class {class:?} is not one of this cluster; the class {:?} makes volumes here",
                object::CLASS
            ));
        };
        if spec.data_source.is_some() || spec.data_source_ref.is_some() {
            // An empty volume would look like one whose content is lost.
            return Err(format!("class {class:?} makes empty volumes only, and the claim has a dataSource"));
        }
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let name = object::volume_name(&uid);
        let path = self.directory.join(&name);
        files::directory(&self.directory, 0o755)
            .and_then(|()| files::directory(&path, 0o777))
            .map_err(|error| format!("the directory {} cannot be made: {error}", path.display()))?;
        let reclaim = found.reclaim_policy.as_deref().unwrap_or("Delete");
        let wanted = object::volume(claim, &self.node, &path.display().to_string(), reclaim);
        let wanted: PersistentVolume = serde_json::from_value(wanted).map_err(|error| error.to_string())?;
        settled(self.volumes().create(&PostParams::default(), &wanted), 409).await?;
        let volume = within(self.volumes().get(&name)).await?;
        if !object::is_own(&volume, &self.node) {
            // Another node was first. The directory is empty: no pod has had it.
            let _ = std::fs::remove_dir(&path);
            object::path(&volume, &self.node)?;
            return Ok(volume);
        }
        self.attach(claim, &volume).await?;
        Ok(volume)
    }

    /// Writes into the claim which volume it has. Every step may be repeated.
    async fn attach(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<(), String> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let api = self.claims(&namespace);
        let change = json!({"metadata": {"uid": claim.metadata.uid, "annotations": {SELECTED_NODE: self.node}},
            "spec": {"volumeName": volume.name_any()}});
        within(api.patch(&name, &PatchParams::default(), &Patch::Merge(&change))).await?;
        self.report_size(claim, volume).await?;
        let bound = json!({"status": {"phase": "Bound"}});
        within(self.volumes().patch_status(
            &volume.name_any(),
            &PatchParams::default(),
            &Patch::Merge(&bound),
        ))
        .await
        .map(drop)
    }

    /// Writes the size of the volume into the claim's status.
    async fn report_size(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), String> {
        let spec = volume.spec.clone().unwrap_or_default();
        let status = json!({"status": {"phase": "Bound", "accessModes": spec.access_modes, "capacity": spec.capacity}});
        let (api, name) = (self.claims(&claim.namespace().unwrap_or_default()), claim.name_any());
        within(api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))).await.map(drop)
    }

    /// Cares for the claims and volumes of this node; never returns.
    pub(crate) async fn keep(&self) {
        let claims: Api<PartialObjectMeta<PersistentVolumeClaim>> = Api::all(self.client.clone());
        let volumes: Api<PartialObjectMeta<PersistentVolume>> = Api::all(self.client.clone());
        let retry = neonvm_kit::watch::retry;
        let claims = watcher(claims, watcher::Config::default()).backoff(retry()).map(|event| event.is_ok());
        let volumes =
            watcher(volumes, watcher::Config::default()).backoff(retry()).map(|event| event.is_ok());
        let mut changes = std::pin::pin!(select(claims, volumes).ready_chunks(64));
        let mut done = false;
        loop {
            if done {
                let _ = changes.next().await;
            } else {
                let _ = tokio::time::timeout(AGAIN, changes.next()).await;
            }
            done = match self.sweep().await {
                Ok(done) => done,
                Err(error) => {
                    tracing::debug!(error, "volumes are cared for again");
                    false
                }
            };
        }
    }

    /// One pass. Whether nothing waits.
    async fn sweep(&self) -> Result<bool, String> {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        if within(classes.get_opt(object::CLASS)).await?.is_none() {
            let class = serde_json::from_value(object::class()).map_err(|error| error.to_string())?;
            settled(classes.create(&PostParams::default(), &class), 409).await?;
        }
        let all = ListParams::default();
        let claims: Api<PersistentVolumeClaim> = Api::all(self.client.clone());
        // Volumes first: a claim is older than its volume, so that one that is missing in the later list is gone.
        let volumes = within(self.volumes().list(&all)).await?.items;
        let claims = within(claims.list(&all)).await?.items;
        for volume in volumes.iter().filter(|volume| object::is_own(volume, &self.node)) {
            let of = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.clone());
            let claim = claims.iter().find(|claim| claim.metadata.uid == of);
            self.care_for(volume, claim).await?;
        }
        self.let_claims_go(&volumes, &claims).await
    }

    async fn care_for(
        &self,
        volume: &PersistentVolume,
        claim: Option<&PersistentVolumeClaim>,
    ) -> Result<(), String> {
        let (api, name) = (self.volumes(), volume.name_any());
        let own = PatchParams::default();
        match object::care(volume, claim) {
            Care::Nothing => Ok(()),
            Care::Release => {
                let change = json!({"status": {"phase": "Released"}});
                within(api.patch_status(&name, &own, &Patch::Merge(&change))).await.map(drop)
            }
            Care::Grow(size) => {
                let change = json!({"spec": {"capacity": {"storage": size}}});
                let grown = within(api.patch(&name, &own, &Patch::Merge(&change))).await?;
                match claim {
                    Some(claim) => self.report_size(claim, &grown).await,
                    None => Ok(()),
                }
            }
            Care::LetGo => self.forget(volume).await,
            Care::Remove => {
                let path = self.directory.join(&name);
                match std::fs::remove_dir_all(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(format!("the directory {} cannot be deleted: {error}", path.display()));
                    }
                    _ => tracing::info!(volume = name, "the claim is gone, and its volume is deleted"),
                }
                self.forget(volume).await
            }
        }
    }

    /// Deletes the object of a volume.
    async fn forget(&self, volume: &PersistentVolume) -> Result<(), String> {
        let (api, name) = (self.volumes(), volume.name_any());
        let only = Preconditions { uid: volume.metadata.uid.clone(), resource_version: None };
        let how = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        settled(api.delete(&name, &how), 404).await?;
        let change = json!({"metadata": {"uid": volume.metadata.uid, "finalizers": Value::Null}});
        settled(api.patch(&name, &PatchParams::default(), &Patch::Merge(&change)), 404).await
    }

    /// Lets claims go that are deleted and in use by no pod: those with a volume here, and those without any. Whether none waits.
    async fn let_claims_go(
        &self,
        volumes: &[PersistentVolume],
        claims: &[PersistentVolumeClaim],
    ) -> Result<bool, String> {
        let here: BTreeSet<String> = volumes
            .iter()
            .filter(|one| object::path(one, &self.node).is_ok())
            .map(|one| one.name_any())
            .collect();
        let is_ours = |claim: &PersistentVolumeClaim| {
            let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
            volume.is_empty() || here.contains(&volume)
        };
        let mut none_waits = true;
        let going = claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_some());
        for claim in going.filter(|claim| is_ours(claim)) {
            let all = claim.metadata.finalizers.iter().flatten();
            let others: Vec<&String> = all.clone().filter(|name| *name != CLAIM_IN_USE).collect();
            if others.len() == all.count() {
                continue;
            }
            let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
            if self.is_in_use(&namespace, &name).await? {
                none_waits = false;
                continue;
            }
            let change = json!({"metadata": {"uid": claim.metadata.uid,
                "resourceVersion": claim.metadata.resource_version, "finalizers": others}});
            let write =
                self.claims(&namespace).patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await;
            // Another node may have been first.
            none_waits &= write.is_ok();
        }
        Ok(none_waits)
    }

    async fn is_in_use(&self, namespace: &str, claim: &str) -> Result<bool, String> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pods = within(api.list(&ListParams::default())).await?.items;
        let names = |pod: &Pod| {
            let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
            let sources = volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
            sources.into_iter().any(|source| source.claim_name == claim)
        };
        Ok(pods.iter().any(|pod| names(pod) && !has_ended(pod)))
    }
}
