//! Messages of the kubelet's device plugin interface, `v1beta1`: `pkg/apis/deviceplugin/v1beta1/api.proto` of the repository
//! `kubernetes/kubelet`. Fields that this plugin neither reads nor sets are left out; protocol buffers skip them.
//!
//! Written by hand: a generator would bring a compiler of protocol buffers into the build for a frozen interface.

pub(crate) const VERSION: &str = "v1beta1";
pub(crate) const REGISTER: &str = "/v1beta1.Registration/Register";
pub(crate) const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
pub(crate) const LIST_AND_WATCH: &str = "/v1beta1.DevicePlugin/ListAndWatch";
pub(crate) const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Empty {}

/// What the kubelet may call besides listing and allocating: nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DevicePluginOptions {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RegisterRequest {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    /// Name of the plugin's socket in the kubelet's directory.
    #[prost(string, tag = "2")]
    pub(crate) endpoint: String,
    #[prost(string, tag = "3")]
    pub(crate) resource_name: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) options: Option<DevicePluginOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListAndWatchResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) devices: Vec<Unit>,
}

/// The interface's `Device`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Unit {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    /// `Healthy` or `Unhealthy`.
    #[prost(string, tag = "2")]
    pub(crate) health: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AllocateRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_requests: Vec<ContainerAllocateRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerAllocateRequest {
    #[prost(string, repeated, tag = "1")]
    pub(crate) devices_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AllocateResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_responses: Vec<ContainerAllocateResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerAllocateResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) mounts: Vec<Mount>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) devices: Vec<DeviceSpec>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeviceSpec {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    /// Of the device's cgroup: `r`, `w`, `m`.
    #[prost(string, tag = "3")]
    pub(crate) permissions: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Mount {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    #[prost(bool, tag = "3")]
    pub(crate) read_only: bool,
}
