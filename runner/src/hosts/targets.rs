//! From the plan's inventory to addresses.

use std::net::IpAddr;

use netcore::{
    client::{PeerTarget, Target, Timeouts},
    control::key::Key,
};

use crate::{
    error::Error,
    launch::contract::{bracketed, resolve},
    plan::model::Host,
};

/// The place of an end of a test. The default is this process.
#[derive(Clone, Debug, Default)]
pub struct Location {
    /// Its daemon; `None`: this process.
    pub target: Option<Target>,
    /// Address for the traffic, where it differs from the daemon's.
    pub data: Option<IpAddr>,
}

impl Location {
    /// The address of its traffic, where it is known without a connection.
    pub fn address(&self, name: &str) -> Option<IpAddr> {
        let control = || self.target.as_ref().map(|target| target.control.as_str());
        self.data.or_else(|| resolve(name, control()?.rsplit_once(':').map_or(control()?, |(host, _)| host)).ok())
    }
}

/// The daemon of a host of the inventory.
pub fn of_host(name: &str, host: Option<&Host>, default_key: Option<&Key>) -> Result<Location, Error> {
    let fault = |message: String| Err(Error::Measurement(message));
    let Some(host) = host else {
        return fault(format!("host `{name}` is in no inventory: give --host {name}=ADDRESS"));
    };
    let Some(control) = host.control.clone().or_else(|| host.address.clone()) else {
        return fault(format!(
            "host `{name}` has no address: set hosts.{name}.address in the plan, or give --host {name}=ADDRESS"
        ));
    };
    let mut target = Target::new(name, bracketed(&control));
    target.key = match &host.key_file {
        Some(path) => Some(Key::load(path).map_err(|e| Error::Measurement(format!("host `{name}`: {e}")))?),
        None => default_key.cloned(),
    };
    // The daemon is often on a management network: the traffic then has an address of its own.
    let data = match (&host.control, &host.address) {
        (Some(_), Some(address)) => Some(resolve(name, address)?),
        _ => None,
    };
    Ok(Location { target: Some(target), data })
}

/// A host where another program takes part in tests.
pub fn of_peer(name: &str, host: &Host) -> Option<PeerTarget> {
    let control = host.control.as_ref().or(host.address.as_ref())?;
    Some(PeerTarget {
        name: name.to_owned(),
        program: host.speaks?,
        control: bracketed(control),
        bind: None,
        netns: None,
        timeouts: Timeouts::default(),
    })
}

/// The address of a service: a host without a daemon, or whose daemon takes no part.
pub fn of_service(name: &str, host: Option<&Host>) -> Result<IpAddr, Error> {
    let address = host.and_then(|host| host.address.as_deref()).ok_or_else(|| {
        Error::Measurement(format!(
            "host `{name}` has no address: set hosts.{name}.address, or give --host {name}=ADDRESS"
        ))
    })?;
    resolve(name, address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_data_may_differ() {
        let host = Host { address: Some("10.0.0.2".into()), control: Some("192.0.2.1:999".into()), ..Host::default() };
        let place = of_host("b", Some(&host), None).unwrap();
        assert_eq!(place.target.unwrap().control, "192.0.2.1:999");
        assert_eq!(place.data, Some("10.0.0.2".parse().unwrap()));
    }

    #[test]
    fn a_bare_address_serves_for_both() {
        let host = Host { address: Some("2001:db8::1".into()), ..Host::default() };
        let place = of_host("b", Some(&host), None).unwrap();
        assert_eq!(place.target.unwrap().control, "[2001:db8::1]");
        assert_eq!(place.data, None);
    }

    #[test]
    fn what_is_missing_is_named_with_its_remedy() {
        let error = of_host("b", Some(&Host::default()), None).unwrap_err().to_string();
        assert!(error.contains("--host b=ADDRESS"), "{error}");
    }
}
