//! The tables of netperf's own tests, the line before them, and the blocks that `-v 2` adds.
//!
//! A table is a title block, if titles are wanted, and one or two rows. Widths, and the blanks at the ends of lines, are part of the
//! interface: scripts cut these lines by column.

use std::net::IpAddr;

use super::{
    facts::{
        End::{Local, Remote},
        Facts,
    },
    kind::Calls,
    mapping::service_port,
    request::Request,
};

/// Prints it. `far`: the address that the name of the far end has.
pub fn banner(request: &Request, far: IpAddr) -> String {
    let title = title(request);
    let family = if far.is_ipv6() { "AF_INET6" } else { "AF_INET" };
    let ports = request.specifics.ports;
    let (source, destination) = (request.source(), request.destination());
    let source_address = if source == "::0" { "::" } else { source.as_str() };
    format!(
        "{title} from {source} ({source_address}) port {} {family} to {destination} ({far}) port {} {family}{}\n",
        ports.local.unwrap_or(0),
        ports.remote.unwrap_or(if request.globals.no_control { service_port(request.shape) } else { 0 }),
        suffixes(request, &title)
    )
}

fn title(request: &Request) -> String {
    match request.test() {
        Some(test) if !test.title.is_empty() => test.title.to_owned(),
        _ => format!("OMNI {} TEST", request.shape.direction()),
    }
}

/// Peculiarities of the test, each after a colon.
fn suffixes(request: &Request, title: &str) -> String {
    let globals = &request.globals;
    let specifics = &request.specifics;
    let confidence = globals.goal.map(|goal| {
        let only = if goal.result_only { " on result only" } else { "" };
        format!("+/-{:.3}% @ {:>2}% conf. {only}", 50.0 * goal.width, goal.level)
    });
    let burst = title.contains("REQUEST/RESPONSE").then(|| format!("first burst {}", specifics.burst));
    let word = |holds: bool, word: &str| holds.then(|| word.to_owned());
    let parts = [
        confidence,
        word(specifics.no_delay, "nodelay"),
        word(specifics.copy_avoidance, "copy avoidance"),
        word(globals.no_control, "no control"),
        word(true, "demo"),
        burst,
        word(globals.cpu.local.is_some() || globals.cpu.remote.is_some(), "cpu bind"),
    ];
    let parts = std::iter::once(String::new()).chain(parts.into_iter().flatten());
    parts.collect::<Vec<_>>().join(" : ")
}

/// Prints the table: `-v 0` is the result alone; above 2 there is none.
pub fn render(facts: &Facts<'_>) -> String {
    let shape = facts.shape();
    let globals = facts.globals();
    let table = Table { facts, with_cpu: globals.local_cpu || globals.remote_cpu };
    if globals.verbosity > 2 {
        return String::new();
    }
    match (globals.verbosity, shape.transport.is_datagram(), shape.has_transactions()) {
        (..=0, true, false) => table.brief_datagrams(),
        (..=0, ..) => table.brief(),
        (_, true, false) => table.titled(Table::datagram_titles, Table::datagrams),
        (_, _, true) => table.titled(Table::exchange_titles, Table::exchange),
        _ => table.titled(Table::stream_titles, Table::stream),
    }
}

struct Table<'a> {
    facts: &'a Facts<'a>,
    with_cpu: bool,
}

