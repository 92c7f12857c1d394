//! Requests about the objects that the controller writes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::api::Api;
use kube::{Client, Error};
use neonvm_api::{VirtualMachine, VirtualMachineMigration};

use crate::metrics::Metrics;
use crate::request::within;

/// The API of the objects that the controller writes. Writes are counted.
#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) client: Client,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl Requests {
    pub(crate) fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Self { client, metrics }
    }

    /// Counts a write and sends it.
    pub(crate) async fn write<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.metrics.writes.inc();
        within(request).await
    }

    pub(crate) fn vms(&self, namespace: &str) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn migrations(&self, namespace: &str) -> Api<VirtualMachineMigration> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn claims(&self, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }
}
