//! Which frames wake a suspended guest, as a program of classic BPF that the kernel runs on its tap device: what counts waits there for
//! the guest, all else is dropped before it waits.
//!
//! Counts what is sent to the guest alone: IPv4 and IPv6, which has passed the rules of the pod's network by then. On the pod's link the kernel knows
//! the guest's hardware address for good, so it sends no ARP before. Who searches for the guest by ARP (overlay) or by a solicitation of IPv6 has something for
//! it, and only the guest answers. Other broadcasts and multicasts do not count.

use std::net::Ipv4Addr;

use neonvm_hypervisor::tap::Instruction;

/// Codes of `linux/bpf_common.h`: load a byte, a half word, a word of the frame; compare with a number; return one.
const BYTE: u16 = 0x30;
const HALF: u16 = 0x28;
const WORD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

const IPV4: u32 = 0x0800;
const ARP: u32 = 0x0806;
const IPV6: u32 = 0x86dd;
/// All of the frame.
const PASS: u32 = u32::MAX;
const DROP: u32 = 0;

/// Where the program goes on.
#[derive(Clone, Copy)]
enum To {
    Next,
    Step(u8),
    Pass,
    Drop,
}

#[derive(Clone, Copy)]
enum Step {
    /// Load what is at this offset.
    Load(u16, u32),
    /// Whether that is equal to a number; where it goes on if so, and if not.
    Is(u32, To, To),
}

/// The program for an interface with this hardware address; `overlay`: its address there.
pub(crate) fn program(hardware: [u8; 6], overlay: Option<Ipv4Addr>) -> Vec<Instruction> {
    use Step::{Is, Load};
    use To::{Drop, Next, Pass};
    let [a, b, c, d, e, f] = hardware;
    let (high, low) = (u32::from_be_bytes([a, b, c, d]), u32::from(u16::from_be_bytes([e, f])));
    let (search, address) = overlay.map_or((Drop, 0), |address| (To::Step(16), u32::from(address)));
    assemble(&[
        Load(HALF, 12),
        Is(IPV4, To::Step(4), Next),
        Is(IPV6, To::Step(8), Next),
        Is(ARP, search, Drop),
        // 4, IPv4: to the guest alone.
        Load(WORD, 0),
        Is(high, Next, Drop),
        Load(HALF, 4),
        Is(low, Pass, Drop),
        // 8, IPv6: to the guest alone.
        Load(WORD, 0),
        Is(high, Next, To::Step(12)),
        Load(HALF, 4),
        Is(low, Pass, Drop),
        // 12, or a solicitation: ICMPv6, type 135.
        Load(BYTE, 20),
        Is(58, Next, Drop),
        Load(BYTE, 54),
        Is(135, Pass, Drop),
        // 16, ARP: a request for the guest's address.
        Load(HALF, 20),
        Is(1, Next, Drop),
        Load(WORD, 38),
        Is(address, Pass, Drop),
    ])
}

/// The program with which no frame passes.
pub(crate) fn nothing() -> Vec<Instruction> {
    vec![Instruction { code: RETURN, jumps: (0, 0), value: DROP }]
}

/// The instructions, with the two ends behind them.
fn assemble(steps: &[Step]) -> Vec<Instruction> {
    let end = u8::try_from(steps.len()).unwrap_or(u8::MAX);
    let instruction = |(at, step): (u8, &Step)| match *step {
        Step::Load(code, value) => Instruction { code, jumps: (0, 0), value },
        Step::Is(value, yes, no) => {
            let skip = |to: To| match to {
                To::Next => 0,
                To::Step(step) => step.saturating_sub(at + 1),
                To::Pass => end.saturating_sub(at + 1),
                To::Drop => end.saturating_sub(at),
            };
            Instruction { code: EQUAL, jumps: (skip(yes), skip(no)), value }
        }
    };
    let give = |value| Instruction { code: RETURN, jumps: (0, 0), value };
    (0..end).zip(steps).map(instruction).chain([give(PASS), give(DROP)]).collect()
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::lab;
    use proptest::prelude::*;

    use super::*;

    const GUEST: [u8; 6] = [2, 0, 0, 0, 1, 7];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 1, 9];
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 7);

    /// What the kernel does with a program of these instructions (`Documentation/networking/filter.rst`).
    fn passes(program: &[Instruction], frame: &[u8]) -> bool {
        let (mut at, mut value) = (0, 0_u32);
        loop {
            let instruction = program[at];
            at += 1;
            let offset = instruction.value as usize;
            let width = match instruction.code {
                BYTE => 1,
                HALF => 2,
                WORD => 4,
                EQUAL => {
                    let (yes, no) = instruction.jumps;
                    at += usize::from(if value == instruction.value { yes } else { no });
                    continue;
                }
                RETURN => return instruction.value != 0,
                other => panic!("{other}"),
            };
            let Some(bytes) = frame.get(offset..offset + width) else { return false };
            value = bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        }
    }

    fn ipv4(to: [u8; 6]) -> Vec<u8> {
        lab::packet((OTHER, to), (Ipv4Addr::new(10, 9, 9, 9), ADDRESS), 17, 5000, b"x")
    }

    fn arp(operation: u8, target: Ipv4Addr, to: [u8; 6]) -> Vec<u8> {
        let mut frame = [to.as_slice(), &OTHER, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation], &OTHER].concat();
        frame.extend([10, 9, 9, 9, 0, 0, 0, 0, 0, 0]);
        frame.extend(target.octets());
        frame
    }

    fn ipv6(to: [u8; 6], next: u8, kind: u8) -> Vec<u8> {
        let mut frame = [to.as_slice(), &OTHER, &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, next, 255]].concat();
        frame.resize(54, 0);
        frame.push(kind);
        frame
    }

    const ALL: [u8; 6] = [0xff; 6];
    const MULTICAST: [u8; 6] = [0x33, 0x33, 0xff, 0, 1, 7];

    #[test]
    fn what_is_for_the_guest_wakes_it_and_nothing_else() {
        let overlay = program(GUEST, Some(ADDRESS));
        let link = program(GUEST, None);
        for (frame, on_link, on_overlay) in [
            (ipv4(GUEST), true, true),
            (ipv4(OTHER), false, false),
            (ipv4(ALL), false, false),
            (arp(1, ADDRESS, ALL), false, true),
            (arp(1, ADDRESS, GUEST), false, true),
            (arp(2, ADDRESS, GUEST), false, false),
            (arp(1, Ipv4Addr::new(10, 9, 9, 8), ALL), false, false),
            (ipv6(GUEST, 6, 0), true, true),
            (ipv6(OTHER, 6, 0), false, false),
            (ipv6(MULTICAST, 58, 135), true, true),
            (ipv6(MULTICAST, 58, 134), false, false),
            (ipv6(MULTICAST, 17, 135), false, false),
            (Vec::new(), false, false),
            ([GUEST, OTHER].concat(), false, false),
        ] {
            assert_eq!(
                (passes(&link, &frame), passes(&overlay, &frame)),
                (on_link, on_overlay),
                "{frame:x?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_frame_is_judged(frame in proptest::collection::vec(any::<u8>(), 0..80)) {
            let (link, overlay) = (program(GUEST, None), program(GUEST, Some(ADDRESS)));
            let for_guest = frame.starts_with(&GUEST);
            // What wakes on the pod's link wakes on the overlay; only solicitations of IPv6 are not for the guest alone.
            prop_assert!(!passes(&link, &frame) || passes(&overlay, &frame));
            prop_assert!(!passes(&link, &frame) || for_guest || frame.get(54) == Some(&135));
        }
    }
}
