//! The guest for x86-64: long mode, its first 2 MiB mapped to themselves.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::patience::scaled;

/// Iterations of the loop: some 20 ms of a processor, minutes of an interpreter.
const TURNS: u32 = 20_000_000;
const BUDGET: Duration = Duration::from_millis(300);
/// How often a running guest is interrupted to read the clock.
const TICK: Duration = Duration::from_millis(20);
const MEMORY: usize = 2 << 20;
const CODE: usize = 0x4000;
const EXCHANGED: usize = 0x6000;
const PORT: u16 = 0xf4;
const DONE: u8 = 0x42;

const GET_API_VERSION: u64 = 0xAE00;
const CREATE_VM: u64 = 0xAE01;
const GET_VCPU_MMAP_SIZE: u64 = 0xAE04;
const GET_SUPPORTED_CPUID: u64 = 0xC008_AE05;
const CREATE_VCPU: u64 = 0xAE41;
const SET_USER_MEMORY_REGION: u64 = 0x4020_AE46;
const SET_TSS_ADDR: u64 = 0xAE47;
const CREATE_IRQCHIP: u64 = 0xAE60;
const RUN: u64 = 0xAE80;
const GET_REGS: u64 = 0x8090_AE81;
const SET_REGS: u64 = 0x4090_AE82;
const GET_SREGS: u64 = 0x8138_AE83;
const SET_SREGS: u64 = 0x4138_AE84;
const SET_CPUID2: u64 = 0x4008_AE90;

const EXIT_IO: u32 = 2;
const EXIT_INTERRUPTED: u32 = 10;
const EXIT_INTERNAL_ERROR: u32 = 17;

/// `struct kvm_segment`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Segment {
    base: u64,
    limit: u32,
    selector: u16,
    kind: u8,
    present: u8,
    privilege: u8,
    big: u8,
    system: u8,
    long: u8,
    granularity: u8,
    available: u8,
    unusable: u8,
    padding: u8,
}

/// `struct kvm_dtable`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Table {
    base: u64,
    limit: u16,
    padding: [u16; 3],
}

/// `struct kvm_sregs`. Segments: cs ds es fs gs ss tr ldt.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Special {
    segments: [Segment; 8],
    tables: [Table; 2],
    cr0: u64,
    cr2: u64,
    cr3: u64,
    cr4: u64,
    cr8: u64,
    efer: u64,
    apic_base: u64,
    interrupts: [u64; 4],
}

/// `struct kvm_regs`: rax rbx rcx rdx rsi rdi rsp rbp r8–r15 rip rflags.
type Registers = [u64; 18];
const RIP: usize = 16;
const RFLAGS: usize = 17;

/// `struct kvm_userspace_memory_region`.
#[repr(C)]
struct Region {
    slot: u32,
    flags: u32,
    guest: u64,
    size: u64,
    host: u64,
}

/// `struct kvm_cpuid2` with room; an entry is 40 bytes.
#[repr(C)]
struct Features {
    count: u32,
    padding: u32,
    entries: [[u32; 10]; 256],
}

/// Memory shared with the kernel or the guest.
struct Mapping {
    start: *mut libc::c_void,
    length: usize,
}

impl Mapping {
    fn new(length: usize, file: Option<RawFd>) -> io::Result<Self> {
        let flags = if file.is_some() { libc::MAP_SHARED } else { libc::MAP_SHARED | libc::MAP_ANONYMOUS };
        // SAFETY: a new mapping at a place the kernel chooses touches nothing else.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                file.unwrap_or(-1),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start, length })
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate().filter(|(index, _)| at + index < self.length) {
            // SAFETY: within the mapping; volatile because guest and kernel change it.
            unsafe { self.start.cast::<u8>().add(at + index).write_volatile(*byte) };
        }
    }

    fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        for (index, byte) in bytes.iter_mut().enumerate().filter(|(index, _)| at + index < self.length) {
            // SAFETY: within the mapping; volatile because guest and kernel change it.
            *byte = unsafe { self.start.cast::<u8>().add(at + index).read_volatile() };
        }
        bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this length; nothing refers to it any more.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// An ioctl that takes a number.
fn number(file: RawFd, request: u64, argument: u64) -> io::Result<i32> {
    // SAFETY: callers pass requests whose argument is a number.
    let result = unsafe { libc::ioctl(file, request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// An ioctl that reads or writes a structure.
fn structure<T>(file: RawFd, request: u64, argument: &mut T) -> io::Result<()> {
    // SAFETY: each request used here has the size of `T` in it, or a count in `T` that is true.
    let result = unsafe { libc::ioctl(file, request, std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn own(descriptor: i32) -> OwnedFd {
    // SAFETY: the kernel has just made it for us.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn program() -> Vec<u8> {
    let mut code = vec![0xB9];
    code.extend(TURNS.to_le_bytes()); // mov ecx, TURNS
    code.extend([0x48, 0xFF, 0xC9, 0x75, 0xFB]); // again: dec rcx; jnz again
    code.extend([0xBB, 0x11, 0, 0, 0, 0xB9, 0x22, 0, 0, 0]); // mov ebx, 0x11; mov ecx, 0x22
    code.extend([0x31, 0xC0, 0x31, 0xD2]); // xor eax, eax; xor edx, edx
    code.extend([0xF0, 0x48, 0x0F, 0xC7, 0x0C, 0x25]); // lock cmpxchg16b [EXCHANGED]
    code.extend(u32::try_from(EXCHANGED).unwrap_or(0).to_le_bytes());
    code.extend([0x75, 0x09]); // jnz failed
    code.extend([0x31, 0xC0, 0x0F, 0xA2]); // xor eax, eax; cpuid
    code.extend([0xB0, DONE, 0xE6, PORT.to_le_bytes()[0], 0xF4]); // mov al, DONE; out PORT, al; hlt
    code.extend([0xB0, 0x01, 0xE6, PORT.to_le_bytes()[0], 0xF4]); // failed: mov al, 1; out PORT, al; hlt
    code
}

extern "C" fn ignore(_: libc::c_int) {}

/// Interrupts the calling thread every now and then until dropped.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn handle_alarm() -> io::Result<()> {
    // SAFETY: an all-zero action is valid; the handler does nothing. Without SA_RESTART, KVM_RUN returns.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as *const () as usize;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn run() -> Result<String, String> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    let device: File = device.map_err(|error| format!("it does not open: {error}"))?;
    let step = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let version = number(device.as_raw_fd(), GET_API_VERSION, 0).map_err(step("version"))?;
    if version != 12 {
        return Err(format!("version {version} of its interface is not 12"));
    }
    let machine = own(number(device.as_raw_fd(), CREATE_VM, 0).map_err(step("no machine can be made"))?);
    number(machine.as_raw_fd(), SET_TSS_ADDR, 0xFFFB_D000).map_err(step("no room for a task state"))?;
    number(machine.as_raw_fd(), CREATE_IRQCHIP, 0).map_err(step("no interrupt controller"))?;
    let memory = Mapping::new(MEMORY, None).map_err(step("no memory"))?;
    // Page tables: 0x1000 → 0x2000 → one page of 2 MiB; present, writable, and the last one large.
    memory.write(0x1000, &0x2003u64.to_le_bytes());
    memory.write(0x2000, &0x3003u64.to_le_bytes());
    memory.write(0x3000, &0x83u64.to_le_bytes());
    memory.write(CODE, &program());
    let mut region = Region { slot: 0, flags: 0, guest: 0, size: MEMORY as u64, host: memory.start as u64 };
    structure(machine.as_raw_fd(), SET_USER_MEMORY_REGION, &mut region)
        .map_err(step("no memory for the guest"))?;
    let cpu = own(number(machine.as_raw_fd(), CREATE_VCPU, 0).map_err(step("no processor can be made"))?);
    prepare(&device, cpu.as_raw_fd()).map_err(step("the processor cannot be set up"))?;
    let size = number(device.as_raw_fd(), GET_VCPU_MMAP_SIZE, 0).map_err(step("no shared page"))?;
    let shared = Mapping::new(usize::try_from(size).unwrap_or(4096), Some(cpu.as_raw_fd()))
        .map_err(step("no shared page"))?;
    handle_alarm().map_err(step("no timer"))?;
    let done = AtomicBool::new(false);
    // SAFETY: takes nothing.
    let thread = unsafe { libc::pthread_self() };
    std::thread::scope(|scope| {
        let _alarm = Alarm(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(TICK);
                // SAFETY: the thread waits for this one to end, so it is there.
                unsafe { libc::pthread_kill(thread, libc::SIGALRM) };
            }
        });
        turn(cpu.as_raw_fd(), &shared, &memory)
    })
}

/// Runs it to its end.
fn turn(cpu: RawFd, shared: &Mapping, memory: &Mapping) -> Result<String, String> {
    let begun = Instant::now();
    loop {
        let result = number(cpu, RUN, 0);
        let reason = u32::from_ne_bytes(shared.read(8));
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("it does not run: {error}")),
            Ok(_) if reason == EXIT_INTERRUPTED => {}
            Ok(_) if reason == EXIT_IO => return finished(shared, memory, begun.elapsed()),
            Ok(_) if reason == EXIT_INTERNAL_ERROR => {
                let detail = u32::from_ne_bytes(shared.read(32));
                return Err(format!("KVM internal error, suberror {detail}"));
            }
            Ok(_) => return Err(format!("the guest stops with exit reason {reason}")),
        }
        if begun.elapsed() > scaled(BUDGET) {
            let mut registers: Registers = [0; 18];
            structure(cpu, GET_REGS, &mut registers).map_err(|error| format!("registers: {error}"))?;
            let [_, _, left, ..] = registers;
            let share = u64::from(TURNS).saturating_sub(left) * 1000 / u64::from(TURNS);
            return Err(format!(
                "KVM interprets it, or is stuck: a test loop came to {}.{} % in {} ms",
                share / 10,
                share % 10,
                scaled(BUDGET).as_millis()
            ));
        }
    }
}

fn finished(shared: &Mapping, memory: &Mapping, took: Duration) -> Result<String, String> {
    let port = u16::from_ne_bytes(shared.read(34));
    let offset = usize::try_from(u64::from_ne_bytes(shared.read(40))).unwrap_or(usize::MAX / 2);
    let [value] = shared.read(offset);
    let low = u64::from_le_bytes(memory.read(EXCHANGED));
    let high = u64::from_le_bytes(memory.read(EXCHANGED + 8));
    if (port, value, low, high) != (PORT, DONE, 0x11, 0x22) {
        return Err(format!(
            "the guest computes wrongly (port {port:#x}, value {value:#x}, memory {low:#x} {high:#x})"
        ));
    }
    if took > scaled(BUDGET) {
        return Err(format!("the guest is too slow: {} ms", took.as_millis()));
    }
    Ok(format!("{TURNS} turns in {} ms", took.as_millis()))
}

/// Long mode at ring 0, with all features there are.
fn prepare(device: &File, cpu: RawFd) -> io::Result<()> {
    let mut features = Box::new(Features { count: 256, padding: 0, entries: [[0; 10]; 256] });
    structure(device.as_raw_fd(), GET_SUPPORTED_CPUID, &mut *features)?;
    structure(cpu, SET_CPUID2, &mut *features)?;
    let mut special = Special::default();
    structure(cpu, GET_SREGS, &mut special)?;
    let flat = |kind: u8, selector: u16| Segment {
        limit: u32::MAX,
        selector,
        kind,
        present: 1,
        system: 1,
        granularity: 1,
        ..Segment::default()
    };
    let code = Segment { long: 1, ..flat(11, 8) };
    let data = Segment { big: 1, ..flat(3, 16) };
    let [cs, ds, es, fs, gs, ss, _, _] = &mut special.segments;
    *cs = code;
    for segment in [ds, es, fs, gs, ss] {
        *segment = data;
    }
    special.cr3 = 0x1000;
    // Physical address extension; FPU state and exceptions of SSE.
    special.cr4 = 0x20 | 0x600;
    // Protection, monitor, extension type, numeric error, write protect, paging.
    special.cr0 = 0x8005_0033 & !0x4_0000;
    // Long mode enabled and active.
    special.efer = 0x500;
    structure(cpu, SET_SREGS, &mut special)?;
    let mut registers: Registers = [0; 18];
    registers[RIP] = CODE as u64;
    registers[RFLAGS] = 2;
    structure(cpu, SET_REGS, &mut registers)
}
