//! Whether the way to an API server leads through a proxy.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use kube::Config;

/// The proxy for a server. `kube` has looked into the kubeconfig and then into the environment, but not whether the server is one
/// that the environment excepts.
pub(super) fn chosen(config: &Config, environment: &dyn Fn(&str) -> Option<String>) -> Option<Intercept> {
    let proxy = config.proxy_url.as_ref()?;
    let first = |names: [&str; 2]| names.into_iter().filter_map(environment).find(|value| !value.is_empty());
    let is_from_environment = first(["HTTPS_PROXY", "https_proxy"])
        .and_then(|text| text.parse::<Uri>().ok())
        .is_some_and(|uri| uri == *proxy);
    let excepted = if is_from_environment { first(["NO_PROXY", "no_proxy"]) } else { None };
    if is_from_environment && is_this_machine(&config.cluster_url) {
        return None;
    }
    let text = proxy.to_string();
    let matcher = Matcher::builder().http(text.clone()).https(text).no(excepted.unwrap_or_default()).build();
    matcher.intercept(&config.cluster_url)
}

fn is_this_machine(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(server: &str, proxy: &str, environment: &[(&str, &str)]) -> Option<String> {
        let mut config = Config::new(server.parse().unwrap());
        config.proxy_url = (!proxy.is_empty()).then(|| proxy.parse().unwrap());
        let look = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        chosen(&config, &look).map(|intercept| intercept.uri().to_string())
    }

    #[test]
    fn the_environment_means_others_than_this_machine() {
        let proxy = "http://proxy.corp:3128";
        let set = [("HTTPS_PROXY", proxy)];
        for server in
            ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443", "https://127.8.0.1"]
        {
            assert_eq!(through(server, proxy, &set), None, "{server}");
        }
        let corporate = Some("http://proxy.corp:3128/".to_owned());
        assert_eq!(through("https://10.0.0.1:6443", proxy, &set), corporate);
        assert_eq!(through("https://k8s.corp", proxy, &[("https_proxy", proxy)]), corporate);
        let short = ("HTTPS_PROXY", "proxy.corp:3128");
        assert_eq!(through("https://k8s.corp", short.1, &[short]), corporate);
        assert_eq!(through("https://k8s.corp", "", &[]), None);
    }

    #[test]
    fn what_the_environment_excepts_is_reached_directly() {
        let proxy = "http://proxy.corp:3128";
        let set = [("HTTPS_PROXY", proxy), ("NO_PROXY", ""), ("no_proxy", ".corp,10.0.0.0/8,192.168.1.7")];
        for server in ["https://k8s.corp:6443", "https://10.9.8.7:6443", "https://192.168.1.7"] {
            assert_eq!(through(server, proxy, &set), None, "{server}");
        }
        assert!(through("https://k8s.org", proxy, &set).is_some());
        assert_eq!(through("https://k8s.org", proxy, &[("HTTPS_PROXY", proxy), ("NO_PROXY", "*")]), None);
    }

    #[test]
    fn what_the_kubeconfig_names_holds_always() {
        let set = [("HTTPS_PROXY", "http://other:1"), ("NO_PROXY", "*")];
        let socks = Some("socks5://10.0.0.1:1080/".to_owned());
        assert_eq!(through("https://127.0.0.1:6443", "socks5://10.0.0.1:1080", &set), socks);
    }
}
