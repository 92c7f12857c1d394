//! End-to-end lanes are the test binaries beside this file; they run programs and know no crate of ours.
