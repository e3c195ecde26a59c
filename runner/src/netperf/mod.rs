//! netperf's command line and output, over Plumbline's engine: `plumb netperf`, or a link to `plumb` with the name `netperf`.
//!
//! From words to a test: `words` reads them, `globals` and `specifics` the options, `request` joins them, `mapping` makes the
//! engine's test of it. From a test to text: `figures` and `facts` are plain numbers, `selectors` names them, `selection` and
//! `table` print them. `session` runs it.

mod facts;
mod figures;
mod globals;
mod kind;
mod mapping;
mod request;
mod selection;
mod selectors;
mod session;
mod specifics;
mod table;
mod words;

use std::{ffi::OsString, path::Path};

use netcore::control::stop::StopFlag;
use signal_hook::{
    consts::{SIGALRM, SIGINT},
    iterator::Signals,
};

use self::{globals::Stop, selection::CommandLine, session::Failure};
use crate::error::Exit;

/// The name of a link to the program with which this command line begins.
pub const NAME: &str = "netperf";

/// Whether a program was started by that name.
pub fn is_name(program: &OsString) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == NAME)
}

/// Runs a command line without the program's name; returns the exit code.
pub fn main(words: &[OsString]) -> u8 {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match CommandLine::parse(NAME, &words) {
        Ok(line) => {
            for complaint in &line.request.specifics.complaints {
                crate::style::tell(complaint);
            }
            match caught().and_then(|stop| session::run(&line, &stop)) {
                Ok(()) => 0,
                Err(failure) => {
                    // netperf prints its errors there, too. There is no other place for the failure to print one.
                    let _ = session::print(&schemas::text::plain_lines(&failure.text));
                    failure.code
                }
            }
        }
        Err(stop) => explain(stop),
    }
}

/// For `-h` and for a mistake in the options before `--`.
pub const USAGE: &str = "
Usage: netperf [global options] -- [test options]

This is Plumbline with netperf's command line. Global options:
    -H host[,family]       host of the far end, where netserver or
                           `plumb serve --also netperf` listens
    -p port[,local]        port of the far end (12865), and of this end
    -L address[,family]    local address
    -4, -6                 IPv4 or IPv6
    -t test                TCP_STREAM, TCP_MAERTS, TCP_RR, TCP_CRR, TCP_CC,
                           TCP_SENDFILE, UDP_STREAM, UDP_RR, SCTP_STREAM,
                           SCTP_RR, OMNI, LOC_CPU, REM_CPU or UUID
    -l length              seconds; negative: bytes or transactions; 0: until
                           it is stopped (SIGINT, SIGALRM)
    -i most,least          iterations until the result is confident
    -I level[,width]       level (95 or 99) and full width in per cent
    -r                     only the result must be confident
    -s seconds             pause between the set-up and the load
    -c, -C                 report the CPU of this end, of the far end
    -D seconds             interim results
    -f unit                G M K B (bytes), g m k b (bits), x (transactions)
    -j                     collect latency
    -P 0|1                 without or with titles
    -v level               0: the result alone; 2: more
    -B text                tag of the result
    -F file                data to send
    -S                     keep-alive on the data connection
    -T local,remote        CPUs to run on
    -y local,remote        socket priority
    -Y local,remote        type of service: 0xb8, ef, af41
    -a, -o, -W             alignment, offset and number of this end's buffers
    -V                     print the version
    -h                     print this text

A pair `a,b` sets both ends, `a,` the first and `,b` the second. One value sets
both, or, for -H, -L, -p and -F, the first.
";

/// For `-h` after `--`.
pub const TEST_USAGE: &str = "
Usage: netperf [global options] -- [test options]

