//! The power button: an input device that sends `KEY_POWER`.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// `KEY_POWER` of `linux/input-event-codes.h`.
const KEY_POWER: usize = 116;
/// `EV_KEY`.
const KEY_EVENT: u16 = 1;
/// `struct input_event` on 64-bit machines: two words of time, type, code, value.
const EVENT_SIZE: usize = 24;

/// An open power button; reading never blocks.
#[derive(Debug)]
pub struct PowerButton {
    /// Name such as `event0`.
    pub name: String,
    pub file: File,
}

/// Opens every power button among the input devices, except those in `known`, by name.
pub fn open_new(known: &[&str]) -> Vec<PowerButton> {
    let Ok(entries) = fs::read_dir("/sys/class/input") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| name.starts_with("event") && !known.contains(&name.as_str()))
        .filter(|name| {
            let keys = Path::new("/sys/class/input").join(name).join("device/capabilities/key");
            fs::read_to_string(keys).is_ok_and(|mask| has_key(&mask, KEY_POWER))
        })
        .filter_map(|name| {
            let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
            let node = Path::new("/dev/input").join(&name);
            let file = OpenOptions::new().read(true).custom_flags(flags).open(node).ok()?;
            Some(PowerButton { name, file })
        })
        .collect()
}

impl PowerButton {
    /// Reads what has happened: whether the button was pressed, and whether the device is still there.
    pub fn read(&mut self) -> (bool, bool) {
        let mut pressed = false;
        let mut buffer = [0; EVENT_SIZE * 16];
        loop {
            match self.file.read(&mut buffer) {
                Ok(0) => return (pressed, false),
                Ok(length) => pressed |= was_pressed(buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return (pressed, error.kind() == std::io::ErrorKind::WouldBlock),
            }
        }
    }
}

/// Whether a mask as sysfs prints it (words of 64 bits in hexadecimal, the highest first) has a bit set.
fn has_key(mask: &str, key: usize) -> bool {
    let word = mask.split_whitespace().rev().nth(key / 64);
    word.and_then(|word| u64::from_str_radix(word, 16).ok()).is_some_and(|word| word >> (key % 64) & 1 == 1)
}

fn was_pressed(bytes: &[u8]) -> bool {
    bytes.chunks_exact(EVENT_SIZE).any(|event| {
        let [.., t0, t1, c0, c1, v0, v1, v2, v3] = event else { return false };
        u16::from_ne_bytes([*t0, *t1]) == KEY_EVENT
            && usize::from(u16::from_ne_bytes([*c0, *c1])) == KEY_POWER
            && i32::from_ne_bytes([*v0, *v1, *v2, *v3]) == 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_from_the_right() {
        assert!(has_key("10000000000000 0\n", KEY_POWER));
        assert!(!has_key("10000000000000", KEY_POWER));
        assert!(!has_key("zz 0", KEY_POWER) && !has_key("", KEY_POWER));
    }

    #[test]
    fn only_the_press_counts() {
        let mut event = [0; EVENT_SIZE];
        event[16] = 1;
        event[18] = 116;
        assert!(!was_pressed(&event));
        event[20] = 1;
        assert!(was_pressed(&event) && !was_pressed(&event[..23]));
        event[18] = 30;
        assert!(!was_pressed(&event));
    }
}
