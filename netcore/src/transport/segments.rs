//! Datagrams of several messages: UDP_SEGMENT on the sockets of flows that send, UDP_GRO on those of flows that receive.
//!
//! They are set once the flows are connected: a greeting that is longer than a message would be split as well.

use std::io;

use super::{Link, address::local_ip};
use crate::{
    error::EndError,
    report::Granted,
    spec::{Role, Side, TestSpec},
    sys::opt,
};

/// Headers of UDP and IP, bytes.
const HEADERS_V4: u64 = 8 + 20;
const HEADERS_V6: u64 = 8 + 40;

/// Sets what the test asks of a flow in this role.
pub fn set(link: &Link, spec: &TestSpec, side: Side, role: Role) -> Result<(), EndError> {
    if spec.segments(side, role) > 1 {
        let bytes = i32::try_from(spec.sizes.message_bytes).unwrap_or(i32::MAX);
        opt::set_int(&link.send, opt::UDP_SEGMENT, bytes)
            .map_err(|error| refused("gso", "UDP_SEGMENT", "4.18", error))?;
    }
    if spec.merges(side, role) {
        opt::set_int(&link.receive, opt::UDP_GRO, 1).map_err(|error| refused("gro", "UDP_GRO", "5.0", error))?;
    }
    Ok(())
}

fn refused(name: &str, option: &str, since: &str, source: io::Error) -> EndError {
    let what = match source.raw_os_error() {
        Some(libc::ENOPROTOOPT) => {
            format!("{name}: this kernel has no {option} (Linux has it from {since} on): leave socket.{name} out")
        }
        _ => format!("the kernel refuses {name} ({option})"),
    };
    EndError::System { what, source }
}

/// Requested and granted values on a flow. They do not change after the start.
///
/// The kernel is told the size of a segment and not the number of them, so the number is granted if the size is a message's.
pub fn granted(link: &Link, spec: &TestSpec, side: Side) -> Vec<Granted> {
    let both = |option: &str, requested: String, granted: Option<String>| Granted {
        flow: link.flow,
        option: option.to_owned(),
        requested: Some(requested),
        at_start: granted.clone(),
        at_end: granted,
    };
    let of_role = |role: &Role| {
        let segments = spec.segments(side, *role);
        let of_kernel = || opt::get_int(&link.send, opt::UDP_SEGMENT).ok();
        let gso = (segments > 1).then(|| {
            let granted = of_kernel().map(|bytes| match u64::try_from(bytes) {
                Ok(bytes) if bytes == spec.sizes.message_bytes => segments.to_string(),
                _ => format!("segments of {bytes} bytes"),
            });
            both("gso", segments.to_string(), granted)
        });
        let gro = spec.merges(side, *role).then(|| {
            let granted = opt::get_int(&link.receive, opt::UDP_GRO).ok();
            both("gro", true.to_string(), granted.map(|value| (value != 0).to_string()))
        });
        gso.into_iter().chain(gro)
    };
    spec.roles(side, link.flow).iter().flat_map(of_role).collect()
}

