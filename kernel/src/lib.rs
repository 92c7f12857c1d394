//! The guest kernel.
