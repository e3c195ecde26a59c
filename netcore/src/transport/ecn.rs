//! Explicit Congestion Notification of the flows: ECT(0) on datagrams that are sent, the type of service of those that are
//! received, and whether a TCP connection has agreed on it.
//!
//! Set once the flows are connected, after the code point, which shares its byte.

use std::{io, os::fd::AsFd};

use super::Link;
use crate::{
    error::EndError,
    measure::tcp_info,
    report::Granted,
    spec::{Role, Side, TestSpec, Transport},
    sys::opt::{self, Opt},
};

/// The two lower bits of the type of service: capable of it, code point 0.
const ECT0: i32 = 2;
const MASK: i32 = 3;

/// The option of the type of service by version of IP, and the one that hands it over with each datagram. An IPv6 socket may carry
/// IPv4.
fn options(v6: bool) -> &'static [(Opt, Opt)] {
    const BOTH: [(Opt, Opt); 2] = [(opt::IP_TOS, opt::IP_RECVTOS), (opt::IPV6_TCLASS, opt::IPV6_RECVTCLASS)];
    if v6 { &BOTH } else { &BOTH[..1] }
}

/// Sets what the test asks of a flow in this role, or checks that its connection has it.
pub fn set(link: &Link, spec: &TestSpec, side: Side, role: Role, v6: bool) -> Result<(), EndError> {
    if !spec.asks_for_ecn(side) {
        return Ok(());
    }
    match spec.transport {
        Transport::Udp => {
            for (class, handed_over) in options(v6) {
                if role == Role::Sender {
                    set_ect(link, *class).map_err(EndError::system("the kernel refuses ecn on a sending socket"))?;
                } else {
                    opt::set_int(&link.receive, *handed_over, 1)
                        .map_err(EndError::system("the kernel does not hand over the marks of datagrams (ecn)"))?;
                }
            }
            Ok(())
        }
        _ if tcp_info::has_ecn(link.send.as_fd()) == Some(false) => {
            let sysctl = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn").unwrap_or_default();
            Err(EndError::Impossible(not_agreed(side, sysctl.trim())))
        }
        _ => Ok(()),
    }
}

/// Sets ECT(0) and leaves the rest of the class, and the priority, which the kernel derives from each new class.
fn set_ect(link: &Link, class: Opt) -> io::Result<()> {
    let priority = opt::get_int(&link.send, opt::SO_PRIORITY)?;
    let old = opt::get_int(&link.send, class)?;
    opt::set_int(&link.send, class, old & !MASK | ECT0)?;
    opt::set_int(&link.send, opt::SO_PRIORITY, priority)
}

/// The sentence for a connection without it. `sysctl`: the setting of this end's host.
fn not_agreed(side: Side, sysctl: &str) -> String {
    let (opens, accepts) = match (side, sysctl) {
        (Side::Near, _) => (format!(" (it is {sysctl})"), String::new()),
        (Side::Far, _) => (String::new(), format!(" (it is {sysctl})")),
    };
    format!(
        "ecn: the two kernels did not agree on Explicit Congestion Notification, and no socket option asks for it. The host that \
         opens the connection (`from`) needs net.ipv4.tcp_ecn=1{opens}, or a route with `features ecn`: ip route change … \
         features ecn. The host that accepts it (`to`) needs net.ipv4.tcp_ecn other than 0{accepts}"
    )
}

/// Requested and granted values on a flow.
pub fn granted(link: &Link, spec: &TestSpec, side: Side, v6: bool) -> Option<Granted> {
    let has_it = |role: &Role| match (spec.transport, role) {
        (Transport::Udp, Role::Sender) => options(v6)
            .iter()
            .all(|(class, _)| opt::get_int(&link.send, *class).is_ok_and(|class| class & MASK == ECT0)),
        (Transport::Udp, _) => {
            options(v6).iter().all(|(_, handed_over)| opt::get_int(&link.receive, *handed_over).is_ok_and(|on| on != 0))
        }
        _ => tcp_info::has_ecn(link.send.as_fd()) == Some(true),
    };
    spec.asks_for_ecn(side).then(|| {
        let granted = Some(spec.roles(side, link.flow).iter().all(has_it).to_string());
        let requested = Some(true.to_string());
        Granted { flow: link.flow, option: "ecn".to_owned(), requested, at_start: granted.clone(), at_end: granted }
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::{
        spec::{Dscp, Pattern},
        transport::options,
    };

    #[test]
    fn the_code_point_and_the_priority_stay_beside_it() {
        for (address, v6) in [("127.0.0.1:0", false), ("[::1]:0", true)] {
            let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
            (spec.near.socket.ecn, spec.near.socket.dscp) = (Some(true), Some(Dscp(46)));
            spec.near.socket.priority = Some(3);
            let link = Link::of_socket(0, UdpSocket::bind(address).unwrap().into());
            options::apply(&link.send, &spec.near.socket, Transport::Udp, v6).unwrap();
            set(&link, &spec, Side::Near, Role::Sender, v6).unwrap();
            let class = opt::get_int(&link.send, if v6 { opt::IPV6_TCLASS } else { opt::IP_TOS }).unwrap();
            assert_eq!(class, 46 << 2 | ECT0);
            assert_eq!(opt::get_int(&link.send, opt::SO_PRIORITY).unwrap(), 3);
            assert_eq!(granted(&link, &spec, Side::Near, v6).unwrap().at_start.as_deref(), Some("true"));
            let shown = options::granted(&link.send, 0, &spec.near.socket, Transport::Udp, v6);
            let dscp = shown.iter().find(|granted| granted.option == "dscp").unwrap();
            assert_eq!(dscp.at_start.as_deref(), Some("46"));
        }
    }

    #[test]
    fn the_sentence_names_the_setting_of_the_host_that_it_comes_from() {
        let near = not_agreed(Side::Near, "2");
        assert!(
            near.contains("(`from`) needs net.ipv4.tcp_ecn=1 (it is 2)") && near.ends_with("other than 0"),
            "{near}"
        );
        assert!(not_agreed(Side::Far, "0").ends_with("other than 0 (it is 0)"));
    }
}