/// The meaning of a refused send of several messages, and the remedy; `None`: the error has another cause.
///
/// The kernel never fragments a segment: it answers EMSGSIZE, before Linux 6.14 EINVAL, if one exceeds the path's MTU. EINVAL
/// is also its answer to more segments than it can make.
pub fn explain(link: &Link, bytes: u64, segments: usize, error: &io::Error) -> Option<String> {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE | libc::EINVAL) => Some(too_long(path(link), bytes, segments)),
        Some(libc::EIO) => Some(
            "the kernel cannot split datagrams on this path, which has no checksum offload, or IPsec: leave socket.gso out"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The path's MTU where the kernel tells (the socket is connected), and the bytes of the headers.
fn path(link: &Link) -> (Option<u64>, u64) {
    let v6 = local_ip(&link.send).is_ok_and(|local| local.is_ipv6());
    let mtu = opt::get_int(&link.send, if v6 { opt::IPV6_MTU } else { opt::IP_MTU });
    // An IPv6 socket may carry IPv4.
    let headers = if link.peer_ip().is_none_or(|peer| peer.is_ipv6()) { HEADERS_V6 } else { HEADERS_V4 };
    (mtu.ok().and_then(|mtu| u64::try_from(mtu).ok()), headers)
}

fn too_long((mtu, headers): (Option<u64>, u64), bytes: u64, segments: usize) -> String {
    match mtu {
        Some(mtu) if bytes + headers <= mtu => format!(
            "the kernel does not split a datagram into {segments} messages (Linux before 6.10 makes 64 at most): write a smaller gso"
        ),
        Some(mtu) => format!(
            "gso makes packets of one message each, and the path's MTU of {mtu} bytes has room for a message_size of {} and \
             not of {bytes}: choose a smaller message_size, or leave socket.gso out",
            mtu.saturating_sub(headers)
        ),
        None => format!(
            "gso makes packets of one message each, and a message_size of {bytes} with {headers} bytes of headers exceeds \
             the path's MTU: choose a smaller message_size, or leave socket.gso out"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::spec::{Pattern, Transport};

    fn spec() -> TestSpec {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        spec.sizes.message_bytes = 100;
        (spec.near.socket.gso, spec.near.socket.gro) = (Some(5), Some(true));
        spec
    }

    fn link() -> Link {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        Link::of_socket(3, socket.into())
    }

    #[test]
    fn each_role_sets_its_own_and_reads_it_back() {
        let (spec, link) = (spec(), link());
        set(&link, &spec, Side::Near, Role::Sender).unwrap();
        assert_eq!(opt::get_int(&link.send, opt::UDP_SEGMENT).unwrap(), 100);
        assert_eq!(opt::get_int(&link.send, opt::UDP_GRO).unwrap(), 0);
        let list = granted(&link, &spec, Side::Near);
        let [gso] = &list[..] else { panic!("{list:?}") };
        assert_eq!((gso.flow, gso.option.as_str()), (3, "gso"));
        assert_eq!((gso.requested.as_deref(), gso.at_end.as_deref()), (Some("5"), Some("5")));
        opt::set_int(&link.send, opt::UDP_SEGMENT, 7).unwrap();
        assert_eq!(granted(&link, &spec, Side::Near)[0].at_start.as_deref(), Some("segments of 7 bytes"));
        set(&link, &spec, Side::Near, Role::Receiver).unwrap();
        assert_eq!(opt::get_int(&link.receive, opt::UDP_GRO).unwrap(), 1);
        assert!(granted(&link, &spec, Side::Far).is_empty());
    }

    #[test]
    fn a_refusal_names_its_cause_and_the_remedy() {
        let missing =
            refused("gso", "UDP_SEGMENT", "4.18", io::Error::from_raw_os_error(libc::ENOPROTOOPT)).to_string();
        assert!(
            missing.contains("no UDP_SEGMENT") && missing.contains("4.18") && missing.contains("leave"),
            "{missing}"
        );
        let long = too_long((Some(1500), HEADERS_V4), 1473, 4);
        assert!(
            long.contains("MTU of 1500") && long.contains("room for a message_size of 1472 and not of 1473"),
            "{long}"
        );
        assert!(too_long((None, HEADERS_V6), 1453, 4).contains("48 bytes of headers"));
        assert!(too_long((Some(1500), HEADERS_V4), 64, 128).contains("128 messages"));
        let (socket, error) = (link(), io::Error::from_raw_os_error);
        let long = explain(&socket, 100_000, 2, &error(libc::EMSGSIZE)).unwrap();
        assert!(long.contains("MTU of 65535"), "{long}");
        assert!(explain(&socket, 64, 2, &error(libc::EIO)).unwrap().contains("checksum offload"));
        assert_eq!(explain(&socket, 64, 2, &error(libc::ECONNREFUSED)), None);
    }
}
