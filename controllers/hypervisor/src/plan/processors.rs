//! ACPI's table of processors (MADT) with all CPUs there can be, for guests whose kernel does not know that they are guests.
//!
//! In QEMU's own table CPUs that are not plugged are not enabled. Linux from 6.9 on never takes such CPUs
//! (`Allowing 1 present CPUs plus 0 hotplug CPUs`, later `Unable to map lapic to logical cpu number`), unless it knows its
//! hypervisor; it does not know QEMU's translator. In this second table, which `acpi_apic_instance=2` chooses, all are
//! enabled, so the kernel keeps a number for each, `maxcpus=` leaves those to come off line, and the daemon in the guest
//! takes them on line once they are plugged.

/// Version of the table, the same as that of QEMU's own.
pub(super) const REVISION: u32 = 1;
/// Which of the tables the kernel is to use: QEMU puts those of its arguments behind its own.
pub(super) const INSTANCE: u32 = 2;

/// Where CPUs find their own interrupt controller.
const LOCAL_CONTROLLER: u32 = 0xFEE0_0000;
/// Where the board's interrupt controller is.
const BOARD_CONTROLLER: u32 = 0xFEC0_0000;
/// The board has two old interrupt controllers as well.
const OLD_CONTROLLERS: u32 = 1;
/// Interrupts of PCI devices, which are level-triggered and active high on QEMU's boards.
const PCI_INTERRUPTS: [u8; 4] = [5, 9, 10, 11];
/// See [`PCI_INTERRUPTS`].
const LEVEL_HIGH: u16 = 0xD;

/// The table without its header, which QEMU adds. A CPU has the same number as core, in ACPI and as interrupt controller:
/// that is so on boards with one socket and one thread a core.
pub(crate) fn table(cpus: u32) -> Vec<u8> {
    let mut table = Vec::new();
    table.extend(LOCAL_CONTROLLER.to_le_bytes());
    table.extend(OLD_CONTROLLERS.to_le_bytes());
    // At most MOST_CPUS, so each number fits.
    for number in (0..=u8::MAX - 1).take(usize::try_from(cpus).unwrap_or(usize::MAX)) {
        table.extend([0, 8, number, number, 1, 0, 0, 0]);
    }
    table.extend([1, 12, 0, 0]);
    table.extend(BOARD_CONTROLLER.to_le_bytes());
    table.extend([0; 4]);
    // The timer's interrupt arrives at another input.
    interrupt(&mut table, 0, 2, 0);
    for number in PCI_INTERRUPTS {
        interrupt(&mut table, number, number, LEVEL_HIGH);
    }
    // Interrupts that cannot be masked: all CPUs, second input.
    table.extend([4, 6, 0xFF, 0, 0, 1]);
    table
}

/// An interrupt of the old controllers that is something else at the board's.
fn interrupt(table: &mut Vec<u8>, old: u8, new: u8, flags: u16) {
    table.extend([2, 10, 0, old]);
    table.extend(u32::from(new).to_le_bytes());
    table.extend(flags.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::MOST_CPUS;

    /// Kind and bytes of each entry.
    fn entries(table: &[u8]) -> Vec<(u8, &[u8])> {
        let mut rest = &table[8..];
        let mut found = vec![];
        while let [kind, length, ..] = *rest {
            let (entry, more) = rest.split_at(length.into());
            found.push((kind, entry));
            rest = more;
        }
        assert!(rest.is_empty());
        found
    }

    #[test]
    fn all_cpus_are_enabled_under_their_own_numbers() {
        for count in [1, 2, 4, MOST_CPUS] {
            let table = table(count);
            let entries = entries(&table);
            let cpus: Vec<&[u8]> =
                entries.iter().filter(|(kind, _)| *kind == 0).map(|(_, entry)| *entry).collect();
            assert_eq!(cpus.len(), count as usize);
            for (number, cpu) in cpus.iter().enumerate() {
                assert_eq!(**cpu, [0, 8, number as u8, number as u8, 1, 0, 0, 0]);
            }
            assert_eq!(entries.iter().filter(|(kind, _)| *kind == 1).count(), 1);
            assert_eq!(entries.iter().filter(|(kind, _)| *kind == 2).count(), 5);
        }
    }
}
