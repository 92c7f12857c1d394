//! Sizes as people write them.

/// Reads `1073741824`, `1Gi`, `1GiB`, `1G`: all units are binary, as those of `mkfs` are. `None` if it is no size,
/// or more than 8 EiB.
pub fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let shift = match unit {
        "" | "B" => 0,
        "k" | "K" | "Ki" | "KiB" => 10,
        "m" | "M" | "Mi" | "MiB" => 20,
        "g" | "G" | "Gi" | "GiB" => 30,
        "t" | "T" | "Ti" | "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes <= 1 << 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_or_refused() {
        for (text, bytes) in [("0", 0), ("512", 512), ("1G", 1 << 30), ("1Gi", 1 << 30), ("3MiB", 3 << 20)] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1.5G", "1X", "99999999999999999999", "9999999999T", "1 G"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
