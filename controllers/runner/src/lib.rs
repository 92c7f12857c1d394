//! One VM: prepares disks and network, runs QEMU, serves the runner interface.
