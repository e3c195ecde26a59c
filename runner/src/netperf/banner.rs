//! The line before a test's results: its name, its two ends, and what is special about it.

use std::net::IpAddr;

use super::{mapping::service_port, request::Request};

/// Prints it. `far`: the address that the name of the far end has.
pub fn render(request: &Request, far: IpAddr) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn banner(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        render(&Request::parse("netperf", &words).unwrap(), [127, 0, 0, 1].into())
    }

    #[test]
    fn the_suffixes_have_their_order() {
        assert_eq!(
            banner("-H h -t tcp_rr -I 95,5 -r -T 1 -- -D -b 4 -P 1,2"),
            "MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 (0.0.0.0) port 1 AF_INET to h (127.0.0.1) port 2 AF_INET : \
             +/-2.500% @ 95% conf.  on result only : nodelay : demo : first burst 4 : cpu bind\n"
        );
        assert_eq!(
            banner("-t omni -i 3 -- -d maerts"),
            "OMNI Receive TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to localhost (127.0.0.1) port 0 AF_INET : \
             +/-2.500% @ 99% conf.  : demo\n"
        );
    }
}
