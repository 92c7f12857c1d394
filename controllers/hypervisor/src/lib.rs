//! QEMU: command line, process, QMP, CPU and memory, disks, accelerator probe, cgroups.
