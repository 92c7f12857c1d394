//! The fragments of `kernel/config`, as part of the program.

/// Name and text of each, in order.
pub const FRAGMENTS: [(&str, &str); 7] = [
    ("10-base.config", include_str!("../../config/10-base.config")),
    ("20-virtual-machine.config", include_str!("../../config/20-virtual-machine.config")),
    ("30-scaling.config", include_str!("../../config/30-scaling.config")),
    ("40-storage.config", include_str!("../../config/40-storage.config")),
    ("50-network.config", include_str!("../../config/50-network.config")),
    ("60-isolation.config", include_str!("../../config/60-isolation.config")),
    ("90-off.config", include_str!("../../config/90-off.config")),
];
