//! Throughput over what the path's wire can carry.

use analyze::wire::{Load, Packets, TIMESTAMPS};
use netcore::{
    report::{NicFacts, SideReport, TcpInfo},
    spec::{Pattern, TestSpec, Transport},
};
use schemas::{columns::Row, words::Way};

/// The largest ratio at which an interface's word on its speed is believed: beyond it the data took another way, or the
/// speed is a fiction of a virtual machine.
const BELIEVED: f64 = 1.05;

/// Fills the cells of a phase. The plan's word on the speed is there already.
pub fn fill(row: &mut Row, spec: &TestSpec, near: &SideReport, far: Option<&SideReport>) {
    let detected = || Some(f64::from(speed(near)?.min(speed(far?)?)) * 1e6);
    let Some(speed) = row.wire_bits_per_s.or_else(detected) else { return };
    // The two directions of a wire are two wires.
    let directions = if row.direction == Some(Way::Both) { 2.0 } else { 1.0 };
    let load = (spec.pattern == Pattern::Stream).then(|| load(row, spec, near, far)).flatten();
    let ratio = load.and_then(|load| Some(row.throughput_bits_per_s? / (load.at(speed) * directions)));
    if row.wire_bits_per_s.is_none() && ratio.is_some_and(|ratio| ratio > BELIEVED) {
        return;
    }
    row.wire_bits_per_s = Some(speed);
    row.wire_ratio = ratio;
}

/// Mbit/s of the hardware behind an end's interface.
fn speed(end: &SideReport) -> Option<u32> {
    Some(end.nic.as_ref()?.wire?.mbit_per_s)
}

/// The packets that carry the row's stream, full segments or single messages.
fn load(row: &Row, spec: &TestSpec, near: &SideReport, far: Option<&SideReport>) -> Option<Load> {
    let ends = || [Some(near), far].into_iter().flatten();
    let nics = || ends().filter_map(|end| end.nic.as_ref());
    let tags = nics().filter_map(|nic| nic.wire).map(|wire| wire.vlan_tags).max().unwrap_or(0);
    let ipv6 = ends().find_map(|end| end.ipv6)?;
    let packets = |mtu| Packets { ipv6, mtu, tags: tags.into() };
    match spec.transport {
        Transport::Tcp => {
            let infos: Vec<&TcpInfo> = ends().flat_map(tcp_infos).collect();
            // Of two directions, each end has a size of its own.
            let mss = row.mss_bytes.or_else(|| infos.first().map(|info| info.mss_bytes.into()))?;
            let timestamps = infos.iter().find_map(|info| info.timestamps)?;
            // The MTU does not count: segments are as long as the kernel makes them.
            packets(0).segments(mss, if timestamps { TIMESTAMPS } else { 0 })
        }
        Transport::Udp | Transport::UdpLite => {
            let mtu = nics().filter_map(|nic: &NicFacts| nic.mtu_bytes).min()?;
            packets(mtu.into()).udp(spec.sizes.message_bytes)
        }
        _ => None,
    }
}

fn tcp_infos(end: &SideReport) -> impl Iterator<Item = &TcpInfo> {
    end.phases.iter().flat_map(|window| &window.flows).filter_map(|flow| flow.tcp_info.as_ref())
}

#[cfg(test)]
mod tests {
    use netcore::{
        report::{Phase, WireFacts},
        spec::{Direction, Role, Side},
    };

    use super::*;
    use crate::schedule::fake::{flow, report, spec, window};

    /// An end whose interface is of a wire of this speed.
    fn end(side: Side, mbit_per_s: Option<u32>, vlan_tags: u32) -> SideReport {
        let mut flow = flow(0, Role::Sender, 0, 0);
        flow.tcp_info = Some(TcpInfo { mss_bytes: 1448, timestamps: Some(true), ..TcpInfo::default() });
        let wire = mbit_per_s.map(|mbit_per_s| WireFacts { mbit_per_s, vlan_tags });
        SideReport {
            nic: Some(NicFacts { mtu_bytes: Some(1500), wire, ..NicFacts::default() }),
            ipv6: Some(false),
            ..report(side, vec![window(Phase::Measure, 1, vec![flow])])
        }
    }

    fn filled(row: Row, spec: &TestSpec, near: &SideReport, far: Option<&SideReport>) -> (Option<f64>, Option<f64>) {
        let mut row = row;
        fill(&mut row, spec, near, far);
        (row.wire_bits_per_s, row.wire_ratio.map(|ratio| (ratio * 1e6).round() / 1e6))
    }

    #[test]
    fn the_slower_interface_of_two_real_ones_is_the_wire() {
        let spec = spec(Direction::Forward);
        let row = |rate: f64| Row { throughput_bits_per_s: Some(rate), ..Row::default() };
        let full = 100e6 * 1448.0 / 1538.0;
        let (slow, fast) = (end(Side::Near, Some(100), 0), end(Side::Far, Some(1000), 0));
        assert_eq!(filled(row(full), &spec, &slow, Some(&fast)), (Some(1e8), Some(1.0)));
        let tagged = end(Side::Far, Some(100), 1);
        let ratio = ((1542.0 / 1538.0_f64) * 1e6).round() / 1e6;
        assert_eq!(filled(row(full), &spec, &slow, Some(&tagged)), (Some(1e8), Some(ratio)));
        // More than it can carry is not over it.
        assert_eq!(filled(row(full * 1.06), &spec, &slow, Some(&fast)), (None, None));
        let virtual_one = end(Side::Far, None, 0);
        assert_eq!(filled(row(full), &spec, &slow, Some(&virtual_one)), (None, None));
        assert_eq!(filled(row(full), &spec, &slow, None), (None, None));
        // The plan's word counts, whatever the interfaces say.
        let said = Row { wire_bits_per_s: Some(5e7), ..row(full) };
        assert_eq!(filled(said, &spec, &slow, None), (Some(5e7), Some(2.0)));
        let both = Row { direction: Some(Way::Both), ..row(full) };
        assert_eq!(filled(both, &spec, &slow, Some(&fast)), (Some(1e8), Some(0.5)));
    }

    #[test]
    fn datagrams_count_by_their_size_and_other_patterns_have_a_speed_only() {
        let (near, far) = (end(Side::Near, Some(100), 0), end(Side::Far, Some(100), 0));
        let mut udp = TestSpec::new(Pattern::Stream, Transport::Udp);
        udp.sizes.message_bytes = 18;
        let row = || Row { throughput_bits_per_s: Some(100e6 * 18.0 / 84.0), ..Row::default() };
        assert_eq!(filled(row(), &udp, &near, Some(&far)), (Some(1e8), Some(1.0)));
        let trips = TestSpec::new(Pattern::RequestResponse, Transport::Tcp);
        assert_eq!(filled(row(), &trips, &near, Some(&far)), (Some(1e8), None));
    }
}
