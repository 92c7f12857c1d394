//! The data of a VM that the agent and the scheduler use, from its object or from its pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use neonvm_types::{
    Bytes, MilliCpu, NamespacedName, Quantity, QuantityError, Resources, RevisionWithTime, objects,
};
use serde::{Deserialize, Serialize};

use crate::{
    FieldError, Hold, ScalingBounds, ScalingConfig, UserMetric, VirtualMachine,
    names::{TRUE, annotation, label},
    pod_annotation::PodResources,
};

/// A VM's size, bounds and scaling configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmInfo {
    /// The VM's name.
    pub name: String,
    /// The VM's namespace.
    pub namespace: String,
    /// CPU.
    pub cpu: VmCpuInfo,
    /// Memory.
    pub mem: VmMemInfo,
    /// Scaling configuration from labels and annotations.
    pub config: VmConfig,
    /// The last revision that the VM has reached; unset if read from a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<RevisionWithTime>,
}

/// CPU of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmCpuInfo {
    /// The least it shrinks to.
    pub min: MilliCpu,
    /// The most it grows to.
    pub max: MilliCpu,
    /// What it has now.
    pub r#use: MilliCpu,
}

/// Memory of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmMemInfo {
    /// The least it shrinks to, in slots.
    pub min: u16,
    /// The most it grows to, in slots.
    pub max: u16,
    /// What it has now, in slots.
    pub r#use: u16,
    /// Memory of one slot.
    pub slot_size: Bytes,
}

/// The scaling configuration in a VM's labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmConfig {
    /// The scheduler may start migrations.
    pub auto_migration_enabled: bool,
    /// Migrate without end, for tests.
    pub always_migrate: bool,
    /// The size is scaled automatically.
    pub scaling_enabled: bool,
    /// Overrides of the scaling configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling_config: Option<ScalingConfig>,
    /// A size fixed by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// A metric of the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<UserMetric>,
}

