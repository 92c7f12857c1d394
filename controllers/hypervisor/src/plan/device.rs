//! Addresses and values of devices.

use std::fmt::Write as _;

/// Slots of the root bus. Slot 0 is the host bridge and 0x1f the chip set's own.
pub(super) const SERIAL_SLOT: usize = 0x2;
pub(super) const RANDOM_SLOT: usize = 0x3;
pub(super) const MEMORY_SLOT: usize = 0x4;
pub(super) const PANIC_SLOT: usize = 0x5;
const FIRST_INTERFACE_SLOT: usize = 0x8;
const FIRST_DISK_SLOT: usize = 0x10;

/// A value inside a list of options: QEMU reads two commas as one.
pub(super) fn value(text: &str) -> String {
    text.replace(',', ",,")
}

/// Address of a single device in a slot.
pub(super) fn slot(slot: usize) -> String {
    format!("addr={slot:#x}")
}

pub(super) fn interface(index: usize) -> String {
    slot(FIRST_INTERFACE_SLOT + index)
}

/// Address of a disk: eight share a slot, so that there is room for many. Guests find them in this order.
pub(super) fn disk(index: usize) -> String {
    let (slot, function) = (FIRST_DISK_SLOT + index / 8, index % 8);
    let mut text = format!("addr={slot:#x}.{function:#x}");
    if function == 0 {
        text.push_str(",multifunction=on");
    }
    text
}

/// A hardware address as text.
pub(super) fn mac(address: [u8; 6]) -> String {
    let mut text = String::with_capacity(17);
    for (index, byte) in address.iter().enumerate() {
        let colon = if index == 0 { "" } else { ":" };
        let _ = write!(text, "{colon}{byte:02x}");
    }
    text
}
