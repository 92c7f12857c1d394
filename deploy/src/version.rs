//! Versions of Kubernetes and of ours, compared.

/// Major, minor and patch.
pub type Release = (u64, u64, u64);

/// The release that a version such as `v1.36.2+k3s1` or `0.1.0-rc1` belongs to; none if it is not of that form.
#[must_use]
pub fn release(text: &str) -> Option<Release> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let mut parts = text.get(..end)?.split('.').map(|part| part.parse::<u64>().ok());
    let (major, minor) = (parts.next()??, parts.next()??);
    let patch = match parts.next() {
        Some(patch) => patch?,
        None => 0,
    };
    parts.next().is_none().then_some((major, minor, patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_distributions_are_those_of_their_release() {
        assert_eq!(release("v1.36.2+k3s1"), Some((1, 36, 2)));
        assert_eq!(release("v1.33.5-gke.100"), Some((1, 33, 5)));
        assert_eq!(release("0.1.0"), Some((0, 1, 0)));
        assert_eq!(release("1.31"), Some((1, 31, 0)));
        for bad in ["", "v", "latest", "1", "1..2", "1.2.3.4", "99999999999999999999.1"] {
            assert_eq!(release(bad), None, "{bad}");
        }
    }
}
