//! Congestion marks, as the two ends counted them.

use netcore::{
    report::grown,
    spec::{Side, TestSpec, Transport},
};
use schemas::columns::Row;

use super::both::End;

pub(super) fn fill(row: &mut Row, spec: &TestSpec, near: Option<&End<'_>>, far: Option<&End<'_>>) {
    row.local_ce_packets = near.and_then(|end| arrived(row, spec, Side::Near, end));
    row.remote_ce_packets = far.and_then(|end| arrived(row, spec, Side::Far, end));
    let senders = || near.into_iter().chain(far).flat_map(End::senders);
    let agreed = senders().map(|flow| flow.tcp_info?.limits?.ecn).reduce(|a, b| Some(a? && b?)).flatten();
    row.ecn = row.ecn.or(agreed);
    // A sum without some of the streams would be a wrong number.
    let grown = senders().map(|flow| {
        let [after, before] = [flow.tcp_info, flow.tcp_at_start].map(|info| info?.limits?.delivered_ce);
        Some(grown(after?, before?))
    });
    row.ce_echoed = grown.reduce(|a, b| Some(a?.saturating_add(b?))).flatten();
}

/// Marks that arrived at an end: those of the test's datagrams, or of all packets of its network namespace.
fn arrived(row: &Row, spec: &TestSpec, side: Side, end: &End<'_>) -> Option<u64> {
    if spec.transport == Transport::Udp && spec.asks_for_ecn(side) {
        return Some(end.flows.iter().map(|flow| flow.counts.marked).fold(0, u64::saturating_add));
    }
    end.window.evidence.as_ref()?.ce_packets.filter(|_| row.stream.is_none())
}

#[cfg(test)]
mod tests {
    use netcore::{
        report::{Evidence, Phase, SideReport, TcpInfo, TcpLimits},
        spec::{Pattern, Role},
    };

    use super::*;
    use crate::schedule::{
        fake::{flow, report, window},
        rows::of_iteration,
    };

    fn end(side: Side, role: Role, marked: u64, limits: [TcpLimits; 2], ce_packets: Option<u64>) -> SideReport {
        let info = |limits| Some(TcpInfo { limits: Some(limits), ..TcpInfo::default() });
        let mut flow = flow(0, role, 0, 0);
        (flow.tcp_at_start, flow.tcp_info) = (info(limits[0]), info(limits[1]));
        flow.counts.marked = marked;
        let mut measure = window(Phase::Measure, 1, vec![flow]);
        measure.evidence = Some(Evidence { ce_packets, ..Evidence::default() });
        report(side, vec![measure])
    }

    fn cells(spec: &TestSpec, near: &SideReport, far: &SideReport) -> (Option<bool>, [Option<u64>; 3]) {
        let row = of_iteration(&Row::default(), spec, near, Some(far)).measured.remove(0).1;
        (row.ecn, [row.local_ce_packets, row.remote_ce_packets, row.ce_echoed])
    }

    #[test]
    fn datagrams_have_their_own_marks_and_connections_those_of_the_namespace() {
        let limits =
            |delivered_ce| TcpLimits { delivered_ce: Some(delivered_ce), ecn: Some(true), ..TcpLimits::default() };
        let near = end(Side::Near, Role::Sender, 0, [limits(5), limits(12)], Some(1));
        let far = end(Side::Far, Role::Receiver, 40, [TcpLimits::default(); 2], Some(9));
        let tcp = TestSpec::new(Pattern::Stream, Transport::Tcp);
        assert_eq!(cells(&tcp, &near, &far), (Some(true), [Some(1), Some(9), Some(7)]));
        let mut udp = TestSpec::new(Pattern::Stream, Transport::Udp);
        (udp.near.socket.ecn, udp.far.socket.ecn) = (Some(true), Some(true));
        let (_, [local, remote, _]) = cells(&udp, &near, &far);
        assert_eq!((local, remote), (Some(0), Some(40)));
    }
}
