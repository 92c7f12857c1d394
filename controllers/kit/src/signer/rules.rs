//! Which requester gets which certificate of the internal authority. Pure: the API server has authenticated the requester.
//!
//! Of a request the common name and the usages choose the rule. Names, organisation, purpose and life come from the rule.

use std::collections::BTreeMap;
use std::fmt;

use neonvm_api::names::{
    AGENT_ACCOUNT, NODE_CLAIM, POD_AUTOSCALER_ACCOUNT, SCHEDULER_ACCOUNT, UPSTREAM_AGENTS_ACCOUNT,
    UPSTREAM_NAMESPACE,
};

use crate::authority::{
    AGENTS, OPERATORS, SCHEDULER_NAME, SCHEDULERS, UPSTREAM_AGENTS as FORWARDERS, agent_common_name,
    agent_name, node_of_agent,
};
use crate::ca::{Purpose, Subject};

/// Longest life of a service's certificate, in seconds.
pub const SERVICE_LIFE: i64 = 24 * 3600;
/// The same of an operator's.
pub const OPERATOR_LIFE: i64 = 8 * 3600;
/// Common name of the scheduler's request.
pub const SCHEDULER: &str = "neonvm-scheduler";
/// Common name of the request of a kube-scheduler that speaks TLS with the extender.
pub const KUBE_SCHEDULER: &str = "neonvm-kube-scheduler";
/// Common name of the request of a pod-autoscaler that serves webhooks.
pub const POD_AUTOSCALER: &str = POD_AUTOSCALER_ACCOUNT;
/// Common name of the request of what forwards requests of upstream's agents.
pub const UPSTREAM_AGENTS: &str = UPSTREAM_AGENTS_ACCOUNT;
/// Common name of an operator's request.
pub const OPERATOR: &str = "neonvm-operator";

/// Members may do everything with the cluster anyway.
const MASTERS: &str = "system:masters";
/// Longest name of a node of which names of certificates are made.
const LONGEST_NODE: usize = 200;

/// A request, as the API server shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub username: String,
    pub groups: Vec<String>,
    /// Further attributes of that user.
    pub extra: BTreeMap<String, Vec<String>>,
    /// What the certificate shall be used for.
    pub usages: Vec<String>,
    /// Common name in the request.
    pub common_name: String,
    /// Life that is requested, in seconds.
    pub seconds: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The subject and its usages.
    pub subject: Subject,
    /// Its life in seconds.
    pub seconds: i64,
}

/// Why nothing is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The rule that the request came to.
    pub rule: &'static str,
    /// What it is short of.
    pub why: String,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {:?}: {}", self.rule, self.why)
    }
}

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Grant(Grant),
    /// It is signed if the requester has the right of operators, which an access review decides.
    IfOperator(Grant),
    Deny(Denial),
}

/// Judges a request. `namespace` is that of the services.
#[must_use]
pub fn judge(namespace: &str, asked: &Asked) -> Verdict {
    let judged = match purpose(&asked.usages) {
        Err(why) => Err(Denial { rule: "usages", why }),
        Ok(purpose) => match node_of_agent(&asked.common_name) {
            Some(node) => agent(namespace, asked, node, purpose).map(Verdict::Grant),
            None => match asked.common_name.as_str() {
                SCHEDULER => scheduler(namespace, asked, purpose).map(Verdict::Grant),
                KUBE_SCHEDULER => kube_scheduler(namespace, asked, purpose).map(Verdict::Grant),
                UPSTREAM_AGENTS => upstream_agents(asked, purpose).map(Verdict::Grant),
                POD_AUTOSCALER => pod_autoscaler(namespace, asked, purpose).map(Verdict::Grant),
                OPERATOR => operator(asked, purpose).map(Verdict::IfOperator),
                other => {
                    Err(Denial { rule: "names", why: format!("no client gets a certificate for {other:?}") })
                }
            },
        },
    };
    judged.unwrap_or_else(Verdict::Deny)
}

/// The denial of a requester without the right of operators.
#[must_use]
pub fn not_an_operator(username: &str) -> Denial {
    let why = format!("{username} may not {INSPECT} the signer {OPERATOR_SIGNER}");
    Denial { rule: "operators", why }
}

/// Name of the signer that requests are for.
pub const SIGNER: &str = "vm.neon.tech/internal";
/// Operators are users that may do [`INSPECT`] with the `signers` of this name.
pub const OPERATOR_SIGNER: &str = "vm.neon.tech/operators";
/// The verb of that right.
pub const INSPECT: &str = "inspect";

/// One purpose, and nothing besides it but what TLS does with a key.
fn purpose(usages: &[String]) -> Result<Purpose, String> {
    let mut found = Vec::new();
    for usage in usages {
        match usage.as_str() {
            "client auth" => found.push(Purpose::Client),
            "server auth" => found.push(Purpose::Server),
            "digital signature" | "key encipherment" => {}
            other => return Err(format!("{other:?} is for no certificate of ours")),
        }
    }
    match found.as_slice() {
        [one] => Ok(*one),
        _ => Err("exactly one of \"client auth\" and \"server auth\" is needed".to_owned()),
    }
}

