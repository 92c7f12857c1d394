//! The program of each target for libFuzzer; its name is the target's.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| neonvm_fuzz::run(env!("CARGO_BIN_NAME"), bytes));
