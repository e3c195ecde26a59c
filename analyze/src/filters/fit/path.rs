//! `plumb fit --to netem`: a path as files. The results of the plan `path` tell its rate, delay, queue and loss. A script builds
//! such a path between two network namespaces, and a plan measures it there.
//!
//! - Rate: what arrived of a flood that lost some of itself, with the headers that a queueing discipline counts.
//! - Delay: half of the smallest idle round trip. Both ways are taken to be equal, since no software can tell.
//! - Queue: what the flood adds to the median round trip, times the rate, and one packet of the flood: a probe is let in when the queue
//!   has just lost one. Medians, since the ends have tails of their own.
//! - Loss: of a stream that is slow enough to stand in no queue. Lost runs tell single losses from bursts (Gilbert 1960): a loss is
//!   followed by another one with the same probability each time, whose interval is Wilson's (1927).
//! - Jitter: reported, and not built: netem reorders packets that it delays by different times.

use std::{fmt::Write as _, fs, io::Write, os::unix::fs::PermissionsExt, path::Path};

use schemas::units::{self, Unit};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::{
    error::Error,
    stats::confidence::{Interval, t_interval},
    table::{Field, Rows, Selection, Table, cells, replace, rows::OwnedRow, write_csv},
};

/// The plan whose results are read.
const PLAN: &str = include_str!("../../../../plans/path.yaml");
/// Around the payload of a datagram in IPv4 over Ethernet, as queueing disciplines count a packet: 8 + 20 + 14 bytes.
const HEADERS: f64 = 42.0;
/// Share of the flood that must be lost: otherwise it may not have filled the path.
const FULL: f64 = 0.02;
const LEVEL: f64 = 0.95;
/// The part of a packet by which a laboratory's queue exceeds the one that was measured: with half of one, the scatter of the figure takes
/// a packet away in one of five laboratories.
const ABOVE_WHOLE: f64 = 2.0 / 3.0;

/// A figure with its interval, in the unit of its name.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figure {
    value: f64,
    low: f64,
    high: f64,
}

impl Figure {
    /// The mean of the iterations. `None`: there are fewer than two.
    fn of(values: &[f64]) -> Option<Self> {
        let Interval { centre, low, high, .. } = t_interval(values, LEVEL)?;
        Some(Self { value: centre, low: low.max(0.0), high })
    }

    /// The mean length of runs: `lost` datagrams in `runs`. A loss is followed by another one in a share of cases, and the length is
    /// 1 / (1 − share). `None` without loss.
    fn of_runs(lost: f64, runs: f64) -> Option<Self> {
        if runs <= 0.0 || lost < runs {
            return None;
        }
        let share = (lost - runs) / lost;
        let z = Normal::standard().inverse_cdf(f64::midpoint(1.0, LEVEL));
        let scale = 1.0 + z * z / lost;
        let middle = (share + z * z / (2.0 * lost)) / scale;
        let half = z * (share * (1.0 - share) / lost + z * z / (4.0 * lost * lost)).sqrt() / scale;
        let length = |share: f64| 1.0 / (1.0 - share.max(0.0));
        Some(Self { value: lost / runs, low: length(middle - half), high: length(middle + half) })
    }

    fn text(self, unit: Unit) -> String {
        units::human_with_spread(unit, self.value, self.low, self.high)
    }
}

/// A direction of the path.
#[derive(Debug)]
struct Way {
    name: &'static str,
    /// The part of the flood that arrived: the rate of the path, if the flood filled it.
    rate_bits_per_s: Figure,
    is_full: bool,
    /// The flood.
    flood_bits_per_s: f64,
    delay_us: Figure,
    /// `None`: shorter than the path's own jitter; then `queue_most` bounds it.
    queue_bytes: Option<Figure>,
    queue_most: f64,
    /// A packet of the flood, as a queueing discipline counts it.
    packet_bytes: f64,
    jitter_us: Figure,
    loss_ratio: Figure,
    /// Mean length of the runs of lost datagrams. `None`: none was lost.
    loss_run_mean: Option<Figure>,
}

