//! The tests that `-t` names, what a test does, and the units of its throughput (`-f`).

use netcore::spec::Transport;

/// The calls of the near end, as netperf's direction bits have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub send: bool,
    pub receive: bool,
}

impl Calls {
    pub const NONE: Self = Self { send: false, receive: false };
    pub const SEND: Self = Self { send: true, receive: false };
    pub const RECEIVE: Self = Self { send: false, receive: true };
    pub const BOTH: Self = Self { send: true, receive: true };

    pub fn and(self, other: Self) -> Self {
        Self { send: self.send || other.send, receive: self.receive || other.receive }
    }
}

/// The work of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub transport: Transport,
    pub calls: Calls,
    /// Whether each transaction has a connection of its own.
    pub connects: bool,
}

impl Shape {
    /// Whether its unit of work is a transaction.
    pub fn has_transactions(self) -> bool {
        self.connects || self.calls == Calls::BOTH
    }

    /// The value of `DIRECTION`.
    pub fn direction(self) -> &'static str {
        match (self.connects, self.calls) {
            (false, Calls::RECEIVE) => "Receive",
            (false, Calls::BOTH) => "Send|Recv",
            (false, _) => "Send",
            (true, Calls::NONE) => "Connection",
            (true, Calls::SEND) => "Connect|Send",
            (true, Calls::RECEIVE) => "Connect|Recv",
            (true, _) => "Connect|Send|Recv",
        }
    }

    /// The value of `PROTOCOL`.
    pub fn protocol(self) -> &'static str {
        match self.transport {
            Transport::Udp => "UDP",
            Transport::UdpLite => "UDPLite",
            Transport::Sctp => "SCTP",
            Transport::Dccp => "DCCP",
            _ => "TCP",
        }
    }

    /// The value of `SOCKET_TYPE`.
    pub fn socket_type(self) -> &'static str {
        match self.transport {
            Transport::Udp | Transport::UdpLite => "Datagram",
            Transport::Dccp => "DCCP",
            _ => "Stream",
        }
    }
}

/// How the results are laid out without `-k`, `-o` and `-O`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The tables of netperf's own tests.
    Table,
    /// The columns of `-O`.
    Columns,
}

/// A row of [`TESTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    pub name: &'static str,
    /// Its name in the banner; empty where the direction makes it.
    pub title: &'static str,
    pub layout: Layout,
    pub shape: Shape,
    /// Whether `sendfile` sends.
    pub sends_file: bool,
}

const fn test(name: &'static str, title: &'static str, transport: Transport, calls: Calls) -> Test {
    let shape = Shape { transport, calls, connects: false };
    Test { name, title, layout: Layout::Table, shape, sends_file: false }
}

const fn connecting(name: &'static str, title: &'static str, calls: Calls) -> Test {
    let shape = Shape { transport: Transport::Tcp, calls, connects: true };
    Test { shape, ..test(name, title, Transport::Tcp, calls) }
}

/// Every test that runs. The first is the default.
pub const TESTS: &[Test] = &[
    test("TCP_STREAM", "MIGRATED TCP STREAM TEST", Transport::Tcp, Calls::SEND),
    test("TCP_MAERTS", "MIGRATED TCP MAERTS TEST", Transport::Tcp, Calls::RECEIVE),
    test("TCP_RR", "MIGRATED TCP REQUEST/RESPONSE TEST", Transport::Tcp, Calls::BOTH),
    connecting("TCP_CRR", "MIGRATED TCP Connect/Request/Response TEST", Calls::BOTH),
    connecting("TCP_CC", "TCP Connect/Close TEST", Calls::NONE),
    Test { sends_file: true, ..test("TCP_SENDFILE", "TCP SENDFILE TEST", Transport::Tcp, Calls::SEND) },
    test("UDP_STREAM", "MIGRATED UDP STREAM TEST", Transport::Udp, Calls::SEND),
    test("UDP_RR", "MIGRATED UDP REQUEST/RESPONSE TEST", Transport::Udp, Calls::BOTH),
    test("SCTP_STREAM", "SCTP STREAM TEST", Transport::Sctp, Calls::SEND),
    test("SCTP_RR", "SCTP REQUEST/RESPONSE TEST", Transport::Sctp, Calls::BOTH),
    Test { layout: Layout::Columns, ..test("OMNI", "", Transport::Tcp, Calls::NONE) },
];

/// The test that `-t` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Test(Test),
    /// `LOC_CPU`: the rate of this host's CPU clock.
    LocalCpu,
    /// `REM_CPU`: that of the far end.
    RemoteCpu,
    /// `UUID`: a new identifier.
    Uuid,
}

