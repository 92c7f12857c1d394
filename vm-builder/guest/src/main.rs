//! `neonvm-guest`.

fn main() {}