/// One measured iteration.
struct Seen {
    test: String,
    member: String,
    least_us: Option<f64>,
    median_us: Option<f64>,
    p95_us: Option<f64>,
    arrived_bits_per_s: Option<f64>,
    message_bytes: Option<f64>,
    sent: Option<f64>,
    lost: Option<f64>,
    lost_runs: Option<f64>,
    offered: Option<f64>,
}

const READ: [Field; 11] = [
    Field::test,
    Field::member,
    Field::latency_min_us,
    Field::latency_p50_us,
    Field::latency_p95_us,
    Field::throughput_bits_per_s,
    Field::message_bytes,
    Field::messages_sent,
    Field::lost,
    Field::loss_runs,
    Field::offered_per_s,
];

fn seen(rows: &Rows, row: &OwnedRow) -> Result<Seen, Error> {
    let value = |field: Field| rows.value(row, field);
    Ok(Seen {
        test: rows.text(row, Field::test).to_owned(),
        member: rows.text(row, Field::member).to_owned(),
        least_us: value(Field::latency_min_us)?,
        median_us: value(Field::latency_p50_us)?,
        p95_us: value(Field::latency_p95_us)?,
        arrived_bits_per_s: value(Field::throughput_bits_per_s)?,
        message_bytes: value(Field::message_bytes)?,
        sent: value(Field::messages_sent)?,
        lost: value(Field::lost)?,
        lost_runs: value(Field::loss_runs)?,
        offered: value(Field::offered_per_s)?,
    })
}

/// The iterations of a test, or of a member of one.
struct Results(Vec<Seen>);

impl Results {
    fn read(table: &mut Table, selection: &Selection) -> Result<Self, Error> {
        let columns: Vec<usize> = READ.iter().filter_map(|field| table.header().place(*field)).collect();
        let rows = Rows::read(table, selection, &columns)?;
        rows.note.iter().for_each(|note| crate::warn(note));
        Ok(Self(rows.rows.iter().map(|row| seen(&rows, row)).collect::<Result<_, _>>()?))
    }

    /// An iteration without the value, as one whose probes were all lost, does not count.
    fn values(&self, test: &str, member: &str, value: impl Fn(&Seen) -> Option<f64>) -> Result<Vec<f64>, Error> {
        let of = |seen: &&Seen| seen.test == test && seen.member == member;
        let values: Vec<f64> = self.0.iter().filter(of).filter_map(value).collect();
        if values.len() >= 2 {
            return Ok(values);
        }
        let what =
            if member.is_empty() { format!("test `{test}`") } else { format!("test `{test}`, member `{member}`") };
        Err(Error::Usage(format!(
            "{what} has {} iterations with a value in the table, and two are needed: --to netem reads the results of `plumb run path --to \
             HOST -o path.csv`",
            values.len()
        )))
    }

    fn figure(&self, test: &str, member: &str, value: impl Fn(&Seen) -> Option<f64>) -> Result<Figure, Error> {
        let values = self.values(test, member, value)?;
        Ok(Figure::of(&values).expect("two values have an interval"))
    }