/// The task of a name in any case.
pub fn named(name: &str) -> Option<Task> {
    let name = name.to_ascii_uppercase();
    match name.as_str() {
        "LOC_CPU" => Some(Task::LocalCpu),
        "REM_CPU" => Some(Task::RemoteCpu),
        "UUID" => Some(Task::Uuid),
        _ => TESTS.iter().find(|test| test.name == name).map(|test| Task::Test(*test)),
    }
}

/// A unit of throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// `x`.
    Transactions,
    /// `u`: microseconds per transaction, or per byte.
    Microseconds,
    /// Bytes or bits, with the bytes in one of them.
    Volume { label: &'static str, bytes: f64 },
}

const KIB: f64 = 1024.0;

/// Letters, labels, and bytes in one unit.
const VOLUMES: [(char, &str, f64); 8] = [
    ('B', "Bytes", 1.0),
    ('K', "KBytes", KIB),
    ('M', "MBytes", KIB * KIB),
    ('G', "GBytes", KIB * KIB * KIB),
    ('b', "10^0bits", 1.0 / 8.0),
    ('k', "10^3bits", 1e3 / 8.0),
    ('m', "10^6bits", 1e6 / 8.0),
    ('g', "10^9bits", 1e9 / 8.0),
];

impl Unit {
    /// The unit of `-f`, or the default. A letter that netperf does not know means KBytes.
    pub fn of(letter: Option<char>, has_transactions: bool) -> Self {
        match letter.unwrap_or(if has_transactions { 'x' } else { 'm' }) {
            'x' if has_transactions => Self::Transactions,
            'x' => Self::volume('m'),
            'u' => Self::Microseconds,
            letter => Self::volume(letter),
        }
    }

    fn volume(letter: char) -> Self {
        let found = VOLUMES.iter().find(|(known, ..)| *known == letter).unwrap_or(&VOLUMES[1]);
        Self::Volume { label: found.1, bytes: found.2 }
    }

    /// The unit of throughputs that are volumes in any case.
    pub fn as_volume(self) -> Self {
        match self {
            Self::Volume { .. } => self,
            Self::Transactions | Self::Microseconds => Self::volume('m'),
        }
    }

    pub fn is_transactions(self) -> bool {
        self == Self::Transactions
    }

    /// Its name, before `/s`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Transactions => "Trans",
            Self::Microseconds => "Usec",
            Self::Volume { label, .. } => label,
        }
    }

    /// A rate in this unit.
    pub fn rate(self, bytes: f64, transactions: Option<f64>, seconds: f64) -> f64 {
        match self {
            _ if seconds <= 0.0 => 0.0,
            Self::Transactions => transactions.unwrap_or(0.0) / seconds,
            Self::Microseconds => {
                let operations = transactions.unwrap_or(bytes);
                if operations > 0.0 { seconds * 1e6 / operations } else { 0.0 }
            }
            Self::Volume { bytes: one, .. } => bytes / one / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        for test in TESTS {
            assert_eq!(named(&test.name.to_ascii_lowercase()), Some(Task::Test(*test)));
        }
        assert_eq!(named("loc_cpu"), Some(Task::LocalCpu));
        assert_eq!(named("TCP_MEARTS"), None);
    }

    #[test]
    fn directions_have_netperfs_words() {
        let direction = |name| match named(name) {
            Some(Task::Test(test)) => test.shape.direction(),
            _ => panic!("{name}"),
        };
        assert_eq!(direction("TCP_STREAM"), "Send");
        assert_eq!(direction("TCP_MAERTS"), "Receive");
        assert_eq!(direction("UDP_RR"), "Send|Recv");
        assert_eq!(direction("TCP_CRR"), "Connect|Send|Recv");
        assert_eq!(direction("TCP_CC"), "Connection");
    }

    #[test]
    fn rates_have_the_units_of_their_letters() {
        let rate = |letter, transactions: Option<f64>| {
            let unit = Unit::of(letter, transactions.is_some());
            (unit.label(), unit.rate(2_500_000.0, transactions, 2.0))
        };
        assert_eq!(rate(None, None), ("10^6bits", 10.0));
        assert_eq!(rate(Some('x'), None), ("10^6bits", 10.0));
        assert_eq!(rate(Some('b'), None), ("10^0bits", 10_000_000.0));
        assert_eq!(rate(Some('g'), None), ("10^9bits", 0.01));
        assert_eq!(rate(Some('B'), None), ("Bytes", 1_250_000.0));
        assert_eq!(rate(Some('q'), None), ("KBytes", 1_220.703_125));
        assert_eq!(rate(None, Some(1000.0)), ("Trans", 500.0));
        assert_eq!(rate(Some('m'), Some(1000.0)), ("10^6bits", 10.0));
        assert_eq!(rate(Some('u'), Some(1000.0)), ("Usec", 2000.0));
        assert!(Unit::of(None, true).rate(1.0, Some(1.0), 0.0).abs() < f64::EPSILON);
    }
}
