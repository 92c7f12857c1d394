//! What the guest gets at boot: the files of the runtime volume. Pure.

mod shell;

use std::net::IpAddr;

use neonvm_api::runner_pod::RunnerConfig;
use neonvm_api::virtual_machine::{Attach, Disk, GuestSettings, PortProtocol, RestartPolicy};
use neonvm_hypervisor::disks::VolumeFile;
use neonvm_types::Bytes;
use neonvm_types::guest::{
    Attach as GuestAttach, GUEST_PROGRAM_FILE, Mount, MountKind, Network, RUNTIME_CONFIG_FILE,
    RestartPolicy as GuestRestartPolicy, RuntimeConfig, Swap,
};
use neonvm_types::monitor_protocol::MONITOR_PORT;

pub(crate) const RUNTIME_LABEL: &str = "vmruntime";
/// Label of the volume with the keys that may log in.
pub(crate) const SSH_LABEL: &str = "ssh-authorized-keys";
pub(crate) const SWAP_LABEL: &str = "swapdisk";
/// Kernel settings that every guest gets, as ever.
const SYSCTL: [&str; 2] = ["kernel.core_pattern=core", "kernel.core_uses_pid=1"];

/// The settings for the guest program. `own`: the address from which the runner calls it; `network`: of the guest's first
/// interface.
pub(crate) fn config(
    runner: &RunnerConfig,
    authorized_keys: &str,
    own: IpAddr,
    network: Network,
) -> RuntimeConfig {
    let guest = &runner.spec.guest;
    let settings = guest.settings.as_ref();
    let mut sysctl: Vec<String> = SYSCTL.iter().map(|&line| line.to_owned()).collect();
    sysctl.extend(settings.into_iter().flat_map(|settings| settings.sysctl.iter().cloned()));
    let swap = swap_size(runner);
    let mut mounts: Vec<Mount> = runner.spec.disks.iter().filter_map(|disk| mount(runner, disk)).collect();
    let mut synchronised: Vec<String> = runner
        .spec
        .disks
        .iter()
        .filter(|disk| is_synchronised(disk))
        .map(|disk| disk.mount_path.clone())
        .collect();
    if let Some(tls) = &runner.spec.tls {
        mounts.push(Mount { path: tls.mount_path.clone(), kind: MountKind::Directory, read_only: false });
        synchronised.push(tls.mount_path.clone());
    }
    RuntimeConfig {
        command: (!guest.command.is_empty()).then(|| guest.command.clone()),
        args: (!guest.args.is_empty()).then(|| guest.args.clone()),
        env: guest.env.iter().map(|variable| format!("{}={}", variable.name, variable.value)).collect(),
        sysctl,
        mounts,
        swap: swap.map(|size| Swap { label: SWAP_LABEL.to_owned(), size, skip_swapon: skips_swapon(runner) }),
        shared_memory: swap
            .filter(|swap| swap.get() > memory(runner, runner.spec.guest.memory_slots.min).get() / 2),
        restart_policy: match runner.spec.restart_policy {
            RestartPolicy::Always => GuestRestartPolicy::Always,
            RestartPolicy::OnFailure => GuestRestartPolicy::OnFailure,
            RestartPolicy::Never => GuestRestartPolicy::Never,
        },
        synchronised_paths: synchronised,
        maximum_memory: Some(memory(runner, runner.spec.guest.memory_slots.max)),
        network: Some(network),
        attach: guest.attach.map(|attach| match attach {
            Attach::Output => GuestAttach::Output,
            Attach::InputAndOutput => GuestAttach::InputAndOutput,
        }),
        peers: vec![own],
        // Agents of upstream's releases come from their own addresses, through a port that the VM declares.
        monitor_peers: if is_declared(runner, MONITOR_PORT) { Vec::new() } else { vec![own] },
        ssh_authorized_keys: authorized_keys
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(str::to_owned)
            .collect(),
    }
}

fn is_declared(runner: &RunnerConfig, port: u16) -> bool {
    let mut ports = runner.spec.guest.ports.iter();
    ports.any(|declared| declared.port == port && declared.protocol == PortProtocol::Tcp)
}

fn memory(runner: &RunnerConfig, slots: u16) -> Bytes {
    runner.spec.guest.slot_size().unwrap_or_default().saturating_mul(u32::from(slots))
}

/// Size of the swap disk, if there is one.
pub(crate) fn swap_size(runner: &RunnerConfig) -> Option<Bytes> {
    let swap = runner.spec.guest.settings.as_ref()?.swap_disk()?;
    Bytes::try_from(swap.size).ok().filter(|size| *size > Bytes::ZERO)
}

/// Whether the guest uses its swap disk only once it is resized.
fn skips_swapon(runner: &RunnerConfig) -> bool {
    let swap = runner.spec.guest.settings.as_ref().and_then(GuestSettings::swap_disk);
    swap.is_some_and(|swap| swap.skip_swapon.unwrap_or_default())
}

/// Whether files of the disk are pushed into the running guest.
pub(crate) fn is_synchronised(disk: &Disk) -> bool {
    disk.watch && (disk.config_map.is_some() || disk.secret.is_some())
}

/// Whether the disk is a read-only volume of files.
pub(crate) fn is_volume_of_files(disk: &Disk) -> bool {
    !disk.watch && (disk.config_map.is_some() || disk.secret.is_some())
}

fn mount(runner: &RunnerConfig, disk: &Disk) -> Option<Mount> {
    let label = disk.name.clone();
    let (kind, read_only) = if let Some(empty) = &disk.empty_disk {
        let (discard, quota) = (empty.discard, empty.enable_quotas);
        (MountKind::Disk { label, discard, quota, persistent: false }, disk.read_only)
    } else if runner.claims.contains_key(&disk.name) {
        (MountKind::Disk { label, discard: true, quota: false, persistent: true }, disk.read_only)
    } else if is_synchronised(disk) {
        (MountKind::Directory, false)
    } else if is_volume_of_files(disk) {
        (MountKind::Files { label }, true)
    } else {
        let size = Bytes::try_from(disk.tmpfs.as_ref()?.size).ok()?;
        (MountKind::Tmpfs { size }, disk.read_only)
    };
    Some(Mount { path: disk.mount_path.clone(), kind, read_only })
}

/// Files of the runtime volume: the settings, the same for older guests, and a guest program newer than the one in the
/// disk if there is one. `keys`: whether there is a volume with keys that may log in.
pub(crate) fn runtime_files(config: &RuntimeConfig, keys: bool, program: Option<Vec<u8>>) -> Vec<VolumeFile> {
    let settings = serde_json::to_vec_pretty(config).unwrap_or_default();
    let mut files = vec![VolumeFile { path: RUNTIME_CONFIG_FILE.to_owned(), mode: 0o400, content: settings }];
    files.extend(shell::files(config, keys));
    files.extend(program.map(|content| VolumeFile {
        path: GUEST_PROGRAM_FILE.to_owned(),
        mode: 0o500,
        content,
    }));
    files
}

#[cfg(test)]
mod tests;
