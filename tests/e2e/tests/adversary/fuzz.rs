//! Fuzzers over everything that a role reaches: `anonymous` has no rights, `tenant` has those of an author in one
//! namespace, and `guest` is root in a VM. In the gate they repeat the rounds of `fuzz-seeds.txt`; the lane `fuzz` of
//! the soak adds fresh ones.

mod anonymous;
mod guest;
mod health;
mod objects;
mod tenant;
