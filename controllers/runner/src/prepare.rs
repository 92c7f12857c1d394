//! Everything a VM needs before QEMU starts: disks, network, accelerator; and from them its plan.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use neonvm_api::runner_pod::RunnerClaim;
use neonvm_api::virtual_machine::{CpuScalingMode, Disk, PortProtocol};
use neonvm_hypervisor::accelerator::{self, Accelerator, emulated_tsc_khz};
use neonvm_hypervisor::cpu_model::CpuModel;
use neonvm_hypervisor::disks::{self, Base, EmptyDisk, PersistentDisk, VolumeFile};
use neonvm_hypervisor::installation::Installation;
use neonvm_hypervisor::machine::{Resources, TapFiles, firmware};
use neonvm_hypervisor::plan::{
    Architecture, Backend, CpuMode, CpuPlan, DiskImage, DiskPlan, Firmware, Forward, InterfacePlan,
    KernelArguments, MachinePlan, MemoryPlan, OnlinePolicy, OverlayAddress, Protocol,
};
use neonvm_hypervisor::tap::Tap;
use neonvm_types::Bytes;
use neonvm_types::guest::{DAEMON_PORT, METRICS_PORT, Network as GuestNetwork, SSH_PORT};
use neonvm_types::monitor_protocol::MONITOR_PORT;
use neonvm_types::node_protocol::guest_hardware;
use neonvm_types::runner_protocol::{DEVICES, HostFacts, MachineInfo};

use crate::config::PodFiles;
use crate::network::user::HostForward;
use crate::network::{self, Reach};
use crate::options::{NetworkMode, Options};
use crate::{runtime, volume};

mod cpu;
mod incoming;
mod script;

/// Directory of sockets for migrations, below the runner's directory.
const MEETING: &str = "migration";

