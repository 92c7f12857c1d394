//! A guest of a hundred bytes that proves that memory is intact: it walks over its memory, lap by lap, and adds one to a
//! byte of each page, after it has looked whether the byte is what the lap before has made it. A lap that was right is a
//! `.` on the serial line, a page that is not is an `X` and the end.
//!
//! Directly before it writes to a page it has its translation forgotten. The translator of QEMU 7.2 does not take back the
//! right to write unseen when a pass over memory begins (repaired in QEMU 9.0); guests that switch between processes have
//! it taken back all the time, this one never would. Nothing is between the two instructions: QEMU stops a CPU where a
//! block of translated code ends, and a pass that begins there would miss the write. KVM is not concerned.
//!
//! It is an ELF file with a PVH entry (Xen's `docs/misc/pvh.pandoc`): QEMU starts it in protected mode, without paging.

use std::path::{Path, PathBuf};

/// Where the program is, and where the memory begins that it walks over.
const PROGRAM: u64 = 0x10_0000;
const MEMORY: u32 = 0x100_0000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// Pages of 4 KiB of a lap.
    pub(crate) pages: u32,
    /// Iterations of an empty loop between two pages.
    pub(crate) pause: u32,
}

/// 50 MiB, as fast as it can, which QEMU's translator makes some hundred MiB a second.
pub(crate) const RUN: Walk = Walk { pages: 12_800, pause: 1 };
/// 50 MiB, slowly.
pub(crate) const STROLL: Walk = Walk { pages: 12_800, pause: 2_000 };

fn code(walk: Walk) -> Vec<u8> {
    let end = MEMORY + walk.pages * 4096;
    let mut code = vec![0x30, 0xC9]; // xor cl, cl
    code.push(0xBE); // lap: mov esi, MEMORY
    code.extend(MEMORY.to_le_bytes());
    code.extend([0x8A, 0x06]); // page: mov al, [esi]
    code.extend([0x38, 0xC8]); // cmp al, cl
    code.extend([0x75, 35]); // jne wrong
    code.extend([0xFE, 0xC0]); // inc al
    code.extend([0x0F, 0x01, 0x3E]); // invlpg [esi]
    code.extend([0x88, 0x06]); // mov [esi], al
    code.push(0xBF); // mov edi, pause
    code.extend(walk.pause.to_le_bytes());
    code.extend([0x4F, 0x75, 0xFD]); // turn: dec edi; jnz turn
    code.extend([0x81, 0xC6]); // add esi, 4096
    code.extend(4096_u32.to_le_bytes());
    code.extend([0x81, 0xFE]); // cmp esi, end
    code.extend(end.to_le_bytes());
    code.extend([0x72, 0xDD]); // jb page
    code.extend([0xFE, 0xC1]); // inc cl
    code.extend([0xB0, b'.']); // mov al, '.'
    let jump = [0xEB, 2 + 5 + 1]; // jmp show
    code.extend(jump);
    code.extend([0xB0, b'X']); // wrong: mov al, 'X'
    code.extend([0x66, 0xBA, 0xF8, 0x03, 0xEE]); // mov dx, 0x3f8; out dx, al
    code.push(0xF4); // hlt, without interrupts: for ever
    code.extend([0x66, 0xBA, 0xF8, 0x03, 0xEE]); // show: mov dx, 0x3f8; out dx, al
    let lap = 2_i64;
    let next = code.len() as i64 + 2;
    code.extend([0xEB, (lap - next) as i8 as u8]); // jmp lap
    code
}

pub(crate) fn write(directory: &Path, walk: Walk) -> PathBuf {
    let code = code(walk);
    let mut file = Vec::new();
    file.extend(b"\x7fELF\x02\x01\x01");
    file.resize(16, 0);
    file.extend(2_u16.to_le_bytes()); // a program
    file.extend(62_u16.to_le_bytes()); // x86-64
    file.extend(1_u32.to_le_bytes());
    file.extend(PROGRAM.to_le_bytes()); // entry
    file.extend(64_u64.to_le_bytes()); // where the segments are listed
    file.extend(0_u64.to_le_bytes());
    file.extend(0_u32.to_le_bytes());
    for number in [64_u16, 56, 2, 0, 0, 0] {
        file.extend(number.to_le_bytes());
    }
    let (note_at, code_at) = (256_u64, 4096_u64);
    let mut note = Vec::new();
    for number in [4_u32, 8, 18] {
        note.extend(number.to_le_bytes());
    }
    note.extend(b"Xen\0");
    note.extend(PROGRAM.to_le_bytes());
    let mut segment = |kind: u32, flags: u32, at: u64, address: u64, length: usize, align: u64| {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for number in [at, address, address, length as u64, length as u64, align] {
            file.extend(number.to_le_bytes());
        }
    };
    segment(1, 7, code_at, PROGRAM, code.len(), 4096);
    segment(4, 4, note_at, 0, note.len(), 4);
    file.resize(note_at as usize, 0);
    file.extend(note);
    file.resize(code_at as usize, 0);
    file.extend(code);
    let path = directory.join("walker");
    std::fs::write(&path, file).unwrap();
    path
}
