//! A plan as QEMU's arguments. The same plan always gives the same ones.

use neonvm_types::Bytes;
use neonvm_types::guest::{LOG_PORT, REPORT_PORT};

use super::device::{self, MEMORY_SLOT, PANIC_SLOT, RANDOM_SLOT, SERIAL_SLOT};
use crate::accelerator::Accelerator;

use super::{
    Architecture, Backend, CpuMode, Descriptors, DiskDescriptors, Firmware, InterfacePlan, MEMORY_BLOCK,
    MachinePlan, MemoryFile, PlanError, Protocol, TapDescriptors, block, processors,
};

/// QEMU's arguments after the name of the program.
///
/// # Errors
/// If there can be no such machine or a descriptor is missing.
pub fn arguments(plan: &MachinePlan, descriptors: &Descriptors) -> Result<Vec<String>, PlanError> {
    plan.check()?;
    let mut out = Vec::new();
    process(plan, &mut out);
    computer(plan, descriptors.memory.as_ref(), &mut out);
    ports(descriptors, &mut out);
    for (index, disk) in plan.disks.iter().enumerate() {
        let files: DiskDescriptors =
            *descriptors.disks.get(index).ok_or(PlanError::Descriptor { what: "disk", index })?;
        block::arguments(index, disk, files, plan, &mut out)?;
    }
    for (index, interface) in plan.interfaces.iter().enumerate() {
        let none = TapDescriptors::default();
        let taps = descriptors.interfaces.get(index).unwrap_or(&none);
        network(index, interface, taps, plan.network_features_off, &mut out)?;
    }
    kernel(plan, descriptors, &mut out)?;
    Ok(out)
}

fn push<const N: usize>(out: &mut Vec<String>, words: [&str; N]) {
    out.extend(words.map(str::to_owned));
}

fn process(plan: &MachinePlan, out: &mut Vec<String>) {
    push(out, ["-name", &format!("guest={},debug-threads=on", device::value(&plan.name))]);
    push(out, ["-uuid", &plan.uuid]);
    push(out, ["-nodefaults", "-no-user-config", "-only-migratable"]);
    push(out, ["-display", "none"]);
    // The guest's code waits until its threads are held to their size.
    push(out, ["-S"]);
    if plan.incoming {
        push(out, ["-incoming", "defer"]);
    }
    // Each end of a guest ends QEMU, with a reason in its last event.
    push(out, ["-action", "reboot=shutdown,shutdown=poweroff,panic=exit-failure"]);
    let sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
    push(out, ["-sandbox", sandbox]);
}

/// Board, processors, memory, devices that are always there.
fn computer(plan: &MachinePlan, file: Option<&MemoryFile>, out: &mut Vec<String>) {
    let kind = device::value(&plan.machine_type);
    let board = match plan.architecture {
        Architecture::Amd64 => format!("{kind},vmport=off"),
        Architecture::Arm64 => format!("{kind},gic-version=max"),
    };
    let board = if is_first(plan) || file.is_some() {
        format!("{board},memory-backend={}", base_memory_name(plan.architecture))
    } else {
        board
    };
    push(out, ["-machine", &board]);
    push(out, ["-accel", plan.accelerator.option(), "-cpu", &cpu(plan)]);
    match &plan.firmware {
        Firmware::Default => {}
        Firmware::Qboot => push(out, ["-bios", "qboot.rom"]),
        Firmware::File(path) => push(out, ["-bios", &path.to_string_lossy()]),
    }
    let max = plan.cpu.max;
    let present = match plan.cpu.mode {
        CpuMode::Sysfs => max,
        CpuMode::Qmp => plan.cpu.boot,
    };
    push(out, ["-smp", &format!("cpus={present},maxcpus={max},sockets=1,cores={max},threads=1")]);
    memory(plan, file, out);
    let random = device::slot(RANDOM_SLOT);
    push(out, ["-object", "rng-random,id=rng0,filename=/dev/urandom"]);
    push(out, ["-device", &format!("virtio-rng-pci,id=random,rng=rng0,{random}")]);
    push(out, ["-device", &format!("pvpanic-pci,id=panic,{}", device::slot(PANIC_SLOT))]);
}

/// Value of `-cpu`.
fn cpu(plan: &MachinePlan) -> String {
    let mut text = match &plan.cpu_model {
        Some(name) => cpu_option(name, plan.accelerator, plan.architecture),
        None => plan.accelerator.cpu_option(plan.architecture).to_owned(),
    };
    for feature in &plan.cpu_features_off {
        text.push_str(&format!(",{feature}=off"));
    }
    text
}

/// Value of `-cpu` for a model with a name. Under KVM QEMU ends if the processor lacks a feature of it, so that the guest
/// has the same CPU on every host. Emulation lacks features of most models, and those without which it is faster are off.
pub(crate) fn cpu_option(name: &str, accelerator: Accelerator, architecture: Architecture) -> String {
    match (accelerator, architecture) {
        (Accelerator::Kvm, Architecture::Amd64) => format!("{name},enforce"),
        (Accelerator::Tcg, Architecture::Amd64) => format!("{name},erms=off,fsrm=off"),
        (_, Architecture::Arm64) => name.to_owned(),
    }
}

/// QEMU's name of the memory that is always there.
pub(crate) const fn base_memory_name(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "pc.ram",
        Architecture::Arm64 => "mach-virt.ram",
    }
}

/// Whether the memory that is always there has to be made before the device. When QEMU 10.0 collects the writes of an emulated
/// guest, it resets translations from the start of the first memory on (`cpu_physical_memory_sync_dirty_bitmap`,
/// `tlb_reset_dirty_range_all`), and aborts if that is smaller than another one: the larger one comes first.
fn is_first(plan: &MachinePlan) -> bool {
    let device = plan.memory.device();
    device != Bytes::ZERO && device < plan.memory.min && plan.accelerator == Accelerator::Tcg
}