    fn way(&self, name: &'static str) -> Result<Way, Error> {
        let sum = |values: Vec<f64>| values.iter().sum::<f64>();
        let flood = |value: fn(&Seen) -> Option<f64>| self.values(name, "load", value);
        let is_full = sum(flood(|s| s.lost)?) >= FULL * sum(flood(|s| s.sent)?);
        let packets = |s: &Seen| {
            let (bits, bytes) = s.arrived_bits_per_s.zip(s.message_bytes)?;
            Some(bits * (bytes + HEADERS) / bytes.max(1.0))
        };
        let rates = self.values(name, "load", packets)?;
        let rate_bits_per_s = Figure::of(&rates).expect("two values have an interval");
        let idle = self.figure("idle", "", |s| s.median_us)?;
        // Half of the distance from the median of idle round trips to their upper tail: one direction.
        let jitter_us = self.figure("idle", "", |s| Some((s.p95_us? - s.median_us?).max(0.0) / 2.0))?;
        let added = |median_us: f64| (median_us - idle.value).max(0.0) / 1e6 * rate_bits_per_s.value / 8.0;
        let packet = self.values(name, "load", |s| s.message_bytes)?[0] + HEADERS;
        let queues = self.values(name, "probe", |s| s.median_us.map(|median_us| added(median_us) + packet))?;
        let queue = Figure::of(&queues).expect("two values have an interval");
        // A queue of less than the path's own jitter cannot be told from it.
        let unsure = 4.0 * jitter_us.value / 1e6 * rate_bits_per_s.value / 8.0;
        let loss = format!("{name}-loss");
        let total = |value: fn(&Seen) -> Option<f64>| self.values(&loss, "", value).map(sum);
        let [sent, lost, runs] = [total(|s| s.sent)?, total(|s| s.lost)?, total(|s| s.lost_runs)?];
        let mut loss_ratio = self.figure(&loss, "", |s| Some(s.lost? / s.sent?.max(1.0)))?;
        // Of n datagrams none was lost: the true ratio is below 3 / n, at the same level (the rule of three).
        loss_ratio.high = loss_ratio.high.max(3.0 / sent.max(1.0)).min(1.0);
        Ok(Way {
            name,
            rate_bits_per_s,
            is_full,
            flood_bits_per_s: self.0.iter().filter(|s| s.test == name).filter_map(|s| s.offered).fold(0.0, f64::max),
            delay_us: self.figure("idle", "", |s| Some(s.least_us? / 2.0))?,
            queue_bytes: Some(queue).filter(|queue| is_full && queue.value > unsure + packet),
            queue_most: queue.high.max(unsure + packet),
            packet_bytes: packet,
            jitter_us,
            loss_ratio,
            loss_run_mean: Figure::of_runs(lost, runs),
        })
    }
}

