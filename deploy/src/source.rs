//! The manifests, read.

use serde_json::Value;

use crate::{Component, Error};

/// Name of a file without its ending, and its text; in the order of names.
const MANIFESTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/manifests.rs"));
/// Network attachments, for clusters with Multus.
const MULTUS: (&str, &str) = ("multus", include_str!("../multus/overlay.yaml"));
/// The file of the overlay's controller, and how the names of others that are of use with it alone begin.
const OVERLAY: (&str, &str) = ("vxlan-controller", "overlay-");

/// The file of the node service, without which there are no VMs.
const NODE: &str = "node";
/// The file of what upstream's agents find.
const UPSTREAM_AGENTS: &str = "upstream-agents";
/// The file with the PriorityClass of VMs.
const PRIORITY_OF_VMS: &str = "priority-vms";

/// What has to be chosen for a file to be part of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Component(Component),
    Overlay,
    /// Agents of upstream's are to find the scheduler.
    UpstreamAgents,
    /// VMs have a PriorityClass that the installation makes.
    PriorityOfVms,
}

#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) name: &'static str,
    pub(crate) when: When,
    pub(crate) objects: Vec<Value>,
}

/// Every file. One that bears the name of a component belongs to that, the node service to the vm-controller, one of the overlay to that;
/// the others belong to every installation.
pub(crate) fn files() -> Result<Vec<File>, Error> {
    MANIFESTS.iter().chain([&MULTUS]).map(|&(name, text)| file(name, text)).collect()
}

fn file(name: &'static str, text: &str) -> Result<File, Error> {
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| Error::Manifest(name, error.to_string()))?;
    let when = match Component::ALL.into_iter().find(|component| component.name() == name) {
        Some(component) => When::Component(component),
        None if name == OVERLAY.0 || name.starts_with(OVERLAY.1) || name == MULTUS.0 => When::Overlay,
        None if name == NODE => When::Component(Component::VmController),
        None if name == UPSTREAM_AGENTS => When::UpstreamAgents,
        None if name == PRIORITY_OF_VMS => When::PriorityOfVms,
        None => When::Always,
    };
    Ok(File { name, when, objects })
}

/// Every object of every component as it is written down, definitions included: what an installation may have made.
///
/// # Errors
/// If a manifest cannot be read, which a test excludes.
pub fn everything() -> Result<Vec<Value>, Error> {
    let mut all = neonvm_api::crds();
    all.extend(files()?.into_iter().flat_map(|file| file.objects));
    Ok(all)
}
