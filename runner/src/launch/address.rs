//! Addresses of hosts: named in the plan, or chosen among those that a launched host reports.

use std::{
    collections::BTreeMap,
    net::{IpAddr, ToSocketAddrs},
};

use netcore::{control::dial, daemon::Network, measure::addresses::InterfaceAddress};

use super::contract::Greeting;
use crate::{error::Error, plan::model::Host};

/// The host's address by `interface` or `network` of the plan, else the one at which sshd was reached, else its only one.
/// The plan's own `address` is not considered here: it may be a name.
pub fn choose(host: &Host, greeting: &Greeting) -> Result<IpAddr, String> {
    let network: Option<Network> = host.network.as_deref().and_then(|text| text.parse().ok());
    let asked = host.interface.is_some() || network.is_some();
    if let (false, Some(address)) = (asked, greeting.reached_at) {
        return Ok(address);
    }
    let fits = |it: &&InterfaceAddress| {
        host.interface.as_deref().is_none_or(|name| name == it.interface)
            && network.is_none_or(|network| network.contains(it.address))
    };
    let fitting: Vec<&InterfaceAddress> = greeting.addresses.iter().filter(fits).collect();
    let v4: Vec<&InterfaceAddress> = fitting.iter().copied().filter(|it| it.address.is_ipv4()).collect();
    match (fitting.as_slice(), v4.as_slice()) {
        // With one address of each version, IPv4 is the default of tests.
        ([one], _) | (_, [one]) => Ok(one.address),
        ([], _) => Err(format!(
            "it has no address{}: it has {}",
            wish(host),
            listed(&greeting.addresses.iter().collect::<Vec<_>>())
        )),
        _ => Err(format!(
            "several of its addresses may carry the traffic{}: {}; choose with `address`, `interface` or `network`",
            wish(host),
            listed(&fitting)
        )),
    }
}

/// An address that an end says is its own, where no connection to it proves that: it must lie in the plan's `network`, or be one
/// of a host that the plan or the launcher names.
pub fn known<'a>(host: &Host, told: IpAddr, names: impl Iterator<Item = &'a str>) -> Result<IpAddr, String> {
    let is_of = |name: &str| dial::resolve_or(name, 0).is_ok_and(|found| found.iter().any(|it| it.ip() == told));
    if host.network.is_some() || { names }.any(is_of) {
        return Ok(told);
    }
    Err(format!(
        "it says that its address is {told}, and nothing here proves that: name it in the plan with `address: {told}`, or a \
         `network` that it lies in"
    ))
}

/// Brings the greetings of one launcher into the order of its ends, where the plan says an address for each: a launcher numbers
/// its ends as it likes.
pub fn by_address(
    ends: &[String],
    hosts: &BTreeMap<String, &Host>,
    greetings: &mut Vec<Greeting>,
) -> Result<(), String> {
    let told: Option<Vec<(&String, &str)>> =
        ends.iter().map(|name| Some((name, hosts.get(name)?.address.as_deref()?))).collect();
    let Some(told) = told.filter(|told| told.len() > 1) else { return Ok(()) };
    let (mut ordered, mut missing) = (Vec::with_capacity(greetings.len()), Vec::new());
    for (name, address) in told {
        let wanted = resolve(name, address).map_err(|error| error.to_string())?;
        match greetings.iter().position(|it| it.addresses.iter().any(|its| its.address == wanted)) {
            Some(at) => ordered.push(greetings.remove(at)),
            None => missing.push(format!("{address} of host `{name}`")),
        }
    }
    if missing.is_empty() {
        *greetings = ordered;
        return Ok(());
    }
    let left: Vec<String> = greetings.iter().map(|it| listed(&it.addresses.iter().collect::<Vec<_>>())).collect();
    Err(format!(
        "none of the machines that were launched has the address {}; the others have {}",
        missing.join(", "),
        left.join("; ")
    ))
}

fn wish(host: &Host) -> String {
    let interface = host.interface.as_ref().map(|name| format!(" on `{name}`"));
    let network = host.network.as_ref().map(|network| format!(" in {network}"));
    [interface, network].into_iter().flatten().collect()
}