impl Table<'_> {
    fn titled(&self, titles: fn(&Self) -> String, rows: fn(&Self) -> String) -> String {
        let titles = if self.facts.globals().headers { titles(self) + "\n" } else { String::new() };
        titles + &rows(self)
    }

    /// The tag of `-B`, which only a table without titles has.
    fn tag(&self) -> &str {
        let globals = self.facts.globals();
        globals.tag.as_deref().filter(|_| !globals.headers).unwrap_or_default()
    }

    fn unit(&self) -> &'static str {
        self.facts.unit().label()
    }

    /// The unit in eight characters.
    fn short_unit(&self) -> String {
        format!("{:<8.8}", self.unit())
    }

    /// Methods of the CPU figures of both ends.
    fn methods(&self) -> (&'static str, &'static str) {
        (self.facts.cpu_method(Local), self.facts.cpu_method(Remote))
    }

    /// The service demand of the end whose CPU was asked for.
    fn demand(&self) -> (f64, &'static str) {
        let end = if self.facts.globals().local_cpu { Local } else { Remote };
        (self.facts.mean_demand(end), self.facts.cpu_method(end))
    }

    /// The tests with connections of their own have no tag and no method.
    fn is_plain(&self) -> bool {
        self.facts.shape().connects
    }

    fn brief(&self) -> String {
        let (demand, method) = self.demand();
        match (self.with_cpu, self.is_plain()) {
            (false, false) => format!("{:>7.2} {}\n", self.facts.iterations.mean_throughput(), self.tag()),
            (false, true) => format!("{:>7.2}\n", self.facts.iterations.mean_throughput()),
            (true, false) => format!("{demand:>6.3} {method} {}\n", self.tag()),
            (true, true) => format!("{demand:>6.3}\n"),
        }
    }

    /// The rate at which datagrams were sent, of the last iteration.
    fn sent_rate(&self) -> f64 {
        self.facts.rate(Local, |end| end.bytes_sent)
    }

    fn brief_datagrams(&self) -> String {
        if self.with_cpu {
            let (demand, method) = self.demand();
            format!("{demand:>6.2} {method}\n")
        } else {
            format!("{:>7.2}\n", self.sent_rate())
        }
    }

    fn stream_titles(&self) -> String {
        if !self.with_cpu {
            return format!(
                "Recv   Send    Send                          \n\
                 Socket Socket  Message  Elapsed              \n\
                 Size   Size    Size     Time     Throughput  \n\
                 bytes  bytes   bytes    secs.    {}/sec  \n",
                self.unit()
            );
        }
        let (here, there) =
            if self.facts.shape().calls == Calls::RECEIVE { ("Recv", "Send") } else { ("Send", "Recv") };
        let (local, remote) = self.methods();
        format!(
            "Recv   Send    Send                          Utilization       Service Demand\n\
             Socket Socket  Message  Elapsed              {here}     {there}     {here}    {there}\n\
             Size   Size    Size     Time     Throughput  local    remote   local   remote\n\
             bytes  bytes   bytes    secs.    {}/s  % {local}      % {remote}      us/KB   us/KB\n",
            self.short_unit()
        )
    }

    fn stream(&self) -> String {
        let facts = self.facts;
        let is_reverse = facts.shape().calls == Calls::RECEIVE;
        let (receiver, sender) = if is_reverse { (Local, Remote) } else { (Remote, Local) };
        let sizes = format!(
            "{:>6} {:>6} {:>6}    {:<6.2}",
            facts.initial_size(receiver, false),
            facts.initial_size(sender, true),
            facts.send_size(sender),
            facts.iterations.elapsed_s()
        );
        let rate = facts.iterations.mean_throughput();
        if self.with_cpu {
            format!("{sizes}     {rate:>7.2}   {} {}\n", self.cpu(8), self.tag())
        } else {
            format!("{sizes}   {rate:>7.2}   {}\n", self.tag())
        }
    }

    /// CPU use and service demand of both ends.
    fn cpu(&self, width: usize) -> String {
        let (local, remote) = (self.facts.mean_cpu(Local), self.facts.mean_cpu(Remote));
        let (here, there) = (self.facts.mean_demand(Local), self.facts.mean_demand(Remote));
        let gap = " ".repeat(width - 5);
        format!("{local:<6.2}{gap}{remote:<6.2}{gap}{here:<6.3}  {there:<6.3}")
    }

    fn exchange_titles(&self) -> String {
        let by_transactions = self.facts.unit().is_transactions() || self.is_plain();
        if !self.with_cpu {
            let (over, name, unit) = if by_transactions {
                ("Trans.", "Rate         ", "per sec   ".to_owned())
            } else {
                ("", "Throughput ", format!("{}/sec   ", self.unit()))
            };
            return format!(
                "Local /Remote\n\
                 Socket Size   Request  Resp.   Elapsed  {over}\n\
                 Send   Recv   Size     Size    Time     {name}\n\
                 bytes  Bytes  bytes    bytes   secs.    {unit}\n"
            );
        }
        let (over, name, demand) = if by_transactions {
            ("Trans.", "Rate    ".to_owned(), "us/Tr")
        } else {
            ("Tput  ", self.short_unit(), "us/KB")
        };
        let (local, remote) = if self.is_plain() { (" ", " ") } else { self.methods() };
        format!(
            "Local /Remote\n\
             Socket Size   Request Resp.  Elapsed {over}   CPU    CPU    S.dem   S.dem\n\
             Send   Recv   Size    Size   Time    {name} local  remote local   remote\n\
             bytes  bytes  bytes   bytes  secs.   per sec  % {local}    % {remote}    {demand}   {demand}\n"
        )
    }

    fn exchange(&self) -> String {
        let facts = self.facts;
        let (request, response) = match facts.shape().calls {
            Calls::BOTH => (facts.spec.sizes.request_bytes, facts.spec.sizes.response_bytes),
            // The table of connections without data has netperf's default sizes.
            _ => (1, 1),
        };
        let (send, receive) = (facts.initial_size(Local, true), facts.initial_size(Local, false));
        let (elapsed, rate) = (facts.iterations.elapsed_s(), facts.iterations.mean_throughput());
        let first = if self.with_cpu {
            // Only TCP_RR has two blanks after the rate.
            let gap = if facts.shape().transport.is_datagram() || self.is_plain() { "   " } else { "  " };
            let (local, remote) = (facts.mean_cpu(Local), facts.mean_cpu(Remote));
            let (here, there) = (facts.mean_demand(Local), facts.mean_demand(Remote));
            let tag = if self.is_plain() { String::new() } else { format!(" {}", self.tag()) };
            format!(
                "{send:<6} {receive:<6} {request:<6}  {response:<6} {elapsed:<6.2}  {rate:<6.2}{gap}{local:<6.2} {remote:<6.2} \
                 {here:<6.3}  {there:<6.3}{tag}\n"
            )
        } else {
            let tag = if self.is_plain() { "" } else { self.tag() };
            format!("{send:<6} {receive:<6} {request:<6}   {response:<6}  {elapsed:<6.2}   {rate:>7.2}   {tag}\n")
        };
        format!("{first}{:<6} {:<6}\n", facts.initial_size(Remote, true), facts.initial_size(Remote, false))
    }

    fn datagram_titles(&self) -> String {
        let unit = self.unit();
        if !self.with_cpu {
            return format!(
                "Socket  Message  Elapsed      Messages                \n\
                 Size    Size     Time         Okay Errors   Throughput\n\
                 bytes   bytes    secs            #      #   {unit}/sec\n"
            );
        }
        let (local, remote) = self.methods();
        format!(
            "Socket  Message  Elapsed      Messages                   CPU      Service\n\
             Size    Size     Time         Okay Errors   Throughput   Util     Demand\n\
             bytes   bytes    secs            #      #   {unit}/sec % {local}{remote}     us/KB\n"
        )
    }

    /// The sender's row, the receiver's, and an empty line. Counts and rates are of the last iteration.
    fn datagrams(&self) -> String {
        let facts = self.facts;
        let elapsed = facts.iterations.elapsed_s();
        let calls = |end| facts.end(end).map_or((0, 0), |figures| (figures.sends, figures.receives));
        let received_rate = facts.rate(Remote, |end| end.bytes_received);
        let sender = format!(
            "{:>6}  {:>6}   {elapsed:<7.2}   {:>7} {:>6}    ",
            facts.initial_size(Local, true),
            facts.send_size(Local),
            calls(Local).0,
            facts.figures.failed_sends
        );
        let receiver = format!(
            "{:>6}           {elapsed:<7.2}   {:>7}           ",
            facts.initial_size(Remote, false),
            calls(Remote).1
        );
        if !self.with_cpu {
            return format!("{sender}{:>7.2}\n{receiver}{received_rate:>7.2}\n\n", self.sent_rate());
        }
        let cpu = |end| format!("     {:<6.2}   {:<6.3}", facts.mean_cpu(end), facts.mean_demand(end));
        let (here, there) = (cpu(Local), cpu(Remote));
        format!("{sender}{:>7.1}{here}\n{receiver}{received_rate:>7.1}{there}\n\n", self.sent_rate())
    }
}

