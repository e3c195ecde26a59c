//! netperf's command line and output, over Plumbline's engine: `plumb netperf`, or a link to `plumb` with the name `netperf`.
//!
//! From words to a test: `getopt` reads the words, `globals` and `specifics` the options, `request` joins them, `plan` makes
//! the engine's test of it. From a test to text: `figures` and `facts` are plain numbers, `selectors` names them, and
//! `keyed`, `table`, `blocks` and `interim` print them. `session` runs it.

mod banner;
mod blocks;
mod confidence;
mod ends;
mod facts;
mod figures;
mod getopt;
mod globals;
mod interim;
mod keyed;
mod kind;
mod mapping;
mod outcome;
mod request;
mod selection;
mod selectors;
mod session;
mod sizes;
mod specifics;
mod table;
mod unit;
mod usage;
mod values;

#[cfg(test)]
mod tests;

use std::{ffi::OsString, path::Path};

use netcore::control::stop::StopFlag;
use signal_hook::{
    consts::{SIGALRM, SIGINT},
    iterator::Signals,
};

use self::{globals::Stop, request::Request, session::Failure};

/// The name of a link to the program with which this command line begins.
pub const NAME: &str = "netperf";

/// Whether a program was started by that name.
pub fn is_name(program: &OsString) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == NAME)
}

/// Runs a command line without the program's name; returns the exit code.
pub fn main(words: &[OsString]) -> u8 {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match Request::parse(NAME, &words) {
        Ok(request) => {
            for complaint in &request.specifics.complaints {
                crate::style::tell(complaint);
            }
            match caught().and_then(|stop| session::run(&request, &stop)) {
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

/// Prints why a command line is no test; returns the exit code.
fn explain(stop: Stop) -> u8 {
    let (text, code) = match stop {
        Stop::Usage(mistake) => {
            if let Some(complaint) = mistake.as_ref().and_then(getopt::complaint) {
                crate::style::tell(format_args!("{NAME}: {complaint}"));
            }
            crate::style::tell(usage::USAGE.trim_end());
            return session::FAILED;
        }
        Stop::Version => (usage::VERSION.to_owned(), 0),
        Stop::TestUsage => (usage::TEST_USAGE.to_owned(), session::FAILED),
        Stop::Names { one_per_line } => (keyed::names(one_per_line), session::FAILED),
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
