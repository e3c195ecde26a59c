//! A command line as a request: what to run.

use netcore::spec::Family;

use super::{
    globals::{self, Globals, Stop},
    kind::{Calls, Shape, Task, Test, Unit, named},
    specifics::{self, Specifics},
    words,
};

/// A command line that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub globals: Globals,
    pub specifics: Specifics,
    /// `None`: the name is unknown. netperf says so after it has reached the far end.
    pub task: Option<Task>,
    /// Protocol, direction and connections of the test, also where `-t omni` leaves them to its options.
    pub shape: Shape,
    pub unit: Unit,
    /// Whether latency is collected and shown.
    pub wants_latency: bool,
    /// The whole command line.
    pub line: String,
}

impl Request {
    /// Reads the words after the program's name, which `program` is in messages.
    pub fn parse(program: &str, words: &[String]) -> Result<Self, Stop> {
        let (global, specific) = words::split(words, globals::LETTERS);
        let globals = globals::parse(global)?;
        let task = named(&globals.test);
        let is_omni = globals.test == "OMNI";
        let mut specifics = specifics::parse(specific, program, is_omni)?;
        specifics.family = specifics.family.or((globals.family != Family::Any).then_some(globals.family));
        let shape = shape(task, &specifics);
        let unit = Unit::of(globals.unit, shape.has_transactions());
        let wants_latency = globals.statistics;
        let line = [&[program.to_owned()], words].concat().join(" ");
        Ok(Self { globals, specifics, task, shape, unit, wants_latency, line })
    }

    /// The test; `None` for the other tasks.
    pub fn test(&self) -> Option<&Test> {
        match &self.task {
            Some(Task::Test(test)) => Some(test),
            _ => None,
        }
    }

    /// Host of the control connection.
    pub fn host(&self) -> &str {
        let default = if self.globals.family == Family::V6 { "::1" } else { "localhost" };
        self.globals.host.as_deref().unwrap_or(default)
    }

    /// Address of the data at the far end.
    pub fn destination(&self) -> String {
        self.specifics.host.clone().unwrap_or_else(|| self.host().to_owned())
    }

    /// Address of the data at this end; by default the wildcard.
    pub fn source(&self) -> String {
        let wildcard =
            if self.destination().contains(':') || self.globals.family == Family::V6 { "::0" } else { "0.0.0.0" };
        let given = self.specifics.local.as_ref().or(self.globals.local.as_ref());
        given.cloned().unwrap_or_else(|| wildcard.to_owned())
    }
}

/// The shape of a test: `-t omni` leaves protocol, direction and connections to the options of the test.
fn shape(task: Option<Task>, specifics: &Specifics) -> Shape {
    let default = super::kind::TESTS[0];
    let test = match task {
        Some(Task::Test(test)) => test,
        _ => default,
    };
    if test.name != "OMNI" {
        return test.shape;
    }
    let calls = specifics.calls.unwrap_or_default();
    let calls = if calls == Calls::NONE && !specifics.connects { Calls::SEND } else { calls };
    Shape { transport: specifics.transport.unwrap_or(test.shape.transport), calls, connects: specifics.connects }
}

#[cfg(test)]
mod tests {
    use netcore::spec::Transport;

    use super::*;

    fn read(line: &str) -> Request {
        Request::parse("netperf", &line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn omni_takes_its_shape_from_the_options() {
        for (line, direction, transport) in [
            ("", "Send", Transport::Tcp),
            ("-d rr", "Send|Recv", Transport::Tcp),
            ("-r 10,20", "Send|Recv", Transport::Tcp),
            ("-T udp -d stream", "Send", Transport::Udp),
            ("-d maerts", "Receive", Transport::Tcp),
            ("-c -d 0", "Connection", Transport::Tcp),
            ("-c -d rr", "Connect|Send|Recv", Transport::Tcp),
            ("-t dgram -d rr", "Send|Recv", Transport::Udp),
        ] {
            let request = read(&format!("-t omni -- {line}"));
            assert_eq!((request.shape.direction(), request.shape.transport), (direction, transport), "{line}");
        }
        // A test with a name keeps its direction.
        assert_eq!(read("-t tcp_stream -- -d rr").shape.direction(), "Send");
    }

    #[test]
    fn hosts_have_netperfs_defaults() {
        assert_eq!((read("").host(), read("-6").host()), ("localhost", "::1"));
        let request = read("-H a -L b -- -H c");
        assert_eq!((request.host(), request.destination(), request.source()), ("a", "c".to_owned(), "b".to_owned()));
        assert_eq!(read("-H ::1").source(), "::0");
        assert_eq!(read("-H a -- -L 10.0.0.1,4").source(), "10.0.0.1");
    }

    #[test]
    fn the_line_is_kept() {
        assert_eq!(read("-t UDP_RR -- -e 1").line, "netperf -t UDP_RR -- -e 1");
    }
}
