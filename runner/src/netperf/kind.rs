//! The tests that `-t` names, and what a test does.

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
}
