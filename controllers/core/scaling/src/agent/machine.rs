//! machine.
