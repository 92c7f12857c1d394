//! monitor_peer.
