//! The filters: one file each, of one shape, and the table of them.
//!
//! A filter's file has a doc comment that is also its help, `Args`, and `run(&Args, &mut dyn Write)`. A new filter is that
//! file and its two lines here.

pub mod aggregate;
pub mod beforeafter;
pub mod compare;
pub mod export;
pub mod fit;
pub mod gate;
pub mod history;
pub mod import;
pub mod percentiles;
pub mod plot;
pub mod report;
pub mod steady;
pub mod survey;
pub mod table;
pub mod trend;
pub mod window;

use std::io::Write;

use crate::error::{Error, Verdict};

macro_rules! filters {
    ($($name:ident = $module:ident,)*) => {
        // A doc comment here would replace the filters' own help.
        #[derive(Debug, clap::Subcommand)]
        pub enum Filter {
            $( $name(Box<$module::Args>), )*
        }

        impl Filter {
            /// Runs the filter with `output` as its standard output. A closed pipe is success.
            pub fn run(&self, output: &mut dyn Write) -> Result<Verdict, Error> {
                let result = match self {
                    $( Self::$name(args) => $module::run(args, output), )*
                };
                match result {
                    Err(error) if error.is_closed_pipe() => Ok(Verdict::Ok),
                    other => other,
                }
            }
        }
    };
}

// In the order of `plumb --help`.
filters! {
    Aggregate = aggregate,
    Beforeafter = beforeafter,
    Compare = compare,
    Fit = fit,
    Export = export,
    Gate = gate,
    History = history,
    Import = import,
    Percentiles = percentiles,
    Plot = plot,
    Report = report,
    Steady = steady,
    Survey = survey,
    Table = table,
    Trend = trend,
    Window = window,
}
