//! The first bytes of data connections and datagrams, and the headers of messages.

use crate::{
    pattern::sequence::{self, Ledger},
    spec::Mark,
    sys,
    transport::{
        connection::{PREAMBLE_BYTES, flow_of, is_greeting, preamble},
        icmp::Form,
        link,
    },
};

/// Everything that an end reads of a stranger's data before it knows whose it is.
pub fn preambles(bytes: &[u8]) {
    let token = [7; 16];
    for start in [bytes, bytes.get(..PREAMBLE_BYTES).unwrap_or_default(), link::message(bytes)] {
        if let Some(flow) = flow_of(start, &token) {
            assert!(start == preamble(&token, flow) && is_greeting(start, PREAMBLE_BYTES, 28));
        }
    }
    if let Some(address) = sys::ip_address(bytes) {
        let (again, length) = sys::address_bytes(address);
        let again = sys::ip_address(&again[..length as usize]).expect("an address");
        assert_eq!((again.ip(), again.port()), (address.ip(), address.port()));
    }
    for (v6, raw) in [(false, false), (false, true), (true, false), (true, true)] {
        let form = Form { v6, raw, id: 0x0101 };
        let _ = (form.payload(bytes), form.read(bytes));
    }
    for mark in [Mark::None, Mark::Plumb, Mark::Iperf3 { wide_counter: false }, Mark::Iperf3 { wide_counter: true }] {
        let mut ledger = Ledger::new(mark);
        for (message, now_ns) in bytes.chunks(20).zip(0..) {
            let _ = sequence::number(message);
            ledger.arrive(message, 1, now_ns);
        }
    }
}