/// Why a VM cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Pod(#[from] crate::pod_error::Error),
    #[error("root disk: {0}")]
    RootDisk(disks::DiskError),
    #[error("disk {name}: {source}")]
    Disk { name: String, source: disks::DiskError },
    #[error("disk {name}: {source}")]
    Files { name: String, source: volume::Error },
    #[error("network: {0}")]
    Network(#[from] network::Error),
    #[error("spec.cpuModel: {0}")]
    CpuModel(String),
    #[error("accelerator: {0}")]
    Accelerator(#[from] accelerator::ChooseError),
    #[error("{0}")]
    Qemu(#[from] neonvm_hypervisor::installation::InstallationError),
    #[error("this machine's CPU architecture cannot run virtual machines")]
    Architecture,
    #[error("kernel {path}: {source}; on a local cluster get one with: neonctl kernel fetch")]
    Kernel { path: String, source: std::io::Error },
    #[error("guest program {path}: {source}")]
    GuestProgram { path: String, source: std::io::Error },
    #[error("the VM cannot be received: {0}")]
    Receive(String),
    #[error("spec.initScript: {0}")]
    Script(String),
    #[error("{field}: {reason}")]
    Spec { field: &'static str, reason: String },
    #[error("internal: {0}")]
    Task(String),
}

/// What is ready.
pub(crate) struct Prepared {
    pub(crate) plan: MachinePlan,
    pub(crate) resources: Resources,
    pub(crate) reach: Reach,
    pub(crate) accelerator_note: String,
    pub(crate) root_size_note: String,
    pub(crate) cpu: CpuModel,
    pub(crate) network: &'static str,
    /// Packets pass through the kernel.
    pub(crate) vhost: bool,
    pub(crate) devices: u32,
    /// Tasks that serve the guest's network.
    pub(crate) services: Vec<tokio::task::JoinHandle<()>>,
    /// The guest's frames on the overlay, if it is there.
    pub(crate) frames: Option<Arc<network::Frames>>,
    /// Counters of the guest's traffic, if it is counted.
    pub(crate) meter: Option<Arc<network::Meter>>,
    /// What could not be had and can be done without.
    pub(crate) notes: Vec<String>,
}

impl Prepared {
    /// What the VM is made of, but for the version of its QEMU.
    pub(crate) fn info(&self) -> MachineInfo {
        let plan = &self.plan;
        MachineInfo {
            accelerator: plan.accelerator.as_str().to_owned(),
            accelerator_note: self.accelerator_note.clone(),
            root_size_note: self.root_size_note.clone(),
            machine_type: plan.machine_type.clone(),
            cpu_model: plan.cpu_model.clone().unwrap_or_else(|| plan.accelerator.cpu_model().to_owned()),
            cpu_vendor: self.cpu.vendor.clone(),
            cpu_features: self.cpu.features.clone(),
            qemu_version: String::new(),
            network: self.network.to_owned(),
            vhost: self.vhost,
            devices: self.devices,
        }
    }
}

/// Prepares everything; what does not depend on each other at the same time.
pub(crate) async fn prepare(
    options: &Options,
    pod: &Arc<PodFiles>,
    status: &network::Reports,
) -> Result<Prepared, Error> {
    let spec = &pod.config.spec;
    let architecture = Architecture::native().ok_or(Error::Architecture)?;
    if !spec.init_script.is_empty() {
        script::run(&spec.init_script, &options.root).await.map_err(Error::Script)?;
    }
    let request = match &pod.config.receive {
        Some(receive) => incoming::accelerator(options, &receive.machine)?,
        None if spec.enable_acceleration => options.accelerator,
        None => accelerator::Request::Tcg,
    };
    // The guest's settings have its network.
    let disks_and_network = async {
        let net = network(options, pod, status).await?;
        Ok::<_, Error>((all_disks(options, pod, &net.guest).await?, net))
    };
    let (host, rest) = tokio::join!(host(options, pod, request, architecture), disks_and_network);
    let (Host { installation, chosen, cpu }, (disks, net)) = (host?, rest?);
    let (kernel, initramfs) = match pod.own_kernel() {
        Some(kernel) => (kernel, None),
        None => (options.kernel.clone(), options.initramfs.clone().or_else(|| beside(&options.kernel))),
    };
    let firmware = firmware(&kernel, architecture)
        .map_err(|source| Error::Kernel { path: kernel.display().to_string(), source })?;
    let plan = plan(
        pod,
        architecture,
        chosen.accelerator,
        &installation,
        &cpu,
        kernel,
        initramfs,
        firmware,
        disks,
        net.interfaces,
    )?;
    let meeting = Some(pod.run_directory()?.join(MEETING));
    let store = Some(pod.image(crate::suspend::DIRECTORY));
    let resources = Resources { taps: net.taps, meeting, store, ..Resources::new(installation) };
    let notes = net.notes.into_iter().chain(cpu.note).collect();
    Ok(Prepared {
        plan,
        cpu: cpu.facts,
        resources,
        reach: net.reach,
        accelerator_note: chosen.note,
        root_size_note: smaller_root(pod).unwrap_or_default(),
        network: net.mode,
        vhost: net.vhost,
        devices: pod.config.receive.as_ref().map_or(DEVICES, |receive| receive.machine.devices),
        services: net.services,
        frames: net.frames,
        meter: net.meter,
        notes,
    })
}

/// What this host has for the VM.
struct Host {
    installation: Installation,
    chosen: accelerator::Chosen,
    cpu: cpu::Cpu,
}

/// Finds QEMU, the accelerator and the CPU that the guest gets, and refuses a VM that this host cannot receive.
async fn host(
    options: &Options,
    pod: &PodFiles,
    request: accelerator::Request,
    architecture: Architecture,
) -> Result<Host, Error> {
    let accelerator = accelerator::choose(request, &options.probe, options.probe_kept.as_deref());
    let (installation, chosen) = tokio::join!(Installation::find(None, architecture), accelerator);
    let (installation, chosen) = (installation?, chosen?);
    let mut facts = HostFacts {
        accelerator: chosen.accelerator.as_str().to_owned(),
        qemu_version: installation.version.to_string(),
        ..incoming::facts_of(options)
    };
    let receive = pod.config.receive.as_ref();
    if let Some(receive) = receive {
        incoming::check(&receive.machine, &facts)?;
    }
    let cpu = cpu::find(&pod.config, &installation, chosen.accelerator).await?;
    if let Some(receive) = receive {
        facts.cpu_vendor.clone_from(&cpu.here.vendor);
        facts.cpu_features.clone_from(&cpu.here.features);
        incoming::check(&receive.machine, &facts)?;
    }
    cpu.check(chosen.accelerator)?;
    Ok(Host { installation, chosen, cpu })
}

#[expect(clippy::too_many_arguments, reason = "the parts of one machine, put together here and nowhere else")]
fn plan(
    pod: &PodFiles,
    architecture: Architecture,
    accelerator: accelerator::Accelerator,
    installation: &Installation,
    cpu: &cpu::Cpu,
    kernel: PathBuf,
    initramfs: Option<PathBuf>,
    firmware: Firmware,
    disks: Vec<DiskPlan>,
    interfaces: Vec<InterfacePlan>,
) -> Result<MachinePlan, Error> {
    let guest = &pod.config.spec.guest;
    let slot = guest
        .slot_size()
        .map_err(|e| Error::Spec { field: "spec.guest.memorySlotSize", reason: e.to_string() })?;
    let memory = |slots: u16| slot.saturating_mul(u32::from(slots));
    let mode = match pod.config.cpu_scaling_mode {
        CpuScalingMode::QmpScaling => CpuMode::Qmp,
        CpuScalingMode::SysfsScaling => CpuMode::Sysfs,
    };
    let receive = pod.config.receive.as_ref();
    let boot = match (mode, receive) {
        // The others are plugged before the VM comes, so that they can be unplugged as they could be there.
        (CpuMode::Qmp, Some(_)) => 1,
        (_, Some(receive)) => receive.size.cpu.cpus_rounded_up().max(1),
        (_, None) => guest.cpus.r#use.cpus_rounded_up().max(1),
    };
    let (min, max) = (memory(guest.memory_slots.min), memory(guest.memory_slots.max));
    let start =
        receive.map_or(memory(guest.memory_slots.r#use), |receive| receive.size.memory.clamp(min, max));
    let ratio = guest.memhp_auto_movable_ratio.clone();
    let ratio = ratio.unwrap_or_else(|| pod.config.settings.memhp_auto_movable_ratio.clone());
    let cpu_plan = CpuPlan { mode, boot, max: guest.cpus.max.cpus_rounded_up().max(1) };
    let command_line = KernelArguments {
        architecture,
        accelerator,
        hostname: hostname(&pod.config.pod),
        cpu: cpu_plan,
        online_policy: OnlinePolicy::AutoMovable { ratio },
        overlay: overlay(pod)?,
        tsc_khz: if accelerator == Accelerator::Tcg { emulated_tsc_khz() } else { None },
        append: guest.append_kernel_cmdline.clone().unwrap_or_default(),
    };
    Ok(MachinePlan {
        name: format!("{}/{}", pod.config.namespace, pod.config.name),
        uuid: pod.config.uid.clone(),
        architecture,
        accelerator,
        machine_type: receive
            .map(|receive| receive.machine.machine_type.clone())
            .filter(|kind| !kind.is_empty())
            .unwrap_or_else(|| installation.machine_type()),
        cpu_model: cpu.model.clone(),
        cpu_features_off: cpu.off.clone(),
        network_features_off: match incoming::has_current_devices(receive) {
            true => installation.network_features_off(),
            false => &[],
        },
        firmware,
        kernel,
        initramfs,
        command_line: command_line.render(),
        cpu: cpu_plan,
        memory: MemoryPlan { min, start, max, exact: !incoming::has_current_devices(receive) },
        disks,
        disk_queues: pod.config.disk_queues(),
        interfaces,
        direct_io: pod.config.settings.direct_io,
        incoming: pod.config.receive.is_some(),
    })
}

/// The initramfs that was stored with a kernel, if it needs one.
fn beside(kernel: &Path) -> Option<PathBuf> {
    Some(kernel.with_file_name("initramfs.cpio")).filter(|path| path.exists())
}

fn hostname(pod: &str) -> String {
    format!("vm-{pod}").chars().take(63).collect()
}

fn overlay(pod: &PodFiles) -> Result<Option<OverlayAddress>, Error> {
    let Some(net) = &pod.config.extra_net else { return Ok(None) };
    let parse = |text: &str| {
        text.parse::<Ipv4Addr>().map_err(|_| Error::Spec {
            field: "status.extraNetIP",
            reason: format!("{text:?} is not an IPv4 address"),
        })
    };
    Ok(Some(OverlayAddress {
        address: parse(&net.ip)?,
        mask: parse(&net.mask)?,
        pod: pod.config.pod.clone(),
    }))
}

/// Work that reads and writes files, on a thread that may wait for them.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Task(error.to_string()))?
}

fn plan_disk(name: &str, image: DiskImage, read_only: bool, discard: bool) -> DiskPlan {
    DiskPlan { name: name.to_owned(), image, read_only, discard }
}

/// In the order that fixes their names in the guest: root, runtime, keys, swap, then those of the VM.
async fn all_disks(
    options: &Options,
    pod: &Arc<PodFiles>,
    network: &GuestNetwork,
) -> Result<Vec<DiskPlan>, Error> {
    if let Some(receive) = &pod.config.receive {
        return incoming::disks(pod, receive).await;
    }
    let named = |name: &str| {
        let name = name.to_owned();
        move |source| Error::Disk { name, source }
    };
    let (root, runtime_volume) = tokio::join!(
        blocking({
            let pod = Arc::clone(pod);
            move || root_disk(&pod)
        }),
        blocking({
            let (pod, program, network) = (Arc::clone(pod), options.guest_program.clone(), network.clone());
            move || runtime_disk(&pod, network, program.as_deref())
        })
    );
    let mut all = vec![root?, runtime_volume?];
    if pod.config.spec.enable_ssh {
        let path = pod.image("ssh-authorized-keys.iso");
        let keys = VolumeFile {
            path: "authorized_keys".into(),
            mode: 0o644,
            content: pod.authorized_keys.clone().into_bytes(),
        };
        disks::volume(&path, runtime::SSH_LABEL, &[keys]).map_err(named(runtime::SSH_LABEL))?;
        all.push(plan_disk(runtime::SSH_LABEL, DiskImage::Raw(path), true, false));
    }
    if let Some(size) = runtime::swap_size(&pod.config) {
        let path = pod.swap();
        disks::swap(&path, size, runtime::SWAP_LABEL).map_err(named(runtime::SWAP_LABEL))?;
        all.push(plan_disk(runtime::SWAP_LABEL, DiskImage::Raw(path), false, true));
    }
    for disk in &pod.config.spec.disks {
        all.extend(one_disk(pod, disk).await?);
    }
    Ok(all)
}

/// What log and events have of a root disk that is larger than the VM's configuration: a disk cannot be smaller than its image.
fn smaller_root(pod: &PodFiles) -> Option<String> {
    let size =
        Bytes::try_from(pod.config.spec.guest.root_disk.size).ok().filter(|size| *size > Bytes::ZERO)?;
    let image = disks::inspect(&pod.root_base()).ok()?.size;
    (size < image).then(|| {
        format!("spec.guest.rootDisk.size: {size} is less than the image's {image}; the root disk has the size of the image")
    })
}

fn root_disk(pod: &PodFiles) -> Result<DiskPlan, Error> {
    let base: Base = disks::inspect(&pod.root_base()).map_err(Error::RootDisk)?;
    let size = Bytes::try_from(pod.config.spec.guest.root_disk.size).ok().filter(|size| *size > Bytes::ZERO);
    let file = pod.image("rootdisk.qcow2");
    disks::overlay(&file, &base, size).map_err(Error::RootDisk)?;
    let image = DiskImage::Overlay { file, base: base.path, base_format: base.format };
    Ok(plan_disk("rootdisk", image, false, true))
}

fn runtime_disk(pod: &PodFiles, network: GuestNetwork, program: Option<&Path>) -> Result<DiskPlan, Error> {
    let program = match program {
        Some(path) => Some(
            std::fs::read(path)
                .map_err(|source| Error::GuestProgram { path: path.display().to_string(), source })?,
        ),
        None => None,
    };
    // The runner calls from the address of the guest's router, in every mode.
    let runner = network.gateway;
    let config = runtime::config(&pod.config, &pod.authorized_keys, runner.into(), network);
    let path = pod.image("runtime.iso");
    let files = runtime::runtime_files(&config, pod.config.spec.enable_ssh, program);
    disks::volume(&path, runtime::RUNTIME_LABEL, &files)
        .map_err(|source| Error::Disk { name: "runtime".into(), source })?;
    Ok(plan_disk("runtime", DiskImage::Raw(path), true, false))
}

/// A disk on a claim. Freed blocks go back to the volume.
fn claimed_disk(disk: &Disk, claim: &RunnerClaim, path: PathBuf) -> DiskPlan {
    let image = DiskImage::Volume { path, device: claim.block, shared: claim.shared };
    plan_disk(&disk.name, image, disk.read_only, true)
}

async fn one_disk(pod: &Arc<PodFiles>, disk: &Disk) -> Result<Option<DiskPlan>, Error> {
    let name = disk.name.clone();
    let failed = |source| Error::Disk { name: name.clone(), source };
    if let Some(empty) = &disk.empty_disk {
        let size = Bytes::try_from(empty.size).map_err(|error| Error::Spec {
            field: "spec.disks[].emptyDisk.size",
            reason: error.to_string(),
        })?;
        let path = pod.empty_disk(&disk.name);
        disks::empty(&path, EmptyDisk { size, label: &disk.name, quotas: empty.enable_quotas })
            .await
            .map_err(failed)?;
        return Ok(Some(plan_disk(&disk.name, DiskImage::Raw(path), disk.read_only, empty.discard)));
    }
    if let Some(claim) = pod.config.claims.get(&disk.name) {
        let path = pod.claim(&disk.name, claim);
        let persistent = PersistentDisk {
            claim: &claim.name,
            label: &disk.name,
            size: claim.size,
            read_only: disk.read_only,
        };
        disks::persistent(&path, persistent).await.map_err(failed)?;
        return Ok(Some(claimed_disk(disk, claim, path)));
    }
    if runtime::is_volume_of_files(disk) {
        let (source, path, name) =
            (pod.mounted(&disk.mount_path), pod.image(&format!("{}.iso", disk.name)), disk.name.clone());
        let modes = volume::Modes::of(disk);
        return blocking(move || {
            let files = volume::mounted(&source, &modes)
                .map_err(|source| Error::Files { name: name.clone(), source })?;
            disks::volume(&path, &name, &files)
                .map_err(|source| Error::Disk { name: name.clone(), source })?;
            Ok(Some(plan_disk(&name, DiskImage::Raw(path), true, false)))
        })
        .await;
    }
    Ok(None)
}

struct Network {
    interfaces: Vec<InterfacePlan>,
    taps: Vec<TapFiles>,
    reach: Reach,
    guest: GuestNetwork,
    services: Vec<tokio::task::JoinHandle<()>>,
    frames: Option<Arc<network::Frames>>,
    meter: Option<Arc<network::Meter>>,
    mode: &'static str,
    vhost: bool,
    notes: Vec<String>,
}

/// The files of an interface, with the kernel's end of it where the node has that.
fn tap_files(tap: Tap, vhost: bool, notes: &mut Vec<String>) -> TapFiles {
    let opened = if vhost { network::vhost::open() } else { Ok(None) };
    let vhost = opened.unwrap_or_else(|note| {
        notes.push(note);
        None
    });
    TapFiles { queues: vec![tap.0], vhosts: vhost.into_iter().collect() }
}

async fn network(
    options: &Options,
    pod: &Arc<PodFiles>,
    status: &network::Reports,
) -> Result<Network, Error> {
    // A port with two names is forwarded once.
    let ports: BTreeSet<(bool, u16)> = pod
        .config
        .spec
        .guest
        .ports
        .iter()
        .map(|port| (port.protocol == PortProtocol::Udp, port.port))
        .collect();
    let forwards: Vec<network::Forward> =
        ports.into_iter().map(|(udp, port)| network::Forward { udp, port }).collect();
    let mac = guest_hardware(&pod.config.uid);
    match options.network {
        NetworkMode::Tap => tap_network(options, pod, status, mac).await,
        NetworkMode::User if pod.config.extra_net.is_some() => Err(network::Error::OverlayNeedsRoot.into()),
        NetworkMode::User => {
            let address = options.addresses.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let own = [DAEMON_PORT, SSH_PORT, METRICS_PORT, MONITOR_PORT];
            let (forwards, notes) = network::user::forwards(address, &forwards, &own);
            let reach = Reach::Forwards(Arc::new(network::user::reach(&forwards)));
            let forwards = forwards.iter().filter_map(user_forward).collect();
            Ok(Network {
                interfaces: vec![InterfacePlan { mac, mtu: None, backend: Backend::User { forwards } }],
                taps: Vec::new(),
                reach,
                guest: network::user::guest(),
                services: Vec::new(),
                frames: None,
                meter: None,
                mode: "user",
                vhost: false,
                notes,
            })
        }
    }
}

/// Interfaces on tap devices, which the node service makes with what is around them in the pod's network namespace.
async fn tap_network(
    options: &Options,
    pod: &Arc<PodFiles>,
    status: &network::Reports,
    mac: [u8; 6],
) -> Result<Network, Error> {
    let hardware = neonvm_api::overlay::hardware_address(&pod.config.uid);
    let settings = network::Settings {
        hardware: mac,
        overlay: pod.config.extra_net.is_some().then_some(hardware),
        hostname: hostname(&pod.config.pod),
        counted: pod.config.spec.enable_network_monitoring,
    };
    let node = network::Node { socket: options.node_socket.clone(), status: status.clone() };
    let link = blocking(move || Ok(network::set_up(&node, &settings)?)).await?;
    let mut interfaces = vec![InterfacePlan { mac, mtu: Some(link.mtu), backend: Backend::Tap }];
    let mut notes = link.notes;
    let vhost = incoming::may_have_vhost(pod.config.receive.as_ref());
    let mut taps = vec![tap_files(link.tap, vhost, &mut notes)];
    let mut frames = None;
    if let Some(overlay) = link.overlay {
        interfaces.push(InterfacePlan { mac: hardware, mtu: Some(overlay.mtu), backend: Backend::Tap });
        let files = tap_files(overlay.tap, vhost, &mut notes);
        let is_read_by_qemu = files.vhosts.is_empty();
        frames = Some(if is_read_by_qemu { overlay.frames } else { overlay.frames.without_copies() });
        taps.push(files);
    }
    Ok(Network {
        interfaces,
        reach: link.reach,
        guest: link.guest,
        services: link.services,
        frames: frames.map(Arc::new),
        meter: link.meter.map(Arc::new),
        mode: "tap",
        vhost: taps.iter().any(|tap| !tap.vhosts.is_empty()),
        taps,
        notes,
    })
}

fn user_forward(forward: &HostForward) -> Option<Forward> {
    let SocketAddr::V4(host) = forward.host else { return None };
    let protocol = if forward.udp { Protocol::Udp } else { Protocol::Tcp };
    Some(Forward { protocol, address: *host.ip(), port: host.port(), guest_port: forward.guest })
}
