//! A discrete-event world around the cores: thousands of VMs and nodes, faults chosen by a seed, invariants checked after
//! every event.