impl Way {
    /// Names, units and figures.
    fn figures(&self) -> [(&'static str, Option<Figure>); 6] {
        [
            ("rate_bits_per_s", Some(self.rate_bits_per_s).filter(|_| self.is_full)),
            ("delay_us", Some(self.delay_us)),
            ("queue_bytes", self.queue_bytes),
            ("jitter_us", Some(self.jitter_us)),
            ("loss_ratio", Some(self.loss_ratio)),
            ("loss_run_mean", self.loss_run_mean),
        ]
    }

    fn sentence(&self) -> String {
        let queue = self.queue_bytes.map_or_else(
            || format!("at most {}", units::human(Unit::Bytes, self.queue_most)),
            |queue| queue.text(Unit::Bytes),
        );
        let rate = if self.is_full {
            format!("rate {} · queue {queue}", self.rate_bits_per_s.text(Unit::BitsPerSecond))
        } else {
            format!("rate over {}", units::human(Unit::BitsPerSecond, self.rate_bits_per_s.low))
        };
        let runs = self.loss_run_mean.map_or_else(String::new, |runs| format!(", in runs of {:.2}", runs.value));
        format!(
            "{}: {rate} · delay {} · jitter {} · loss {}{runs}",
            self.name,
            self.delay_us.text(Unit::Microseconds),
            units::human(Unit::Microseconds, self.jitter_us.value),
            self.loss_ratio.text(Unit::Ratio),
        )
    }

    /// netem's words for delay and loss. It holds what is under way in packets of any size.
    fn netem(&self) -> String {
        let under_way = self.rate_bits_per_s.value * self.delay_us.value / 1e6 / 8.0 / 64.0;
        let mut words = format!("limit {:.0} delay {:.0}us", (2.0 * under_way).max(1000.0), self.delay_us.value);
        let loss = self.loss_ratio.value;
        if let Some(Figure { value: runs, .. }) = self.loss_run_mean {
            // Independent losses already come in runs of 1 / (1 - loss).
            let is_single = runs <= 1.1 / (1.0 - loss);
            let leave = 1.0 / runs;
            let enter = (leave * loss / (1.0 - loss)).min(1.0);
            let _ = if is_single {
                write!(words, " loss random {:.4}%", loss * 100.0)
            } else {
                write!(words, " loss gemodel {:.4}% {:.4}%", enter * 100.0, leave * 100.0)
            };
        }
        words
    }

    /// The token bucket's words for rate and queue. Its burst holds two packets, and a millisecond's worth for timers. Empty where
    /// the rate is not known.
    fn bucket(&self) -> String {
        if !self.is_full {
            return String::new();
        }
        let rate = self.rate_bits_per_s.value;
        // It held whole packets, and its limit was above them by a part of one.
        let limit = |queue: Figure| queue.value + ABOVE_WHOLE * self.packet_bytes;
        let queue = self.queue_bytes.map_or(self.queue_most, limit);
        format!("rate {rate:.0}bit burst {:.0} limit {:.0}", (rate / 8e3).max(3028.0), queue.max(3028.0))
    }
}

/// Reads the results of the plan `path`, prints the figures, and writes the files into a folder.
pub fn run(
    table: &mut Table,
    selection: &Selection,
    results: &Path,
    folder: &Path,
    as_text: bool,
    output: &mut dyn Write,
) -> Result<(), Error> {
    let read = Results::read(table, selection)?;
    let ways = [read.way("upload")?, read.way("download")?];
    if ways.iter().all(|way| !way.is_full) {
        return Err(Error::Usage(format!(
            "the floods lost less than {} of themselves, so they may not have filled the path: run it again with --set \
             vars.flood=RATE above what the path carries",
            units::margin(FULL)
        )));
    }
    for way in ways.iter().filter(|way| !way.is_full) {
        crate::warn(&format!(
            "the flood did not fill the {}: its rate and its queue are not known, and not built",
            way.name
        ));
    }
    let results = fs::canonicalize(results).map_err(Error::file(results))?;
    let name = results.to_string_lossy().into_owned();
    if name.contains('\'') || name.chars().any(char::is_control) {
        return Err(Error::Usage("the name of the table has a quote or a control character: rename it".to_owned()));
    }
    // Its script marks a folder as one of ours.
    let script = folder.join("path");
    let is_ours = fs::read_to_string(&script).is_ok_and(|text| text.starts_with(HEAD));
    if let Some(file) =
        ["path", "plan.yaml"].map(|name| folder.join(name)).iter().find(|file| !is_ours && file.exists())
    {
        let reason = format!("{} is not a file of a laboratory: name another folder with -o", file.display());
        return Err(Error::Usage(reason));
    }
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    replace(&folder.join("plan.yaml"), plan(&ways))?;
    replace(&script, shell(&ways, &name))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(Error::file(&script))?;
    if as_text {
        for way in &ways {
            writeln!(output, "{}", way.sentence())?;
        }
        let script = script.display();
        writeln!(
            output,
            "{script} up builds it; {script} check measures it and compares it with these results (as root)"
        )?;
        return Ok(());
    }
    let rows = ways.iter().flat_map(|way| {
        let figures = way.figures().into_iter().filter_map(|(quantity, figure)| {
            let Figure { value, low, high } = figure?;
            Some(cells![way.name, quantity, value, low, high])
        });
        let unknown = way.is_full && way.queue_bytes.is_none();
        figures.chain(unknown.then(|| cells![way.name, "queue_bytes", "", "0", way.queue_most]))
    });
    write_csv(output, ["direction", "quantity", "value", "low", "high"], rows)
}

/// The plan `path` between the two namespaces, with the flood that the path had, above both rates.
fn plan(ways: &[Way; 2]) -> String {
    let flood = |way: &Way| way.flood_bits_per_s.max(if way.is_full { 1.3 * way.rate_bits_per_s.value } else { 0.0 });
    let most = ways.iter().map(flood).fold(0.0, f64::max);
    let hosts = "hosts:\n  near: {netns: plumb-path-near, address: 10.203.0.1}\n  far: {netns: plumb-path-far, address: 10.203.0.2}\n\n";
    PLAN.replacen("# yaml-language-server: $schema=../schemas/plan.schema.json\n", "", 1)
        .replacen("default: 100Mbit/s", &format!("default: {most:.0}bit/s"), 1)
        .replacen("\nvars:\n", &format!("\n{hosts}vars:\n"), 1)
        .replacen("\ndefaults:\n", "\ndefaults:\n  from: near\n  to: far\n", 1)
}

/// The first lines of each script.
const HEAD: &str = "#!/bin/sh
# A path between two network namespaces of this machine, built from results by `plumb fit --to netem`.
";

/// The script. It changes its two namespaces and nothing else.
fn shell(ways: &[Way; 2], results: &str) -> String {
    let [up, down] = ways;
    format!(
        r#"{HEAD}#   usage: path up | down | check     as root, with ip and tc (iproute2)
# {up}
# {down}
# Both directions are taken to have the same delay. The jitter is not built: netem would reorder packets by it.
set -eu
near=plumb-path-near far=plumb-path-far here=$(cd "$(dirname "$0")" && pwd)
results='{results}'

# end NAMESPACE ADDRESS NETEM BUCKET
end() {{
    ip -n "$1" link set lo up
    # One packet at a time: a loss must not take 64 KiB along.
    ip -n "$1" link set data gso_max_segs 1
    ip -n "$1" address add "$2/24" dev data
    ip -n "$1" link set data up
    # shellcheck disable=SC2086
    if why=$(tc -n "$1" qdisc add dev data root handle 1: netem $3 2>&1); then
        [ -z "$4" ] || tc -n "$1" qdisc add dev data parent 1:1 handle 2: tbf $4
    else
        echo "path: no netem here ($why): $1 has a token bucket ($4), and its delay and loss are missing ($3)" >&2
        [ -z "$4" ] || tc -n "$1" qdisc add dev data root tbf $4
    fi
}}

up() {{
    for name in "$near" "$far"; do
        if ip netns list | grep -q "^$name\( \|\$\)"; then
            echo "path: the namespace $name exists: $0 down" >&2
            exit 1
        fi
    done
    trap down EXIT
    ip netns add "$near"
    ip netns add "$far"
    ip -n "$near" link add data type veth peer name data netns "$far"
    end "$near" 10.203.0.1 '{up_netem}' '{up_bucket}'
    end "$far" 10.203.0.2 '{down_netem}' '{down_bucket}'
    trap - EXIT
}}

down() {{
    ip netns delete "$near" 2>/dev/null || true
    ip netns delete "$far" 2>/dev/null || true
}}

case ${{1-}} in
up) up ;;
down) down ;;
check)
    up
    trap down EXIT
    rm -f "$here"/lab.*
    plumb run "$here/plan.yaml" -o "$here/lab.csv"
    # Figures of a path are known no better. The rate of idle requests depends on who waits for a lost one.
    plumb compare -f text --match case --min-effect 10% -m throughput,latency.p50 "$results" "$here/lab.csv"
    ;;
