//! Scales the VMs of one node by their load. Decisions are `neonvm-core-scaling`'s; this crate fetches metrics, speaks to
//! the scheduler and to the monitors in the guests, and patches VMs.
