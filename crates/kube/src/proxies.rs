//! Whether the way to the API server goes through a proxy.

use std::net::IpAddr;

use kube::Config;

/// Looks up a variable of the environment.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Leaves out a proxy that the environment names for other servers than this one: as for programs in Go, none is used for this
/// machine itself or for what `NO_PROXY` lists. One that the kubeconfig names is always used.
pub(crate) fn follow(config: &mut Config, variable: Variable<'_>) {
    let Some(proxy) = &config.proxy_url else { return };
    let of = |upper: &str, lower: &str| variable(upper).filter(|v| !v.is_empty()).or_else(|| variable(lower));
    let said = of("HTTPS_PROXY", "https_proxy").and_then(|text| text.parse::<http::Uri>().ok());
    if said.as_ref() != Some(proxy) {
        return;
    }
    let host = config.cluster_url.host().unwrap_or_default();
    let port = config.cluster_url.port_u16().unwrap_or(443);
    if is_direct(host, port, &of("NO_PROXY", "no_proxy").unwrap_or_default()) {
        config.proxy_url = None;
    }
}

/// Whether a server is reached without a proxy.
fn is_direct(host: &str, port: u16, exceptions: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    exceptions.split(',').map(|text| text.trim().to_ascii_lowercase()).filter(|text| !text.is_empty()).any(|text| {
        if text == "*" {
            return true;
        }
        if let Some((network, bits)) = text.split_once('/') {
            return address.zip(network.parse().ok()).zip(bits.parse().ok()).is_some_and(|((a, n), b)| within(a, n, b));
        }
        if let Ok(other) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return address == Some(other);
        }
        let (name, only) = match text.rsplit_once(':') {
            Some((name, number)) => (name, number.parse::<u16>().ok()),
            None => (text.as_str(), None),
        };
        if only.is_some_and(|only| only != port) {
            return false;
        }
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let suffix = name.trim_start_matches("*.").trim_start_matches('.');
        let below = host.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'));
        below || name == suffix && host == suffix
    })
}

/// Whether an address is in a network.
fn within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) if bits <= 32 => {
            let differ = u32::from(a) ^ u32::from(n);
            differ.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(n)) if bits <= 128 => {
            let differ = u128::from(a) ^ u128::from(n);
            differ.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_those_of_go() {
        for (host, exceptions, direct) in [
            ("127.0.0.1", "", true),
            ("localhost", "", true),
            ("[::1]", "", true),
            ("10.0.0.1", "", false),
            ("10.0.0.1", "example.com, 10.0.0.0/8", true),
            ("11.0.0.1", "10.0.0.0/8", false),
            ("11.0.0.1", "0.0.0.0/0", true),
            ("fd00::7", "fd00::/8", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("api.example.com", "example.com", true),
            ("example.com", "example.com", true),
            ("example.com", ".example.com", false),
            ("api.example.com", ".example.com", true),
            ("api.example.com", "*.example.com", true),
            ("notexample.com", "example.com", false),
            ("api.example.com", "example.com:6443", true),
            ("api.example.com", "example.com:443", false),
            ("api.example.com", "*", true),
            ("api.example.com", "10.0.0.0/99,/,:,[", false),
        ] {
            assert_eq!(is_direct(host, 6_443, exceptions), direct, "{host} {exceptions}");
        }
    }

    #[test]
    fn a_proxy_of_the_environment_is_not_for_this_machine() {
        let of = |server: &str, proxy: &str| {
            let mut config = Config::new(server.parse().unwrap());
            config.proxy_url = Some(proxy.parse().unwrap());
            follow(&mut config, &|name| (name == "https_proxy").then(|| "http://proxy:3128".to_owned()));
            config.proxy_url.is_some()
        };
        assert!(!of("https://127.0.0.1:6443", "http://proxy:3128"));
        assert!(of("https://10.0.0.1:6443", "http://proxy:3128"));
        assert!(of("https://127.0.0.1:6443", "http://other:3128"), "the kubeconfig names it");
    }
}