*)
    sed -n '2,6s/^# *//p' "$0" >&2
    exit 2
    ;;
esac
"#,
        up = up.sentence(),
        down = down.sentence(),
        up_netem = up.netem(),
        up_bucket = up.bucket(),
        down_netem = down.netem(),
        down_bucket = down.bucket(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the plan: 20 Mbit/s with 80 kB of queue and 2 % of single losses up, 50 Mbit/s with a short queue down.
    fn table(flood_lost: u64) -> String {
        let mut text = String::from(
            "test,member,record,iteration,status,latency_min_us,latency_p50_us,latency_p95_us,throughput_bits_per_s,\
             message_bytes,messages_sent,lost,loss_runs\n",
        );
        for i in 1..=5 {
            let shift = f64::from(i - 3);
            let mut row = |test: &str, member: &str, cells: String| {
                let _ = writeln!(text, "{test},{member},iteration,{i},ok,{cells}");
            };
            row("idle", "", format!("20000,{},20500,1e5,,,,", 20_100.0 + shift));
            row("upload-loss", "", format!(",,,1.6e6,200,2000,{},{}", 40 + i - 3, 39));
            row("download-loss", "", ",,,1.6e6,200,2000,0,0".to_owned());
            for (way, rate, median) in [("upload", 20e6, 52_100.0), ("download", 50e6, 20_400.0)] {
                let payload = rate * 1400.0 / 1442.0 + shift;
                row(way, "load", format!(",,,{payload},1400,10000,{flood_lost},9"));
                row(way, "probe", format!("20000,{},90000,1e5,,,,", median + shift));
                row(way, "", format!(",,,{payload},,,,"));
            }
        }
        text
    }

    fn ways(text: String) -> Result<[Way; 2], Error> {
        let read = Results::read(&mut Table::from_text("t", text)?, &Selection::default())?;
        Ok([read.way("upload")?, read.way("download")?])
    }

    #[test]
    fn a_path_is_what_its_rows_say() {
        let [up, down] = ways(table(3000)).unwrap();
        let near = |figure: Figure, value: f64| {
            let Figure { value: found, low, high } = figure;
            assert!((found - value).abs() < 0.001 * value && low <= found && found <= high, "{figure:?} {value}");
        };
        near(up.rate_bits_per_s, 20e6);
        near(up.delay_us, 10_000.0);
        // A probe finds room when the queue has just lost a packet of 1442 bytes.
        near(up.queue_bytes.unwrap(), 81_442.0);
        near(up.loss_ratio, 0.02);
        near(up.loss_run_mean.unwrap(), 200.0 / 195.0);
        assert_eq!(down.loss_run_mean, None);
        near(down.rate_bits_per_s, 50e6);
        // 0.3 ms more, beside a jitter of 0.2 ms in each direction.
        assert_eq!(down.queue_bytes, None);
        assert!((6300.0..6600.0).contains(&down.queue_most), "{}", down.queue_most);
        assert!((down.loss_ratio.high - 3.0 / 10_000.0).abs() < 1e-9, "{down:?}");
        assert_eq!(up.netem(), "limit 1000 delay 10000us loss random 2.0000%");
        assert_eq!(down.netem(), "limit 1953 delay 10000us");
        assert!(up.bucket().starts_with("rate 20000000bit burst 3028 limit 82"), "{}", up.bucket());
        assert!(down.bucket().contains("burst 6250 limit 6442"), "{}", down.bucket());
    }

    #[test]
    fn an_iteration_whose_probes_were_all_lost_does_not_count() {
        let lost = "upload,probe,iteration,2,";
        let text: Vec<String> = table(3000)
            .lines()
            .map(|line| if line.starts_with(lost) { format!("{lost}ok,,,,0,,,,") } else { line.to_owned() })
            .collect();
        let [up, _] = ways(text.join("\n") + "\n").unwrap();
        assert!((up.queue_bytes.unwrap().value - 81_442.0).abs() < 80.0, "{up:?}");
    }

    #[test]
    fn losses_in_bursts_are_those_of_a_chain_of_two_states() {
        let [mut up, _] = ways(table(3000)).unwrap();
        up.loss_run_mean = Figure::of_runs(200.0, 50.0);
        // It leaves the bad state after 4 packets, and is in it for 2 % of them.
        assert!(up.netem().ends_with("loss gemodel 0.5102% 25.0000%"), "{}", up.netem());
    }

    #[test]
    fn the_length_of_runs_has_an_interval() {
        // Wilson: 150 of 200 are 0.6856 to 0.8050, and runs are 1 / (1 - share) long.
        let Figure { value, low, high } = Figure::of_runs(200.0, 50.0).unwrap();
        assert_eq!(value, 4.0);
        assert!((low - 3.18).abs() < 0.01 && (high - 5.13).abs() < 0.01, "{low} {high}");
        // Of 100 losses none followed another one: a share of 3.7 % at most.
        let Figure { low, high, .. } = Figure::of_runs(100.0, 100.0).unwrap();
        assert!(low == 1.0 && (high - 1.038).abs() < 0.001, "{low} {high}");
        assert_eq!(Figure::of_runs(0.0, 0.0), None);
    }

    #[test]
    fn results_that_do_not_tell_are_refused() {
        let [up, _] = ways(table(100)).unwrap();
        assert!(
            !up.is_full
                && up.queue_bytes.is_none()
                && up.bucket().is_empty()
                && up.sentence().starts_with("upload: rate over 20"),
            "{up:?}"
        );
        let said = |text: String| ways(text).unwrap_err().to_string();
        let without: String =
            table(3000).lines().filter(|line| !line.starts_with("idle")).map(|l| l.to_owned() + "\n").collect();
        assert!(said(without.clone()).contains("test `idle` has 0 iterations with a value"), "{}", said(without));
    }

    #[test]
    fn the_plan_of_the_laboratory_is_the_plan_of_the_path() {
        let text = plan(&ways(table(3000)).unwrap());
        for line in ["hosts:\n  near: {netns: plumb-path-near", "\n  from: near\n  to: far\n", "default: 65000000bit/s"]
        {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert_eq!(text.lines().count(), PLAN.lines().count() + 5);
    }
}
