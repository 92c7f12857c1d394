//! The IP address, CIDR and URL libraries. URLs are read here because crate `url` follows another standard than Go: it puts
//! hosts in lower case, drops default ports, and refuses absolute paths.

use std::net::IpAddr;
use std::sync::Arc;

use cel::objects::Opaque;
use cel::{ExecutionError, Value as Cel};
use ipnet::IpNet;

use super::functions::{mismatch, string};

type Outcome = Result<Cel, ExecutionError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CelIp(IpAddr);

impl Opaque for CelIp {
    fn runtime_type_name(&self) -> &'static str {
        "net.IP"
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CelCidr(IpNet);

impl Opaque for CelCidr {
    fn runtime_type_name(&self) -> &'static str {
        "net.CIDR"
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CelUrl {
    scheme: String,
    host: String,
    path: String,
}

impl Opaque for CelUrl {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.URL"
    }
}

fn opaque<T: Opaque>(value: T) -> Outcome {
    Ok(Cel::Opaque(Arc::new(value)))
}

fn taken<'a, T: 'static>(args: &'a [Cel], at: usize, function: &str) -> Result<&'a T, ExecutionError> {
    match args.get(at) {
        Some(Cel::Opaque(value)) => value.downcast_ref::<T>().ok_or_else(|| mismatch(function)),
        _ => Err(mismatch(function)),
    }
}

/// An address without zone; IPv4 in IPv6 is not taken.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => None,
        other => Some(other),
    }
}

fn parse_cidr(text: &str) -> Option<CelCidr> {
    // The parser of IpNet takes leading zeros in addresses.
    let (address, bits) = text.split_once('/')?;
    let bits = bits.parse().ok().filter(|_| bits.bytes().all(|b| b.is_ascii_digit()))?;
    IpNet::new(parse_ip(address)?, bits).ok().map(CelCidr)
}

pub(super) fn is_ip(args: &[Cel]) -> Outcome {
    Ok(Cel::Bool(parse_ip(string(args, 0, "isIP")?).is_some()))
}

pub(super) fn ip(args: &[Cel]) -> Outcome {
    let text = string(args, 0, "ip")?;
    let failed = || ExecutionError::function_error("ip", format!("IP Address \"{text}\" parse error"));
    opaque(CelIp(parse_ip(text).ok_or_else(failed)?))
}

pub(super) fn is_canonical(args: &[Cel]) -> Outcome {
    let text = string(args, 0, "ip.isCanonical")?;
    Ok(Cel::Bool(parse_ip(text).is_some_and(|address| address.to_string() == text)))
}

pub(super) fn is_cidr(args: &[Cel]) -> Outcome {
    Ok(Cel::Bool(parse_cidr(string(args, 0, "isCIDR")?).is_some()))
}

pub(super) fn cidr(args: &[Cel]) -> Outcome {
    let text = string(args, 0, "cidr")?;
    let failed = || {
        ExecutionError::function_error("cidr", "network address parse error during conversion from string")
    };
    opaque(parse_cidr(text).ok_or_else(failed)?)
}

pub(super) fn family(args: &[Cel]) -> Outcome {
    Ok(Cel::Int(if taken::<CelIp>(args, 0, "family")?.0.is_ipv4() { 4 } else { 6 }))
}

pub(super) fn is_unspecified(args: &[Cel]) -> Outcome {
    Ok(Cel::Bool(taken::<CelIp>(args, 0, "isUnspecified")?.0.is_unspecified()))
}

pub(super) fn is_loopback(args: &[Cel]) -> Outcome {
    Ok(Cel::Bool(taken::<CelIp>(args, 0, "isLoopback")?.0.is_loopback()))
}

pub(super) fn is_link_local_multicast(args: &[Cel]) -> Outcome {
    Ok(Cel::Bool(match taken::<CelIp>(args, 0, "isLinkLocalMulticast")?.0 {
        IpAddr::V4(v4) => v4.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(v6) => v6.segments().first().is_some_and(|first| first & 0xff0f == 0xff02),
    }))
}

fn link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

