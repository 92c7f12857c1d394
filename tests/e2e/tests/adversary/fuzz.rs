//! Fuzzers over everything that a role reaches: `nobody`, who has no rights, `tenant`, who has those of an author in one
//! namespace, and `guest`, who is root in a VM. In the gate they repeat the rounds of `fuzz-seeds.txt`; the lane `fuzz` of
//! the soak adds fresh ones.

mod guest;
mod health;
mod nobody;
mod objects;
mod tenant;
