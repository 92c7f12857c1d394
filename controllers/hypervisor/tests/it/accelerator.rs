//! The probe on this machine: whatever it finds, it says so in time.

use neonvm_hypervisor::accelerator::probe;

#[test]
fn the_probe_ends_with_an_answer() {
    if !std::path::Path::new("/dev/kvm").exists() {
        return println!("SKIP probe: there is no /dev/kvm");
    }
    let result = probe::run_in_this_process();
    println!("{}", result.to_line());
    assert!(!result.reason.is_empty());
    let back: probe::ProbeResult = serde_json::from_str(&result.to_line()).unwrap();
    assert_eq!(back, result);
}