/// Prints them; nothing below `-v 2` and for tests over datagrams.
pub fn blocks(facts: &Facts<'_>) -> String {
    let shape = facts.shape();
    if facts.globals().verbosity < 2 || shape.transport.is_datagram() {
        return String::new();
    }
    match (shape.connects, shape.has_transactions()) {
        (true, _) => connections(facts),
        (false, true) => exchange(facts),
        (false, false) => stream(facts),
    }
}

fn connections(facts: &Facts<'_>) -> String {
    format!(
        "\nAlignment      Offset\nLocal  Remote  Local  Remote\nSend   Recv    Send   Recv\n\
         {:>5}  {:>5}   {:>5}  {:>5}\n",
        facts.alignment(Local),
        facts.alignment(Remote),
        facts.buffers(Local).offset,
        facts.buffers(Remote).offset
    )
}

fn stream(facts: &Facts<'_>) -> String {
    let is_reverse = facts.shape().calls == Calls::RECEIVE;
    let (here, there) = if is_reverse { ("Recv", "Send") } else { ("Send", "Recv") };
    let (sender, other) = if is_reverse { (Remote, Local) } else { (Local, Remote) };
    let sent = facts.end(sender).map_or((0, 0), |end| (end.bytes_sent, end.sends));
    let received = facts.end(other).map_or((0, 0), |end| (end.bytes_received, end.receives));
    let per_send = facts.per_call(sender, |end| (end.bytes_sent, end.sends));
    let per_receive = facts.per_call(other, |end| (end.bytes_received, end.receives));
    // This end's calls come first.
    let (bytes, first, second) = if is_reverse {
        (received.0, (per_receive, received.1), (per_send, sent.1))
    } else {
        (sent.0, (per_send, sent.1), (per_receive, received.1))
    };
    format!(
        "\nAlignment      Offset         Bytes    Bytes       {here}s   Bytes    {there}s\n\
         Local  Remote  Local  Remote  Xfered   Per                 Per\n\
         {here}   {there}    {here}   {there}             {here} (avg)          {there} (avg)\n\
         {:>5}   {:>5}  {:>5}   {:>5} {bytes:>6}  {:>6.2}    {:>6}   {:>6.2} {:>6}\n\
         \nMaximum\nSegment\nSize (bytes)\n{:>6}\n",
        facts.alignment(Local),
        facts.alignment(Remote),
        facts.buffers(Local).offset,
        facts.buffers(Remote).offset,
        first.0,
        first.1,
        second.0,
        second.1,
        facts.figures.mss.map_or(-1, u64::cast_signed)
    )
}