/// Why a VM's information cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum VmInfoError {
    /// The object or pod has no name or namespace.
    #[error("metadata.{0} is missing")]
    MissingMetadata(&'static str),
    /// The pod lacks a label or annotation that the controller writes.
    #[error("pod has no {0}; it is not a VM's, or the controller has not written it yet")]
    MissingKey(&'static str),
    /// The slot size does not fit.
    #[error("memorySlotSize: {0}")]
    SlotSize(QuantityError),
    /// The slot size is zero.
    #[error("memorySlotSize must not be 0")]
    ZeroSlotSize,
    /// An annotation is not the JSON it should be.
    #[error("annotation {key}: {reason}")]
    Annotation {
        /// Key of the annotation.
        key: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A bound is above the other.
    #[error("{field}: min {min} is above max {max}")]
    Crossed {
        /// `cpu` or `mem`.
        field: &'static str,
        /// The lower bound.
        min: String,
        /// The upper bound.
        max: String,
    },
}

type Map = BTreeMap<String, String>;

fn from_annotation<T: for<'de> Deserialize<'de>>(
    annotations: Option<&Map>,
    key: &'static str,
) -> Result<Option<T>, VmInfoError> {
    let Some(text) = annotations.and_then(|map| map.get(key)) else { return Ok(None) };
    objects::from_str(text)
        .map(Some)
        .map_err(|error| VmInfoError::Annotation { key, reason: error.to_string() })
}

fn refuse(key: &'static str, errors: &[FieldError]) -> Result<(), VmInfoError> {
    if errors.is_empty() {
        return Ok(());
    }
    let reasons: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Err(VmInfoError::Annotation { key, reason: reasons.join("; ") })
}

fn name(part: Option<&String>, which: &'static str) -> Result<String, VmInfoError> {
    part.cloned().ok_or(VmInfoError::MissingMetadata(which))
}

impl VmInfo {
    /// From a VM's object.
    ///
    /// # Errors
    /// When an annotation is wrong, or the bounds are.
    pub fn from_vm(vm: &VirtualMachine) -> Result<Self, VmInfoError> {
        let meta = &vm.metadata;
        let id = NamespacedName::new(
            name(meta.namespace.as_ref(), "namespace")?,
            name(meta.name.as_ref(), "name")?,
        );
        let resources = PodResources::from_spec(&vm.spec);
        let mut info = Self::build(id, resources, meta.labels.as_ref(), meta.annotations.as_ref())?;
        info.current_revision = vm.status.as_ref().and_then(|status| status.current_revision);
        Ok(info)
    }

    /// From a runner pod, whose labels and annotations mirror the VM's.
    ///
    /// # Errors
    /// As [`VmInfo::from_vm`], and when the pod lacks what the controller writes.
    pub fn from_pod(pod: &Pod) -> Result<Self, VmInfoError> {
        let meta = &pod.metadata;
        let labels = meta.labels.as_ref();
        let vm_name = labels.and_then(|labels| labels.get(label::VM_NAME));
        let id = NamespacedName::new(
            name(meta.namespace.as_ref(), "namespace")?,
            vm_name.cloned().ok_or(VmInfoError::MissingKey(label::VM_NAME))?,
        );
        let annotations = meta.annotations.as_ref();
        let resources = from_annotation(annotations, annotation::RESOURCES)?
            .ok_or(VmInfoError::MissingKey(annotation::RESOURCES))?;
        Self::build(id, resources, labels, annotations)
    }

    fn build(
        id: NamespacedName,
        resources: PodResources,
        labels: Option<&Map>,
        annotations: Option<&Map>,
    ) -> Result<Self, VmInfoError> {
        let PodResources { cpus, memory_slots: slots, memory_slot_size } = resources;
        let slot_size = Bytes::try_from(memory_slot_size).map_err(VmInfoError::SlotSize)?;
        if slot_size == Bytes::ZERO {
            return Err(VmInfoError::ZeroSlotSize);
        }
        let on = |key: &str| labels.and_then(|map| map.get(key)).is_some_and(|value| value == TRUE);
        let mut info = Self {
            name: id.name,
            namespace: id.namespace,
            cpu: VmCpuInfo { min: cpus.min, max: cpus.max, r#use: cpus.r#use },
            mem: VmMemInfo { min: slots.min, max: slots.max, r#use: slots.r#use, slot_size },
            config: VmConfig {
                auto_migration_enabled: on(label::AUTO_MIGRATION_ENABLED),
                always_migrate: on(label::ALWAYS_MIGRATE),
                scaling_enabled: on(label::SCALING_ENABLED),
                scaling_config: from_annotation(annotations, annotation::CONFIG)?,
                hold: from_annotation(annotations, annotation::HOLD)?,
                metric: from_annotation(annotations, annotation::METRIC)?,
            },
            current_revision: None,
        };
        if let Some(config) = info.config.scaling_config {
            refuse(annotation::CONFIG, &config.validate())?;
        }
        if let Some(metric) = &info.config.metric {
            refuse(annotation::METRIC, &metric.validate())?;
        }
        if let Some(bounds) = from_annotation::<ScalingBounds>(annotations, annotation::BOUNDS)? {
            refuse(annotation::BOUNDS, &bounds.validate(slot_size))?;
            info.apply_bounds(&bounds)?;
        }
        info.check()?;
        Ok(info)
    }

    /// The bounds must have been validated; what does not fit is an error all the same.
    fn apply_bounds(&mut self, bounds: &ScalingBounds) -> Result<(), VmInfoError> {
        let wrong = |reason: String| VmInfoError::Annotation { key: annotation::BOUNDS, reason };
        let cpu = |quantity: Quantity| MilliCpu::try_from(quantity).map_err(|error| wrong(error.to_string()));
        let slot_size = self.mem.slot_size;
        let slots = |quantity: Quantity| {
            let mem = Bytes::try_from(quantity).map_err(|error| wrong(error.to_string()))?;
            let count = mem.slots(slot_size).and_then(|count| u16::try_from(count).ok());
            count.ok_or_else(|| wrong(format!("{mem} needs too many slots")))
        };
        (self.cpu.min, self.cpu.max) = (cpu(bounds.min.cpu)?, cpu(bounds.max.cpu)?);
        (self.mem.min, self.mem.max) = (slots(bounds.min.mem)?, slots(bounds.max.mem)?);
        Ok(())
    }

    fn check(&self) -> Result<(), VmInfoError> {
        let crossed = |field, min: String, max: String| VmInfoError::Crossed { field, min, max };
        if self.cpu.min > self.cpu.max {
            return Err(crossed("cpu", self.cpu.min.to_string(), self.cpu.max.to_string()));
        }
        if self.mem.min > self.mem.max {
            return Err(crossed("mem", self.min().mem.to_string(), self.max().mem.to_string()));
        }
        Ok(())
    }

    fn resources(&self, cpu: MilliCpu, slots: u16) -> Resources {
        Resources::new(cpu, self.mem.slot_size.saturating_mul(u32::from(slots)))
    }

    /// Namespace and name.
    #[must_use]
    pub fn id(&self) -> NamespacedName {
        NamespacedName::new(self.namespace.clone(), self.name.clone())
    }

    /// The lower bound.
    #[must_use]
    pub fn min(&self) -> Resources {
        self.resources(self.cpu.min, self.mem.min)
    }

    /// The upper bound.
    #[must_use]
    pub fn max(&self) -> Resources {
        self.resources(self.cpu.max, self.mem.max)
    }

    /// What the VM has now.
    #[must_use]
    pub fn using(&self) -> Resources {
        self.resources(self.cpu.r#use, self.mem.r#use)
    }

    /// Sets what the VM has now; memory is rounded down to whole slots. `None`, and no change, if there are too many.
    #[must_use = "a size that needs too many slots is not set"]
    pub fn set_using(&mut self, resources: Resources) -> Option<()> {
        let slots = resources.mem.slots(self.mem.slot_size)?;
        self.mem.r#use = u16::try_from(slots).ok()?;
        self.cpu.r#use = resources.vcpus;
        Some(())
    }

    /// Whether what the VM has now lies outside its bounds; worth a warning, not an error.
    #[must_use]
    pub fn is_out_of_bounds(&self) -> bool {
        self.using().any_less(self.min()) || self.using().any_greater(self.max())
    }
}

#[cfg(test)]
mod tests;
