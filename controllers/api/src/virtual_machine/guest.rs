//! The VM inside: CPUs, memory, root disk, command, ports.

use neonvm_types::{Bytes, MilliCpu, Quantity, QuantityError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, schema::rules};

/// The VM inside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::guest()))]
pub struct Guest {
    /// OCI image that holds the kernel, if not the runner's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_image: Option<String>,
    /// Ratio of movable to kernel memory when memory is plugged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memhp_auto_movable_ratio: Option<String>,
    /// Appended to the kernel command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_kernel_cmdline: Option<String>,
    /// CPU.
    pub cpus: CpuBounds,
    /// Memory of one slot; a multiple of 8 MiB; may change only while the VM has no pod.
    #[serde(default = "default_slot_size")]
    #[schemars(schema_with = "schema::memory_slot_size", extend("default" = "1Gi"))]
    pub memory_slot_size: Quantity,
    /// Memory, in slots.
    pub memory_slots: MemorySlots,
    /// The disk the guest starts from.
    pub root_disk: RootDisk,
    /// Replaces the image's entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub command: Vec<String>,
    /// Replaces the image's arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub args: Vec<String>,
    /// Environment of the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<EnvVar>,
    /// Streams of the workload's first start that a client has, as `neonctl vm run` sets it: its output waits for that client, at most
    /// a minute. Without it standard input is `/dev/null`, and the output goes to the log only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<Attach>,
    /// Ports reachable from outside. A port may be there twice, under two names, as in a container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub ports: Vec<Port>,
    /// Kernel settings and swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<GuestSettings>,
}

fn default_slot_size() -> Quantity {
    Bytes::gib(1).to_quantity()
}

impl Guest {
    /// A guest with every default.
    #[must_use]
    pub fn new(cpus: CpuBounds, memory_slots: MemorySlots, image: impl Into<String>) -> Self {
        Self {
            kernel_image: None,
            memhp_auto_movable_ratio: None,
            append_kernel_cmdline: None,
            cpus,
            memory_slot_size: default_slot_size(),
            memory_slots,
            root_disk: RootDisk::new(image),
            command: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            attach: None,
            ports: Vec::new(),
            settings: None,
        }
    }

    /// Memory of one slot.
    ///
    /// # Errors
    /// When the quantity is negative or needs more than 64 bits; validation refuses such an object.
    pub fn slot_size(&self) -> Result<Bytes, QuantityError> {
        self.memory_slot_size.try_into()
    }

    /// Memory in use: slots times slot size, at most [`Bytes::MAX`].
    ///
    /// # Errors
    /// As [`Guest::slot_size`].
    pub fn memory_use(&self) -> Result<Bytes, QuantityError> {
        Ok(self.slot_size()?.saturating_mul(u32::from(self.memory_slots.r#use)))
    }
}

/// CPU: `min` ≤ `use` ≤ `max`; `max` may change only while the VM has no pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cpus()))]
pub struct CpuBounds {
    /// The least it shrinks to.
    #[schemars(schema_with = "schema::milli_cpu")]
    pub min: MilliCpu,
    /// The most it grows to.
    #[schemars(schema_with = "schema::milli_cpu")]
    pub max: MilliCpu,
    /// What it has now.
    #[schemars(schema_with = "schema::milli_cpu")]
    pub r#use: MilliCpu,
}

/// Memory in slots, 1 to 512: `min` ≤ `use` ≤ `max`; while the VM has a pod, only `use` may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::memory_slots()))]
pub struct MemorySlots {
    /// The least it shrinks to.
    #[schemars(range(min = 1, max = 512))]
    pub min: u16,
    /// The most it grows to.
    #[schemars(range(min = 1, max = 512))]
    pub max: u16,
    /// What it has now.
    #[schemars(range(min = 1, max = 512))]
    pub r#use: u16,
}

impl MemorySlots {
    /// The same amount for all three.
    #[must_use]
    pub const fn fixed(slots: u16) -> Self {
        Self { min: slots, max: slots, r#use: slots }
    }
}

/// The disk the guest starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RootDisk {
    /// OCI image that holds the disk.
    #[schemars(length(min = 1))]
    pub image: String,
    /// Size to grow to; 0 leaves the image's.
    #[serde(default)]
    #[schemars(schema_with = "schema::quantity", extend("default" = "0"))]
    pub size: Quantity,
    /// When the image is pulled.
    #[serde(default)]
    pub image_pull_policy: ImagePullPolicy,
    /// Has no effect; kept so that existing manifests are read. Use `command`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub execute: Vec<String>,
}

impl RootDisk {
    /// A root disk of an image, with every default.
    #[must_use]
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            size: Quantity::default(),
            image_pull_policy: ImagePullPolicy::default(),
            execute: Vec::new(),
        }
    }
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// Each time.
    Always,
    /// Not at all.
    Never,
    /// When the node does not have it.
    #[default]
    IfNotPresent,
}

/// Which of its streams a workload has from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Attach {
    /// Standard output and standard error.
    Output,
    /// Standard input as well.
    InputAndOutput,
}

/// A variable of the command's environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvVar {
    /// Its name, once in the list.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Value of the variable.
    #[serde(default)]
    pub value: String,
}

/// A port reachable from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Port {
    /// Its name, once in the list; not `qmp`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63), extend("x-kubernetes-validations" = rules::port_name()))]
    pub name: String,
    /// Port number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// TCP or UDP.
    #[serde(default)]
    pub protocol: PortProtocol,
}

/// Protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum PortProtocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

/// Kernel settings and swap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestSettings {
    /// Lines for sysctl, `key=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub sysctl: Vec<String>,
    /// Size of the swap disk, which the guest uses from its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub swap: Option<Quantity>,
    /// A swap disk with settings; cannot be combined with swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_info: Option<SwapInfo>,
}

/// A swap disk with settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SwapInfo {
    /// Size of the swap disk.
    #[schemars(schema_with = "schema::quantity")]
    pub size: Quantity,
    /// Do not use the disk from the start; /neonvm/bin/resize-swap BYTES in the guest does. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_swapon: Option<bool>,
}

impl GuestSettings {
    /// The swap disk, in whichever form it is given; none if its size is 0.
    #[must_use]
    pub fn swap_disk(&self) -> Option<SwapInfo> {
        let plain = self.swap.map(|size| SwapInfo { size, skip_swapon: None });
        plain.or(self.swap_info).filter(|swap| swap.size > Quantity::default())
    }
}