fn exchange(facts: &Facts<'_>) -> String {
    let unit = facts.unit().as_volume();
    let rate = |bytes| facts.figures.rate_of(bytes, unit);
    format!(
        "Alignment      Offset         RoundTrip  Trans    Throughput\n\
         Local  Remote  Local  Remote  Latency    Rate     {:<8.8}/s\n\
         Send   Recv    Send   Recv    usec/Tran  per sec  Outbound   Inbound\n\
         {:>5}  {:>5}   {:>5}  {:>5}   {:<6.3}   {:<6.3} {:<6.3}    {:<6.3}\n",
        unit.label(),
        facts.alignment(Local),
        facts.alignment(Remote),
        facts.buffers(Local).offset,
        facts.buffers(Remote).offset,
        facts.round_trip_us().unwrap_or(-1.0),
        facts.transaction_rate().unwrap_or(0.0),
        rate(facts.figures.local.bytes_sent),
        rate(facts.figures.local.bytes_received)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_line(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        banner(&Request::parse("netperf", &words).unwrap(), [127, 0, 0, 1].into())
    }

    #[test]
    fn the_suffixes_have_their_order() {
        assert_eq!(
            first_line("-H h -t tcp_rr -I 95,5 -r -T 1 -- -D -b 4 -P 1,2"),
            "MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 (0.0.0.0) port 1 AF_INET to h (127.0.0.1) port 2 AF_INET : \
             +/-2.500% @ 95% conf.  on result only : nodelay : demo : first burst 4 : cpu bind\n"
        );
        assert_eq!(
            first_line("-t omni -i 3 -- -d maerts"),
            "OMNI Receive TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to localhost (127.0.0.1) port 0 AF_INET : \
             +/-2.500% @ 99% conf.  : demo\n"
        );
    }
}
