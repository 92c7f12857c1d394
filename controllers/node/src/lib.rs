//! A node on this machine: runs runner pods as processes, in network namespaces if it may.
