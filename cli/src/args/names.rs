//! Which names an argument takes: completion reads it.

use clap::builder::ArgExt;
use kube::Resource as _;
use neonvm_api::PodAutoscaler;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// VMs of the namespace.
    Vms,
    /// Migrations of the namespace.
    Migrations,
    /// Pod autoscalers of the namespace.
    PodAutoscalers,
    /// Local clusters of this host.
    Clusters,
    /// Nodes of the cluster.
    Nodes,
    /// Namespaces of the cluster.
    Namespaces,
    /// Contexts of the kubeconfig.
    Contexts,
    /// Images of the local store.
    Images,
    /// Settings of this program.
    Settings,
}

impl ArgExt for Names {}

/// A VM as people write it: its name, or `KIND/NAME` as `-o name` prints it and kubectl takes it.
///
/// # Errors
/// If the text names another kind.
pub fn vm(text: &str) -> Result<String, String> {
    of_kind(text, "VM", &["vm", "vms", "virtualmachine", "virtualmachines", "neonvm"], "vm.neon.tech")
}

/// A migration, as [`vm`].
///
/// # Errors
/// If the text names another kind.
pub fn migration(text: &str) -> Result<String, String> {
    let kinds =
        ["vmm", "migration", "migrations", "virtualmachinemigration", "virtualmachinemigrations", "neonvmm"];
    of_kind(text, "migration", &kinds, "vm.neon.tech")
}

/// A pod autoscaler, as [`vm`].
///
/// # Errors
/// If the text names another kind.
pub fn podautoscaler(text: &str) -> Result<String, String> {
    of_kind(
        text,
        "pod autoscaler",
        &["pa", "podautoscaler", "podautoscalers"],
        PodAutoscaler::group(&()).as_ref(),
    )
}

/// An image by name or digest, or as `-o name` prints it: `image/sha256:…`.
///
/// # Errors
/// None: another text with a slash is the name of an image.
pub fn image(text: &str) -> Result<String, String> {
    Ok(match text.strip_prefix("image/") {
        Some(digest) if digest.starts_with("sha256:") => digest.to_owned(),
        _ => text.to_owned(),
    })
}

/// The name of `KIND/NAME` or `KIND.GROUP/NAME`.
fn of_kind(text: &str, what: &str, kinds: &[&str], group: &str) -> Result<String, String> {
    let Some((kind, name)) = text.split_once('/') else { return Ok(text.to_owned()) };
    let short = kind.strip_suffix(group).and_then(|kind| kind.strip_suffix('.')).unwrap_or(kind);
    if kinds.iter().any(|known| known.eq_ignore_ascii_case(short)) && !name.is_empty() && !name.contains('/')
    {
        return Ok(name.to_owned());
    }
    let first = kinds.first().copied().unwrap_or_default();
    Err(format!("it names no {what}; write NAME or {first}/NAME"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_o_name_prints_is_taken() {
        for text in [
            "pg",
            "vm/pg",
            "virtualmachine/pg",
            "virtualmachine.vm.neon.tech/pg",
            "virtualmachines.vm.neon.tech/pg",
        ] {
            assert_eq!(vm(text).as_deref(), Ok("pg"), "{text}");
        }
        assert_eq!(migration("virtualmachinemigration/pg-1").as_deref(), Ok("pg-1"));
        let group = format!("podautoscaler.{}/web", PodAutoscaler::group(&()));
        assert_eq!(podautoscaler(&group).as_deref(), Ok("web"));
        assert_eq!(image("image/sha256:ab").as_deref(), Ok("sha256:ab"));
        assert_eq!(image("image/pg:1").as_deref(), Ok("image/pg:1"));
        for text in ["migration/pg", "vm/", "vm/a/b", "/pg", "virtualmachine.example.com/pg"] {
            assert!(vm(text).unwrap_err().contains("vm/NAME"), "{text}");
        }
    }
}
