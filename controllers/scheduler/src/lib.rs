//! Binds pods to nodes on clusters without a scheduler of their own.