/// Whether the requester is this service account, or an administrator that does not use a service account's token.
fn is_service(namespace: &str, account: &str, asked: &Asked) -> bool {
    asked.username == format!("system:serviceaccount:{namespace}:{account}") || is_master(asked)
}

/// On a local cluster the services are the administrator.
fn is_master(asked: &Asked) -> bool {
    !asked.extra.contains_key(NODE_CLAIM) && asked.groups.iter().any(|group| group == MASTERS)
}

fn granted(asked: &Asked, longest: i64, subject: Subject) -> Grant {
    let seconds = asked.seconds.filter(|seconds| *seconds > 0).unwrap_or(longest).min(longest);
    Grant { subject, seconds }
}

fn agent(namespace: &str, asked: &Asked, node: &str, purpose: Purpose) -> Result<Grant, Denial> {
    let deny = |why: String| Err(Denial { rule: "agents", why });
    if !is_node(node) {
        return deny(format!("{node:?} is not the name of a node"));
    }
    if !is_service(namespace, AGENT_ACCOUNT, asked) {
        return deny(format!("{} is not the service account neonvm-agent", asked.username));
    }
    match asked.extra.get(NODE_CLAIM).map(Vec::as_slice) {
        Some([own]) if own == node => {}
        None if is_master(asked) => {}
        Some(own) => return deny(format!("the token is of a pod on {}, not on {node}", own.join(", "))),
        None => return deny("the token is bound to no pod on a node".to_owned()),
    }
    let common_name = agent_common_name(node);
    let subject = match purpose {
        Purpose::Client => Subject::client(common_name, AGENTS),
        Purpose::Server => Subject::server(common_name, vec![agent_name(node)]),
    };
    Ok(granted(asked, SERVICE_LIFE, subject))
}

fn is_node(name: &str) -> bool {
    (1..=LONGEST_NODE).contains(&name.len())
        && name.split('.').all(|label| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
        })
}

fn scheduler(namespace: &str, asked: &Asked, purpose: Purpose) -> Result<Grant, Denial> {
    let deny = |why: String| Err(Denial { rule: "schedulers", why });
    if !is_service(namespace, SCHEDULER_ACCOUNT, asked) {
        return deny(format!("{} is not the service account neonvm-scheduler", asked.username));
    }
    if purpose != Purpose::Server {
        return deny("the scheduler is a server".to_owned());
    }
    let names = vec![SCHEDULER_NAME.to_owned(), "localhost".to_owned()];
    Ok(granted(asked, SERVICE_LIFE, Subject::server(SCHEDULER_NAME.to_owned(), names)))
}

fn kube_scheduler(namespace: &str, asked: &Asked, purpose: Purpose) -> Result<Grant, Denial> {
    let deny = |why: String| Err(Denial { rule: "kube-schedulers", why });
    if !is_service(namespace, SCHEDULER_ACCOUNT, asked) {
        return deny(format!("{} is not the service account neonvm-scheduler", asked.username));
    }
    if purpose != Purpose::Client {
        return deny("a kube-scheduler is a client".to_owned());
    }
    Ok(granted(asked, SERVICE_LIFE, Subject::client(KUBE_SCHEDULER.to_owned(), SCHEDULERS)))
}

/// Its account is in the namespace of upstream's scheduler, which belongs to administrators.
fn upstream_agents(asked: &Asked, purpose: Purpose) -> Result<Grant, Denial> {
    let deny = |why: String| Err(Denial { rule: "upstream agents", why });
    if !is_service(UPSTREAM_NAMESPACE, UPSTREAM_AGENTS_ACCOUNT, asked) {
        let account = format!("{UPSTREAM_NAMESPACE}:{UPSTREAM_AGENTS_ACCOUNT}");
        return deny(format!("{} is not the service account {account}", asked.username));
    }
    if purpose != Purpose::Client {
        return deny("what forwards requests is a client".to_owned());
    }
    Ok(granted(asked, SERVICE_LIFE, Subject::client(UPSTREAM_AGENTS.to_owned(), FORWARDERS)))
}

fn pod_autoscaler(namespace: &str, asked: &Asked, purpose: Purpose) -> Result<Grant, Denial> {
    let deny = |why: String| Err(Denial { rule: "pod-autoscalers", why });
    if !is_service(namespace, POD_AUTOSCALER_ACCOUNT, asked) {
        return deny(format!("{} is not the service account {POD_AUTOSCALER_ACCOUNT}", asked.username));
    }
    if purpose != Purpose::Server {
        return deny("a pod-autoscaler is a server".to_owned());
    }
    // As the API server names its Service.
    let name = format!("{POD_AUTOSCALER_ACCOUNT}.{namespace}.svc");
    let names = vec![format!("{name}.cluster.local"), name];
    Ok(granted(asked, SERVICE_LIFE, Subject::server(POD_AUTOSCALER.to_owned(), names)))
}

fn operator(asked: &Asked, purpose: Purpose) -> Result<Grant, Denial> {
    if purpose != Purpose::Client {
        return Err(Denial { rule: "operators", why: "operators are clients".to_owned() });
    }
    // The user's name is for logs. It gives no rights.
    let common_name = format!("{OPERATOR}:{}", asked.username);
    Ok(granted(asked, OPERATOR_LIFE, Subject::client(common_name, OPERATORS)))
}

#[cfg(test)]
mod tests;
