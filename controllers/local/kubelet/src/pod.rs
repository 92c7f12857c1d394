//! Pods of the node: one task for each, which carries out what the core decides.

mod adopt;
mod clean;
pub(crate) mod container;
pub(crate) mod directory;
pub(crate) mod own_root;
mod prepare;
mod report;
mod resize;
mod state;
pub(crate) mod state_file;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

pub(crate) use directory::PodDirectory;
pub(crate) use worker::{spawn_known, spawn_new};

use crate::process::{Identity, Process};

/// The object of a pod, as last seen.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    Present(Arc<Pod>),
    Gone,
}

/// State of a container, for other parts of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ContainerView {
    pub(crate) restarts: u32,
    /// Its process, if it runs.
    pub(crate) process: Option<Identity>,
    /// It will not run again.
    pub(crate) is_over: bool,
}

/// State of a pod, for other parts of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    pub(crate) ip: String,
    pub(crate) containers: BTreeMap<String, ContainerView>,
}

#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) uid: String,
    pub(crate) directory: PodDirectory,
    pub(crate) object: watch::Sender<Object>,
    /// The object, as long as it was there.
    pub(crate) pod: watch::Sender<Arc<Pod>>,
    pub(crate) view: watch::Sender<View>,
    /// Processes of the containers, by name.
    pub(crate) started: parking_lot::Mutex<BTreeMap<String, Arc<Process>>>,
}

impl Handle {
    /// The object is new or changed.
    pub(crate) fn see(&self, pod: Arc<Pod>) {
        self.pod.send_replace(Arc::clone(&pod));
        self.object.send_replace(Object::Present(pod));
    }

    pub(crate) fn see_gone(&self) {
        self.object.send_if_modified(|object| {
            let was_there = matches!(object, Object::Present(_));
            *object = Object::Gone;
            was_there
        });
    }
}