fn listed(addresses: &[&InterfaceAddress]) -> String {
    if addresses.is_empty() {
        return "none that other hosts reach".to_owned();
    }
    let words: Vec<String> = addresses.iter().map(|it| format!("{} ({})", it.address, it.interface)).collect();
    words.join(", ")
}

/// Adds brackets to an IPv6 address, which would read as `host:port` without them.
pub fn bracketed(control: &str) -> String {
    match control.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => control.to_owned(),
    }
}

pub fn resolve(name: &str, address: &str) -> Result<IpAddr, Error> {
    let found = (address, 0).to_socket_addrs().and_then(dial::usable);
    let fault = |what| Error::Measurement(format!("the address `{address}` of host `{name}` was not found: {what}"));
    found.map_err(fault).map(|found| found[0].ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(addresses: &[(&str, &str)], reached_at: Option<&str>) -> Greeting {
        Greeting {
            contract: 1,
            version: "1".into(),
            pid: 1,
            host: None,
            machine: None,
            port: 1,
            addresses: addresses
                .iter()
                .map(|(interface, address)| InterfaceAddress {
                    interface: (*interface).into(),
                    address: address.parse().unwrap(),
                })
                .collect(),
            rank: None,
            node: None,
            reached_at: reached_at.map(|address| address.parse().unwrap()),
            key: None,
        }
    }

    #[test]
    fn the_plan_chooses_then_ssh_then_there_is_one() {
        let both = [("eth0", "10.0.0.2"), ("ib0", "10.1.0.2"), ("ib0", "fd00::2")];
        let chosen = |host: &Host, reached| choose(host, &greeting(&both, reached)).map(|it| it.to_string());
        let ib0 = Host { interface: Some("ib0".into()), ..Host::default() };
        assert_eq!(chosen(&ib0, Some("10.0.0.2")), Ok("10.1.0.2".into()));
        let network = Host { network: Some("fd00::/8".into()), ..Host::default() };
        assert_eq!(chosen(&network, None), Ok("fd00::2".into()));
        assert_eq!(chosen(&Host::default(), Some("10.0.0.2")), Ok("10.0.0.2".into()));
        let several = chosen(&Host::default(), None).unwrap_err();
        assert!(several.contains("10.0.0.2 (eth0), 10.1.0.2 (ib0)"), "{several}");
        let none = chosen(&Host { interface: Some("ib1".into()), ..Host::default() }, None).unwrap_err();
        assert!(none.contains("no address on `ib1`: it has 10.0.0.2 (eth0)"), "{none}");
        assert_eq!(choose(&Host::default(), &greeting(&both[..1], None)).unwrap().to_string(), "10.0.0.2");
    }

    #[test]
    fn addresses_that_mean_another_host_on_each_interface_are_refused() {
        for address in ["fe80::1", "fe80::1%lo"] {
            let error = resolve("b", address).unwrap_err().to_string();
            assert!(error.contains("host `b`") && error.contains("link-local"), "{error}");
        }
    }

    #[test]
    fn ends_with_addresses_of_their_own_are_found_by_these() {
        let told = |address: &str| Host { address: Some(address.into()), ..Host::default() };
        let (one, two) = (told("10.0.0.1"), told("10.0.0.2"));
        let hosts = BTreeMap::from([("n1".to_owned(), &one), ("n2".to_owned(), &two)]);
        let ends = ["n1".to_owned(), "n2".to_owned()];
        let of = |address: &str| greeting(&[("eth0", address)], None);
        let mut greetings = vec![of("10.0.0.2"), of("10.0.0.1")];
        by_address(&ends, &hosts, &mut greetings).unwrap();
        assert_eq!(greetings[0].addresses[0].address.to_string(), "10.0.0.1");
        let error = by_address(&ends, &hosts, &mut vec![of("10.0.0.2"), of("10.0.0.3")]).unwrap_err();
        assert!(error.contains("10.0.0.1 of host `n1`") && error.contains("10.0.0.3 (eth0)"), "{error}");
        // One end may have an address that it does not know of.
        by_address(&ends[..1], &hosts, &mut vec![of("10.9.9.9")]).unwrap();
    }
}
