//! Init containers that copy root disk and kernel out of their images, where nodes have no image volumes. The first brings our
//! program from the runner's image; the others run it in the images themselves. So nothing that is in the image of a VM's author is
//! executed outside of the guest, and an image needs no shell.

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements, SecurityContext, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use neonvm_api::VirtualMachine;
use neonvm_api::runner_pod as place;

use super::{restricted, volume};
use crate::settings::RootDiskFrom;

/// What a copy requests and may use; quotas demand both. Of memory it uses little: the kernel takes pages of files back.
const REQUESTS: [(&str, &str); 2] = [("cpu", "100m"), ("memory", "64Mi")];
const LIMITS: [(&str, &str); 2] = [("cpu", "1"), ("memory", "64Mi")];

/// The init containers; none where images are volumes.
pub(super) fn containers(vm: &VirtualMachine, runner: &str, from: RootDiskFrom) -> Vec<Container> {
    if from == RootDiskFrom::ImageVolume {
        return Vec::new();
    }
    let guest = &vm.spec.guest;
    let pull = volume::pull_policy(&vm.spec);
    let program = format!("{}/neond", place::COPY_DIRECTORY);
    let written = mount(place::COPY_VOLUME, place::COPY_DIRECTORY, false);
    let [neond, runner_command] = place::COMMAND;
    let mut all = vec![container(
        place::COPY_VOLUME,
        (runner, "IfNotPresent"),
        &[neond, runner_command, "copy", "/proc/self/exe", &program],
        vec![written],
    )];
    let mut copy = |volume: &str, image: &str, directory: &str, file: &str| {
        let (source, target) = (format!("/{file}"), format!("{directory}/{file}"));
        all.push(container(
            &name(volume),
            (image, pull),
            &[&program, runner_command, "copy", &source, &target],
            vec![mount(place::COPY_VOLUME, place::COPY_DIRECTORY, true), mount(volume, directory, false)],
        ));
    };
    copy(place::ROOT_DISK_VOLUME, &guest.root_disk.image, place::ROOT_DISK_DIRECTORY, place::ROOT_DISK_FILE);
    if let Some(kernel) = &guest.kernel_image {
        copy(place::KERNEL_VOLUME, kernel, place::KERNEL_DIRECTORY, place::KERNEL_FILE);
    }
    all
}

/// Whether the root disk has been copied; `None` for a pod that has it from an image volume.
pub(crate) fn is_done(pod: &Pod) -> Option<bool> {
    let name = name(place::ROOT_DISK_VOLUME);
    let spec = pod.spec.as_ref()?;
    spec.init_containers.iter().flatten().find(|container| container.name == name)?;
    let statuses = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_deref());
    let own = statuses.unwrap_or_default().iter().find(|status| status.name == name);
    let end = own.and_then(|status| status.state.as_ref()?.terminated.as_ref());
    Some(end.is_some_and(|end| end.exit_code == 0))
}

/// Name of the init container that fills a volume.
fn name(volume: &str) -> String {
    format!("copy-{volume}")
}

fn container(
    name: &str,
    (image, pull): (&str, &str),
    command: &[&str],
    mounts: Vec<VolumeMount>,
) -> Container {
    let amounts = |which: &[(&str, &str)]| {
        let amounts = which.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())));
        Some(amounts.collect())
    };
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some(pull.to_owned()),
        command: Some(command.iter().map(|word| (*word).to_owned()).collect()),
        resources: Some(ResourceRequirements {
            requests: amounts(&REQUESTS),
            limits: amounts(&LIMITS),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext { read_only_root_filesystem: Some(true), ..restricted() }),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

fn mount(volume: &str, path: &str, is_read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: is_read_only.then_some(true),
        ..VolumeMount::default()
    }
}