pub(super) fn is_link_local_unicast(args: &[Cel]) -> Outcome {
    Ok(Cel::Bool(link_local(taken::<CelIp>(args, 0, "isLinkLocalUnicast")?.0)))
}

pub(super) fn is_global_unicast(args: &[Cel]) -> Outcome {
    let address = taken::<CelIp>(args, 0, "isGlobalUnicast")?.0;
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    let local =
        address.is_unspecified() || address.is_loopback() || address.is_multicast() || link_local(address);
    Ok(Cel::Bool(!local && !broadcast))
}

pub(super) fn contains_ip(args: &[Cel]) -> Outcome {
    let network = taken::<CelCidr>(args, 0, "containsIP")?;
    let address = match args.get(1) {
        Some(Cel::String(text)) => parse_ip(text).ok_or_else(|| mismatch("containsIP"))?,
        _ => taken::<CelIp>(args, 1, "containsIP")?.0,
    };
    Ok(Cel::Bool(network.0.contains(&address)))
}

pub(super) fn contains_cidr(args: &[Cel]) -> Outcome {
    let network = taken::<CelCidr>(args, 0, "containsCIDR")?;
    let other = match args.get(1) {
        Some(Cel::String(text)) => parse_cidr(text).ok_or_else(|| mismatch("containsCIDR"))?,
        _ => *taken::<CelCidr>(args, 1, "containsCIDR")?,
    };
    Ok(Cel::Bool(network.0.contains(&other.0)))
}

pub(super) fn cidr_ip(args: &[Cel]) -> Outcome {
    opaque(CelIp(taken::<CelCidr>(args, 0, "ip")?.0.addr()))
}

pub(super) fn masked(args: &[Cel]) -> Outcome {
    opaque(CelCidr(taken::<CelCidr>(args, 0, "masked")?.0.trunc()))
}

pub(super) fn prefix_length(args: &[Cel]) -> Outcome {
    Ok(Cel::Int(i64::from(taken::<CelCidr>(args, 0, "prefixLength")?.0.prefix_len())))
}

/// `scheme://host/path` or an absolute path.
fn parse_url(text: &str) -> Option<CelUrl> {
    if text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
        return None;
    }
    let text = text.split(['?', '#']).next().unwrap_or_default();
    if text.starts_with('/') {
        return Some(CelUrl { scheme: String::new(), host: String::new(), path: text.to_owned() });
    }
    let (scheme, rest) = text.split_once(':')?;
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let rest = rest.strip_prefix("//").filter(|_| named)?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(CelUrl { scheme: scheme.to_ascii_lowercase(), host: host.to_owned(), path: path.to_owned() })
}

pub(super) fn is_url(args: &[Cel]) -> Outcome {
    Ok(Cel::Bool(parse_url(string(args, 0, "isURL")?).is_some()))
}

pub(super) fn url(args: &[Cel]) -> Outcome {
    let failed = || ExecutionError::function_error("url", "URL parse error during conversion from string");
    opaque(parse_url(string(args, 0, "url")?).ok_or_else(failed)?)
}

pub(super) fn url_scheme(args: &[Cel]) -> Outcome {
    Ok(Cel::from(taken::<CelUrl>(args, 0, "getScheme")?.scheme.as_str()))
}

pub(super) fn url_host(args: &[Cel]) -> Outcome {
    Ok(Cel::from(taken::<CelUrl>(args, 0, "getHost")?.host.as_str()))
}

/// Host and port; the port is digits after the last colon outside brackets.
fn split_host(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (host, ""),
    }
}

pub(super) fn url_hostname(args: &[Cel]) -> Outcome {
    let url = taken::<CelUrl>(args, 0, "getHostname")?;
    Ok(Cel::from(split_host(&url.host).0.trim_matches(['[', ']'])))
}

pub(super) fn url_port(args: &[Cel]) -> Outcome {
    Ok(Cel::from(split_host(&taken::<CelUrl>(args, 0, "getPort")?.host).1))
}

pub(super) fn url_path(args: &[Cel]) -> Outcome {
    Ok(Cel::from(taken::<CelUrl>(args, 0, "getEscapedPath")?.path.as_str()))
}
