//! Which objects there are, and their paths.

use serde_json::Value;

use super::Error;

/// A kind of object, as it is named in paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Group and version, such as `apps/v1`; of the core group only the version.
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
}

const fn namespaced(version: &'static str, kind: &'static str, plural: &'static str) -> Resource {
    Resource { version, kind, plural, namespaced: true }
}

const fn global(version: &'static str, kind: &'static str, plural: &'static str) -> Resource {
    Resource { version, kind, plural, namespaced: false }
}

impl Resource {
    /// `VirtualMachine`.
    pub const VM: Self = namespaced("vm.neon.tech/v1", "VirtualMachine", "virtualmachines");
    /// `VirtualMachineMigration`.
    pub const MIGRATION: Self =
        namespaced("vm.neon.tech/v1", "VirtualMachineMigration", "virtualmachinemigrations");
    /// `MigrationPolicy`.
    pub const MIGRATION_POLICY: Self = global("vm.neon.tech/v1", "MigrationPolicy", "migrationpolicies");
    /// `PodAutoscaler`.
    pub const POD_AUTOSCALER: Self =
        namespaced("autoscaling.aibrix.ai/v1alpha1", "PodAutoscaler", "podautoscalers");
    /// `HorizontalPodAutoscaler`.
    pub const HORIZONTAL_POD_AUTOSCALER: Self =
        namespaced("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
    /// `Deployment`.
    pub const DEPLOYMENT: Self = namespaced("apps/v1", "Deployment", "deployments");
    /// `Pod`.
    pub const POD: Self = namespaced("v1", "Pod", "pods");
    /// `Secret`.
    pub const SECRET: Self = namespaced("v1", "Secret", "secrets");
    /// `Event`.
    pub const EVENT: Self = namespaced("v1", "Event", "events");
    /// `ConfigMap`.
    pub const CONFIG_MAP: Self = namespaced("v1", "ConfigMap", "configmaps");
    /// `PersistentVolumeClaim`.
    pub const CLAIM: Self = namespaced("v1", "PersistentVolumeClaim", "persistentvolumeclaims");
    /// `PersistentVolume`.
    pub const VOLUME: Self = global("v1", "PersistentVolume", "persistentvolumes");
    /// `CustomResourceDefinition`.
    pub const DEFINITION: Self =
        global("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
    /// `VolumeSnapshot`.
    pub const VOLUME_SNAPSHOT: Self =
        namespaced("snapshot.storage.k8s.io/v1", "VolumeSnapshot", "volumesnapshots");
    /// `VolumeSnapshotClass`.
    pub const VOLUME_SNAPSHOT_CLASS: Self =
        global("snapshot.storage.k8s.io/v1", "VolumeSnapshotClass", "volumesnapshotclasses");
    /// `Node`.
    pub const NODE: Self = global("v1", "Node", "nodes");

    /// `Namespace`.
    pub const NAMESPACE: Self = global("v1", "Namespace", "namespaces");

    const ALL: [Self; 16] = [
        Self::VM,
        Self::MIGRATION,
        Self::MIGRATION_POLICY,
        Self::POD_AUTOSCALER,
        Self::HORIZONTAL_POD_AUTOSCALER,
        Self::DEPLOYMENT,
        Self::POD,
        Self::SECRET,
        Self::CONFIG_MAP,
        Self::CLAIM,
        Self::VOLUME,
        Self::DEFINITION,
        Self::VOLUME_SNAPSHOT,
        Self::VOLUME_SNAPSHOT_CLASS,
        Self::NODE,
        Self::NAMESPACE,
    ];

    /// The resource of an object, and the object's name.
    ///
    /// # Errors
    /// If the kind is unknown here.
    pub fn from_object(object: &Value) -> Result<(Self, &str), Error> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("/apiVersion"), text("/kind"));
        let found = Self::ALL.into_iter().find(|one| one.version == version && one.kind == kind);
        let resource = found.ok_or_else(|| Error::Document(format!("unknown kind {kind} of {version}")))?;
        Ok((resource, text("/metadata/name")))
    }

    /// Path of all objects, in a namespace if they have one.
    pub(super) fn collection(self, namespace: &str) -> String {
        let root = if self.version.contains('/') { "/apis" } else { "/api" };
        let Self { version, plural, .. } = self;
        match self.namespaced {
            true => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
            false => format!("{root}/{version}/{plural}"),
        }
    }

    /// Path of an object.
    pub(super) fn path(self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(namespace))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(Resource::POD.path("default", "a"), "/api/v1/namespaces/default/pods/a");
        assert_eq!(Resource::NODE.path("default", "n1"), "/api/v1/nodes/n1");
        assert_eq!(
            Resource::VM.collection("default"),
            "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines"
        );
        let object =
            serde_json::json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a" } });
        assert_eq!(Resource::from_object(&object).unwrap(), (Resource::DEPLOYMENT, "a"));
    }
}