fn memory(plan: &MachinePlan, file: Option<&MemoryFile>, out: &mut Vec<String>) {
    let memory = plan.memory;
    let device = memory.device();
    let more = match device {
        Bytes::ZERO => String::new(),
        device => format!(",slots=1,maxmem={}b", memory.min.saturating_add(device).get()),
    };
    push(out, ["-m", &format!("size={}b{more}", memory.min.get())]);
    let base = format!("id={},size={}b", base_memory_name(plan.architecture), memory.min.get());
    let base = match file {
        Some(MemoryFile { path, offset }) => Some(format!(
            "memory-backend-file,{base},mem-path={path},offset={offset},share=off,readonly=on,rom=off"
        )),
        None => is_first(plan).then(|| format!("memory-backend-ram,{base}")),
    };
    let (before, after) = if is_first(plan) { (base, None) } else { (None, base) };
    if let Some(base) = before {
        push(out, ["-object", &base]);
    }
    if device != Bytes::ZERO {
        memory_device(plan, device, out);
    }
    if let Some(base) = after {
        push(out, ["-object", &base]);
    }
}

/// The device that adds and takes memory.
fn memory_device(plan: &MachinePlan, device: Bytes, out: &mut Vec<String>) {
    let memory = plan.memory;
    let object = format!("memory-backend-ram,id=vmem0,size={}b,reserve=off", device.get());
    let requested = memory.start.saturating_sub(memory.min).get();
    let address = device::slot(MEMORY_SLOT);
    let block = MEMORY_BLOCK.get();
    let front =
        format!("virtio-mem-pci,id=vm0,memdev=vmem0,block-size={block},requested-size={requested},{address}");
    push(out, ["-object", &object, "-device", &front]);
}

/// Monitor, console, and the guest's ports to the host.
fn ports(descriptors: &Descriptors, out: &mut Vec<String>) {
    for (id, descriptor) in [
        ("monitor", descriptors.monitor),
        ("console", descriptors.console),
        ("log", descriptors.log),
        ("report", descriptors.report),
    ] {
        push(out, ["-chardev", &format!("socket,id={id},fd={descriptor}")]);
    }
    push(out, ["-mon", "chardev=monitor,mode=control", "-serial", "chardev:console"]);
    let address = device::slot(SERIAL_SLOT);
    push(out, ["-device", &format!("virtio-serial-pci,id=ports,max_ports=8,{address}")]);
    for (number, id, name) in [(1, "log", LOG_PORT), (2, "report", REPORT_PORT)] {
        let port = format!("virtserialport,id={id}-port,bus=ports.0,nr={number},chardev={id},name={name}");
        push(out, ["-device", &port]);
    }
}

fn network(
    index: usize,
    interface: &InterfacePlan,
    taps: &TapDescriptors,
    features_off: &[&str],
    out: &mut Vec<String>,
) -> Result<(), PlanError> {
    let mut extra = String::new();
    let back = match &interface.backend {
        Backend::Tap => {
            let list = |numbers: &[i32]| numbers.iter().map(i32::to_string).collect::<Vec<_>>().join(":");
            let (one, more) = match taps.queues.len() {
                0 => return Err(PlanError::Descriptor { what: "network interface", index }),
                1 => (("fd", "vhostfd"), false),
                _ => (("fds", "vhostfds"), true),
            };
            if more {
                // Each queue has two vectors; one more for its settings and one for control.
                extra = format!(",mq=on,vectors={}", 2 * taps.queues.len() + 2);
            }
            let vhost = if taps.vhosts.len() == taps.queues.len() {
                format!("vhost=on,{}={}", one.1, list(&taps.vhosts))
            } else {
                "vhost=off".to_owned()
            };
            format!("tap,id=net{index},{}={},{vhost}", one.0, list(&taps.queues))
        }
        Backend::User { forwards } => {
            let mut text = format!("user,id=net{index}");
            for forward in forwards {
                let protocol = match forward.protocol {
                    Protocol::Tcp => "tcp",
                    Protocol::Udp => "udp",
                };
                let (address, port, guest) = (forward.address, forward.port, forward.guest_port);
                text.push_str(&format!(",hostfwd={protocol}:{address}:{port}-:{guest}"));
            }
            text
        }
    };
    if let Some(mtu) = interface.mtu {
        extra.push_str(&format!(",host_mtu={mtu}"));
    }
    for feature in features_off {
        extra.push_str(&format!(",{feature}=off"));
    }
    let (mac, address) = (device::mac(interface.mac), device::interface(index));
    let front = format!("virtio-net-pci,id=eth{index},netdev=net{index},mac={mac},romfile=,{address}{extra}");
    push(out, ["-netdev", &back, "-device", &front]);
    Ok(())
}

/// The kernel by descriptor: opened again through `/proc`, no directory on the way to it needs to be readable.
fn kernel(plan: &MachinePlan, descriptors: &Descriptors, out: &mut Vec<String>) -> Result<(), PlanError> {
    push(out, ["-kernel", &format!("/dev/fd/{}", descriptors.kernel)]);
    if let Some(initramfs) = descriptors.initramfs {
        push(out, ["-initrd", &format!("/dev/fd/{initramfs}")]);
    }
    push(out, ["-append", &plan.command_line]);
    if plan.cpu.all_are_listed(plan.architecture, plan.accelerator) {
        let what = "table of CPUs";
        let table = descriptors.table_of_cpus.ok_or(PlanError::Descriptor { what, index: 0 })?;
        let table = format!("sig=APIC,rev={},data=/dev/fd/{table}", processors::REVISION);
        push(out, ["-acpitable", &table]);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
