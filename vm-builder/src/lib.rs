//! Container image to bootable VM disk, without a daemon.
