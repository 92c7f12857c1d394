//! Reconciles virtual machines; serves the webhooks.