Test options:
    -m local,remote        bytes per send call
    -M remote,local        bytes per receive call
    -r request,response    bytes of a request and its response
    -s send,receive        socket buffers of this end
    -S send,receive        socket buffers of the far end
    -b requests            requests under way beyond the first
    -k [selection]         print NAME=value for each selector
    -o [selection]         print CSV
    -O [selection]         print columns
                           A selection is names joined by commas, `;` between
                           blocks, `all`, a file of names, or ? for the list
    -D                     no delay (TCP_NODELAY) at both ends
    -C                     cork (TCP_CORK) at this end
    -K local,remote        congestion control
    -e seconds             a datagram without an answer counts as lost
    -R 0|1                 whether packets may leave the local network
    -H address, -L address addresses of the data, at the far end and here
    -P local,remote        ports of the data
    -p first,last          local ports of connection tests
    -d direction           for OMNI: send, recv, rr, or bits
    -T protocol            for OMNI: tcp, udp, udplite, sctp or dccp
    -t type                for OMNI: stream or dgram
    -c                     for OMNI: a connection for each transaction
    -G bytes               maximum segment size
    -l hops                time to live
    -q bytes               pace to this many bytes per second
    -f, -F, -a             discover the path's MTU, Fast Open, deferred accept
    -n                     connect the UDP socket
    -u uuid                identifier of the test
    -4, -6                 IPv4 or IPv6
    -h                     print this text
";

/// For `-V`.
pub const VERSION: &str = concat!("Netperf version 2.7.0 (Plumbline ", env!("CARGO_PKG_VERSION"), ")\n");

/// Prints why a command line is no test; returns the exit code.
fn explain(stop: Stop) -> u8 {
    let (text, code) = match stop {
        Stop::Usage(mistake) => {
            if let Some(complaint) = mistake.as_ref().and_then(words::complaint) {
                crate::style::tell(format_args!("{NAME}: {complaint}"));
            }
            crate::style::tell(USAGE.trim_end());
            return session::FAILED;
        }
        Stop::Version => (VERSION.to_owned(), 0),
        Stop::TestUsage => (TEST_USAGE.to_owned(), session::FAILED),
        Stop::Names { one_per_line } => (selection::names(one_per_line), session::FAILED),
        Stop::Wrong(why) => (format!("{why}\n"), session::REFUSED),
    };
    match session::print(&text) {
        Ok(()) => code,
        Err(failure) => failure.code,
    }
}

/// A flag that SIGINT and SIGALRM raise: the test ends early, and its results are printed. A second SIGINT ends it at once. Other
/// signals keep their defaults.
fn caught() -> Result<StopFlag, Failure> {
    let failed = |error| Failure { text: format!("signals cannot be caught: {error}\n"), code: session::FAILED };
    let stop = StopFlag::new().map_err(failed)?;
    let mut signals = Signals::new([SIGINT, SIGALRM]).map_err(failed)?;
    let flag = stop.clone();
    let spawned = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut first = true;
        for signal in signals.forever() {
            if std::mem::replace(&mut first, false) || signal == SIGINT {
                flag.request();
            }
        }
    });
    spawned.map(|_| stop).map_err(failed)
}

pub const EXAMPLES: &str = "\
Examples:
  plumb netperf -H 10.0.0.9
  plumb netperf -H 10.0.0.9 -t TCP_RR -l 5 -- -r 100,200 -k THROUGHPUT,P99_LATENCY
  plumb netperf -H 10.0.0.9 -D -0.2 -P 0 -v 0 -t UDP_RR -- -e 1
  ln -s $(command -v plumb) ~/.local/bin/netperf

The far end is a netserver, or `plumb serve --also netperf`. The options are netperf's: `plumb netperf -h` prints them, and `-h` \
after `--` those of a test. A link to the program with the name `netperf` is the same command.";

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Print this help.
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
    /// netperf's options; after `--` those of its test.
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// Runs a command line that clap has read. [`own_words`] takes most of them before.
pub fn run(args: &Args) -> Exit {
    Exit::Command(main(&args.options))
}

/// The words of netperf's own grammar, which clap must not read: behind the name of a link, or behind the subcommand unless
/// its help is asked for.
pub fn own_words(args: &[OsString]) -> Option<&[OsString]> {
    match args {
        [program, words @ ..] if is_name(program) => Some(words),
        [_, name, words @ ..] if name == NAME && words.first().is_none_or(|word| word != "--help") => Some(words),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
