//! What the pods of a node share.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::cgroup::Hierarchy;
use crate::events::Events;
use crate::images::Images;
use crate::network::NodeNetwork;
use crate::objects::Objects;
use crate::pod::Handle;
use crate::rooms::Rooms;
use crate::storage::Storage;
use crate::sys::ProcessPlacement;
use crate::volumes::VolumeSources;
use crate::{Config, naming};
use neonvm_core_kubelet::status::Surroundings;

/// What the pods of a node share.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) client: Client,
    pub(crate) objects: Arc<Objects>,
    pub(crate) images: Arc<Images>,
    pub(crate) events: Events,
    pub(crate) network: NodeNetwork,
    /// None: no cgroups.
    pub(crate) hierarchy: Option<Hierarchy>,
    pub(crate) executable: PathBuf,
    pub(crate) address: String,
    /// Thousandths of a CPU and bytes of memory for pods.
    pub(crate) allocatable: (u64, u64),
    /// Certificate of the cluster's authority, PEM.
    pub(crate) authority: String,
    /// What its pods have of what it offers.
    pub(crate) rooms: Rooms,
    pub(crate) storage: Storage,
    /// By UID.
    pub(crate) pods: Mutex<BTreeMap<String, Arc<Handle>>>,
    /// Tasks of the pods; ended with the node.
    pub(crate) workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Node {
    /// The parts of a pod's status beside its VM's state.
    pub(crate) fn surroundings(&self, uid: &str, ip: &str) -> Surroundings {
        Surroundings { host_ip: self.address.clone(), pod_ip: ip.to_owned(), uid: uid.to_owned() }
    }

    /// By what name a pod uses images.
    pub(crate) fn user(&self, uid: &str) -> String {
        format!("{}.{uid}", self.config.name)
    }

    pub(crate) fn volumes(&self, handle: &Handle, pod: &Pod, owner: Option<u32>) -> VolumeSources {
        VolumeSources {
            client: self.client.clone(),
            objects: Arc::clone(&self.objects),
            images: Arc::clone(&self.images),
            storage: self.storage.clone(),
            namespace: pod.metadata.namespace.clone().unwrap_or_else(|| "default".into()),
            authority: self.authority.clone(),
            allocatable: self.allocatable,
            directory: handle.directory.path().to_path_buf(),
            user: self.user(&handle.uid),
            owner,
        }
    }

    /// The services that a pod gets as variables.
    pub(crate) async fn services(&self, pod: &Pod) -> Vec<Service> {
        if pod.spec.as_ref().and_then(|spec| spec.enable_service_links) == Some(false) {
            return Vec::new();
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let api: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        let parameters = ListParams::default();
        match tokio::time::timeout(Duration::from_secs(5), api.list(&parameters)).await {
            Ok(Ok(list)) => list.items,
            Ok(Err(error)) => {
                tracing::warn!(%error, namespace, "a pod gets no variables of services");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    /// Where a process of a pod starts in a root of the pod's own.
    pub(crate) fn place(&self, handle: &Handle) -> io::Result<ProcessPlacement> {
        let mut place = ProcessPlacement {
            network: self.network.enter(&handle.uid)?,
            directory: c"/".to_owned(),
            ..ProcessPlacement::default()
        };
        if let Some(hierarchy) = &self.hierarchy {
            let group = naming::pod_cgroup(&self.config.cluster, &self.config.name, &handle.uid);
            place.cgroups.extend(hierarchy.entrances(&group)?);
        }
        Ok(place)
    }

    /// The same without such a root, as the user of the node.
    pub(crate) fn place_on_host(&self, handle: &Handle) -> io::Result<ProcessPlacement> {
        let directory = path(&handle.directory.root())?;
        // Of root everything but its files is taken.
        let without_rights = rustix::process::geteuid().is_root();
        Ok(ProcessPlacement { directory, without_rights, ..self.place(handle)? })
    }
}

fn path(path: &std::path::Path) -> io::Result<std::ffi::CString> {
    use std::os::unix::ffi::OsStrExt as _;
    std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// The hierarchy for the cgroups of pods, if they can be made.
pub(crate) fn hierarchy(config: &Config) -> Option<Hierarchy> {
    let hierarchy = Hierarchy::find();
    let path = format!("{}/{}", naming::cluster_cgroup(&config.cluster), config.name);
    let why = match &hierarchy {
        None => "this machine has no cgroups with a CPU controller".to_owned(),
        Some(hierarchy) => match hierarchy.create(&path) {
            Ok(()) => return Some(hierarchy.clone()),
            Err(error) => format!("cgroups cannot be made: {error}"),
        },
    };
    tracing::warn!(why, "machines are not held to fractions of a CPU");
    None
}
