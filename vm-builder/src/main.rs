//! `vm-builder`: the flags of the tool that it replaces.

fn main() {}
