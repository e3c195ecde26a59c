//! `plumb table`: tables for people.

pub(crate) mod view;

use crate::{
    cases::Cases,
    error::{Error, Verdict},
    table::{
        Format, InputArgs, OutputArgs, Table, formats,
        layout::{self, Sheet},
    },
};
use std::io::Write;

/// A table for people: aligned columns, readable units, or Markdown.
///
/// plumb run plans/quick.yaml | plumb aggregate -g case | plumb table
///
/// Leaves out columns without any value, and gives numbers the units of their columns' names (41.8 Gbit/s, 49 µs, 64
/// KiB). Of results, verdicts and counters it shows the most important rows and columns: --all shows everything,
/// --columns, --record and --where choose. On a terminal the table fits the width: names are shortened in the middle,
/// and a last line names columns without room; in files and pipes every cell is whole. Reads the whole table before it
/// prints, because widths depend on all rows.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Show these columns (or metrics, or plan keys), in this order
    #[arg(short, long, value_name = "COLUMN,…", value_delimiter = ',')]
    columns: Vec<String>,
    /// Sort by these columns; a minus before a name sorts from the largest: --sort=-latency.p99,case
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', allow_hyphen_values = true)]
    sort: Vec<String>,
    /// Show every row, and every column that has a value (with --columns these)
    #[arg(long)]
    all: bool,
    /// Show the rows of this phase: warmup, measure, cooldown or all [default: measure; with --all all]
    #[arg(long, value_name = "PHASE", help_heading = "Which rows are shown")]
    phase: Option<String>,
    /// Show this kind of row: iteration, summary, stream, interval or probe [default: the first of these that occurs]
    #[arg(long, value_name = "KIND", help_heading = "Which rows are shown")]
    record: Option<String>,
    /// Show only rows where this holds: COLUMN=VALUE, !=, <, <=, >, >= (quantities as in plans: 64KiB, 80us), or
    /// COLUMN~TEXT (contains). May be repeated; all must hold
    #[arg(long = "where", value_name = "CONDITION", help_heading = "Which rows are shown")]
    conditions: Vec<String>,
    /// Show the result of each case, as at the end of `plumb run`: a row per case instead of one per iteration
    #[arg(long, conflicts_with_all = ["columns", "sort", "all", "phase", "record", "conditions", "raw"])]
    summary: bool,
    /// text or md (a Markdown table)
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = formats([(Format::Text, "Aligned columns"), (Format::Md, "A Markdown table")]))]
    format: Format,
    /// `--format md`
    #[arg(long, hide = true, num_args = 0, default_missing_value = "md")]
    md: Option<Format>,
    /// Show numbers as they are in the file
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let mut table = Table::open(&args.input)?;
    let columns = if args.summary {
        Cases::read(&mut table)?.table(&[])
    } else {
        let view = view::View::choose(&mut table, args)?;
        view.note.iter().for_each(|note| crate::warn(note));
        view.columns(args.raw)
    };
    let all_columns = !args.columns.is_empty();
    let sheet = Sheet { hint: "--columns names those to show", all_columns, ..Sheet::of(&args.output) };
    args.output.write(output, |w| {
        if args.md.unwrap_or(args.format) == Format::Md {
            layout::markdown(&columns, w)?;
        } else {
            layout::aligned(&columns, &sheet, w)?;
        }
        Ok(())
    })?;
    Ok(Verdict::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed;

    const RESULTS: &str = "run_id,case,record,phase,status,iteration,message_bytes,throughput_bits_per_s,latency_p99_us,axis_socket_mss\n\
        r,a,iteration,measure,ok,1,1024,3e9,70,500\nr,a,iteration,measure,failed,2,1024,1e9,90,500\n\
        r,b,iteration,measure,ok,1,65536,2e9,80,900\nr,b,interval,measure,ok,1,65536,5e9,,900\n\
        r,b,interval,warmup,ok,1,65536,6e9,,900\nr,b,summary,,ok,,65536,2e9,80,900\n";
    const VERDICTS: &str = "case_id,case,assertion,metric,n,observed,limit,change_ratio,verdict,severity,note\n\
        c1,a,throughput >= 1Gbit/s,throughput_bits_per_s,3,3e9,1e9,,pass,error,\n\
        c2,b,latency.p99 < 80us,latency_p99_us,3,90,80,,fail,error,why\n";
    const COUNTERS: &str = "host,source,key,before,after,delta,elapsed_s,rate_per_s,note\n\
        h,snmp,Tcp.RetransSegs,10,19,9,1,9,\nh,snmp,Tcp.OutSegs,100,400,300,1,300,\n";

    fn printed(text: &str, options: &[&str]) -> Result<String, Error> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().to_str().unwrap();
        let args = parsed(["table", path].iter().chain(options)).unwrap();
        let mut out = Vec::new();
        run(&args, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn rows_and_columns_of_results_are_chosen_and_sorted() {
        let shown = |options: &[&str]| printed(RESULTS, options).unwrap();
        assert_eq!(
            shown(&[
                "--columns",
                "case,message_size,throughput",
                "--where",
                "latency.p99 <= 80us",
                "--sort=-throughput"
            ]),
            "case  message size   throughput\na            1 KiB  3.00 Gbit/s\nb           64 KiB  2.00 Gbit/s\n"
        );
        let intervals = ["--record", "interval", "--columns", "throughput"];
        assert_eq!(shown(&intervals), " throughput\n5.00 Gbit/s\n");
        assert!(shown(&[&intervals[..], &["--phase", "all"]].concat()).contains("6.00 Gbit/s"));
        let all =
            shown(&["--all", "--where", "socket.mss = 900", "--columns", "record", "--sort", "latency.p99,record"]);
        assert_eq!(all, "record\niteration\nsummary\ninterval\ninterval\n");
        // Failed rows are shown, and can be asked for.
        assert!(shown(&["--where", "status=failed"]).contains("1.00 Gbit/s"));
        assert!(printed(RESULTS, &["--record", "row"]).is_err());
    }

    #[test]
    fn a_probe_shows_latency_and_what_load_adds() {
        let text = "run_id,case_id,case,member,record,phase,status,workload,offered_unit,iteration,throughput_bits_per_s,\
             transactions_per_s,added_latency_p50_us,latency_p50_us,load_confidence\n\
             r,c1,a,up,iteration,measure,ok,tcp_stream,,1,1e9,,,,\n\
             r,c1,a,up-tcp,iteration,measure,ok,tcp_rr,transactions,1,800,100,1900,2000,low\n\
             r,c2,b,,iteration,measure,ok,tcp_rr,,1,1e6,20000,,49,\n";
        let shown = printed(text, &[]).unwrap();
        assert!(shown.contains("added latency") && shown.contains("1.90 ms") && shown.contains("20.0 k/s"), "{shown}");
        for incidental in ["800", "100 /s", "1.00 Mbit/s"] {
            assert!(!shown.contains(incidental), "{shown}");
        }
        assert!(printed(text, &["--columns", "throughput"]).unwrap().contains("800 bit/s"));
        let summary = printed(text, &["--summary", "-f", "md"]).unwrap();
        assert!(summary.contains("| a up-tcp | tcp_rr     | added latency, median |     1.90 ms |"), "{summary}");
    }

    #[test]
    fn a_service_demand_says_of_what_work() {
        let text = "case,local_service_demand,service_demand_unit\na,2,us_per_kib\nb,3,us_per_transaction\nc,4,\n";
        let shown = printed(text, &["-c", "case,service_demand.local"]).unwrap();
        let cells: Vec<&str> = shown.lines().skip(1).filter_map(|line| Some(line.split_once(' ')?.1.trim())).collect();
        assert_eq!(cells, ["2.00 µs/KiB", "3.00 µs/transaction", "4.00 µs"], "{shown}");
    }

    #[test]
    fn a_mean_is_that_of_the_iterations_and_stands_in_its_interval() {
        let text = "run_id,case_id,case,record,phase,status,workload,offered_unit,iterations,latency_p50_us,errors,transactions\n\
            r,c1,a,iteration,measure,ok,udp_rr,transactions,,200,1,9\n\
            r,c1,a,iteration,measure,ok,udp_rr,transactions,,40000,3,7\n\
            r,c1,a,summary,,ok,udp_rr,transactions,2,220,4,16\n";
        let summary = printed(text, &["--summary"]).unwrap();
        let cells: Vec<&str> = summary.lines().last().unwrap().split("  ").map(str::trim).collect();
        let is_there = |cell: &str| cells.contains(&cell);
        assert!(is_there("20.1 ms") && is_there("220 µs") && is_there("20.0 % unanswered"), "{summary}");
    }

    #[test]
    fn a_limit_names_a_direction_once() {
        let text = "run_id,case_id,case,record,phase,status,workload,direction,limited_by,limited_because\n\
            r,c1,a,iteration,measure,ok,udp_stream,forward,path,why\nr,c1,a,iteration,measure,ok,udp_stream,reverse,unknown,\n\
            r,c1,a,iteration,measure,ok,udp_stream,both,unknown,\n";
        let limits = Cases::read(&mut Table::from_text("t", text).unwrap()).unwrap().limits();
        assert!(limits.iter().any(|line| line.starts_with("a (forward): limited by path")), "{limits:?}");
    }

    #[test]
    fn a_wide_interval_stands_in_the_place_of_its_margin() {
        let column = "throughput_bits_per_s";
        let text = format!(
            "case,{column}_mean,{column}_ci_low,{column}_ci_high,{column}_margin_ratio\n\
             a,100,98,102,0.02\nb,30000,0,59100,1.2\nc,0,-5,5,\n"
        );
        let shown = printed(&text, &[]).unwrap();
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split("  ").map(str::trim).collect()).collect();
        let last: Vec<&str> = lines.iter().map(|cells| *cells.last().unwrap()).collect();
        assert_eq!(last[1..], ["± 2.0 %", "0 bit/s … 59.1 kbit/s", "−5.00 … 5.00 bit/s"], "{shown}");
        assert!(!shown.contains("ci low") && !shown.contains("unknown"), "{shown}");
    }

    #[test]
    fn rows_of_verdicts_and_counters_are_chosen_too() {
        let verdicts = printed(VERDICTS, &["--where", "verdict=fail"]).unwrap();
        assert_eq!(
            verdicts,
            "verdict  case  assertion           observed\nfail     b     latency.p99 < 80us  90.0 µs   why\n"
        );
        let chosen = printed(VERDICTS, &["--columns", "case,observed,limit", "--where", "metric=throughput"]).unwrap();
        assert_eq!(chosen, "case  observed     limit\na     3.00 Gbit/s  1.00 Gbit/s\n");
        let counters = printed(COUNTERS, &["--where", "delta>100"]).unwrap();
        assert!(counters.contains("Tcp.OutSegs") && !counters.contains("RetransSegs"), "{counters}");
        let error = printed(COUNTERS, &["--record", "interval"]).unwrap_err().to_string();
        assert!(error.contains("there is no column `record`"), "{error}");
        assert!(printed(COUNTERS, &["--where", "detla>1"]).unwrap_err().to_string().contains("did you mean `delta`?"));
    }
}
