//! QEMU: command line, process, QMP, CPU and memory, disks, accelerator probe, cgroups.
//!
//! For: the runner, one VM a process. The only crate that touches QEMU. Owns: [`plan`] (pure: what a machine is →
//! arguments), [`qmp`] (the monitor protocol over any stream), [`machine`] (process and session), [`accelerator`] (can
//! KVM really run a guest), [`cgroup`] (CPU limit of vCPU threads), [`disks`] (files behind disks), [`installation`]
//! (which QEMU is there), [`cpu_model`] (features of a guest's CPU), [`tap`] (network devices). May not: use Kubernetes, the network beyond a descriptor, or the guest's protocols.
//!
//! QEMU runs with nothing to open: disks, taps, sockets and the kernel are inherited descriptors, so that it can be a
//! user without rights, in a seccomp sandbox and a domain of [`landlock`], that dies with its parent.

pub mod accelerator;
mod architecture;
pub mod cgroup;
pub mod cpu_model;
pub mod disks;
pub mod installation;
pub mod landlock;
pub mod machine;
pub mod patience;
pub mod plan;
pub mod qmp;
pub mod rights;
mod sys;
pub mod tap;
