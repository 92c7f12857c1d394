//! The monitor's decisions inside one guest.
