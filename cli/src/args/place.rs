//! Which cluster and which namespace: every command takes these flags, as with kubectl.

use std::path::PathBuf;

use super::names::Names;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct Place {
    /// Namespace [default: that of the context, else default]
    #[arg(short, long, global = true, value_name = "NAME", add = Names::Namespaces)]
    pub namespace: Option<String>,
    /// All namespaces, where objects are listed
    #[arg(short = 'A', long, global = true)]
    pub all_namespaces: bool,
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's service account]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME", add = Names::Contexts)]
    pub context: Option<String>,
    /// Act as this user, which needs the right to impersonate; a service account is system:serviceaccount:NAMESPACE:NAME
    #[arg(long = "as", global = true, value_name = "USER")]
    pub as_user: Option<String>,
    /// Act as a member of this group; can be repeated, requires --as
    #[arg(long, global = true, value_name = "GROUP")]
    pub as_group: Vec<String>,
    /// Timeout of one request, such as 500ms, 30s or 5m
    #[arg(long, global = true, value_name = "DURATION")]
    pub request_timeout: Option<String>,
}

impl Place {
    /// Whether a flag names the cluster.
    #[must_use]
    pub fn names_cluster(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// The flags as words, for this program when it starts itself.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let kubeconfig = self.kubeconfig.as_ref().map(|path| path.display().to_string());
        let flags = [
            ("--namespace", self.namespace.clone()),
            ("--kubeconfig", kubeconfig),
            ("--context", self.context.clone()),
            ("--as", self.as_user.clone()),
            ("--request-timeout", self.request_timeout.clone()),
        ];
        let groups = self.as_group.iter().map(|group| ("--as-group", Some(group.clone())));
        let given = flags.into_iter().chain(groups).filter_map(|(flag, value)| Some((flag, value?)));
        given.flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }
}
