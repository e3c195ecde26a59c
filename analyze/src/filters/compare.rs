//! `plumb compare`: two runs, or two values of a setting, against each other.

mod print;
mod settings;

use super::aggregate::parse_level;
use crate::{
    distinct,
    error::{Error, Place, Verdict, even_unread},
    first_few,
    judge::{
        self, VerdictRow,
        comparison::{self, Comparison, Rule, Test},
        environment, incomplete,
        samples::{self, Case, Index, Samples},
        setting::Setting,
        verdicts,
        worsening::{self, Worse},
    },
    parsed, share,
    table::{
        FILE, Format, InputArgs, Table, TableArgs,
        layout::{Column, Sheet},
    },
};
use schemas::{
    columns,
    metrics::{self, Metric},
    run_record::RunRecord,
    text::short_names,
    units,
    words::{
        self,
        Verdict::{Changed, Improvement, Inconclusive, Missing, Regression},
    },
};
use settings::Contrast;
use std::{
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// `3%`
static MIN_EFFECT: LazyLock<String> =
    LazyLock::new(|| format!("{}%", columns::number((Rule::DEFAULT.min_ratio * 1e6).round() / 1e4)));

/// Changes between two runs, or between two values of a setting: effect, interval, p and a verdict per case.
///
/// plumb compare main.csv branch.csv --fail-on regression
///
/// Prints text on a terminal and CSV anywhere else: in a CI log or before `| head`, add `-f text` or `-f md`.
///
/// plumb compare --by socket.congestion_control results.csv
///
/// The first file is the baseline; the others are compared with it. Cases belong together by their case_id; those without
/// a partner by their name, or by everything but one setting, and the output says which. With --by, the values of one
/// column or swept key are compared with the first of them, or the first that the test has; cases belong together by
/// everything else.
///
/// Sides that one run measured in turns are compared round by round: what drifts, drifts for both. A regression is a
/// change that is large enough (--min-effect), significant (p ≤ --alpha after Holm's correction for the number of
/// comparisons) and in the metric's bad direction. An improvement is the same in the good direction. `~` (same) means
/// that the interval excludes both, `no worse` that it excludes a regression; everything else is inconclusive, also what
/// speaks against a side that others disturbed (`cpu_taken_ratio`: a tenth of the time, and twice that of the other side). The change is
/// the median of the ratios between values of both sides (Hodges–Lehmann's shift of their logarithms; in turns, of the
/// ratios within blocks of rounds). A note tells if the medians themselves differ by something else. With the bootstrap the change is
/// that of the medians, with Welch's test that of the means. Its interval has the level 1 − alpha. The CSV is the
/// `verdicts` table. Files beside the tables (x.run.json) tell whether they were measured on the same machine.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Baseline results; may be repeated [default: the first FILE]
    #[arg(long, value_name = "FILE")]
    base: Vec<PathBuf>,
    /// Metrics to compare [default: the headline of each case's workload: throughput of streams, transaction
    /// rate of request/response and connect, median latency of ping and of what has a rate, and what a load adds to it]
    #[arg(short, long = "metric", value_name = "METRIC,…", value_delimiter = ',')]
    metrics: Vec<String>,
    /// Compare the values of this column or swept key with each other; cases are paired by everything else
    #[arg(long, value_name = "COLUMN", conflicts_with_all = ["base", "match_by", "self_test"])]
    by: Option<String>,
    /// With --by: the value that the others are compared with [default: the first in the table]
    #[arg(long, value_name = "VALUE", requires = "by")]
    base_value: Option<String>,
    /// Match the cases of two files by this column [default: case_id]
    #[arg(long = "match", value_name = "COLUMN")]
    match_by: Option<String>,
    /// Do not use that both sides were measured in turns
    #[arg(long)]
    unpaired: bool,
    /// Test of significance
    #[arg(long, value_name = "TEST", default_value = "rank")]
    test: Test,
    /// Largest p that counts as significant
    #[arg(long, value_name = "ALPHA", default_value_t = Rule::DEFAULT.alpha, value_parser = parse_level)]
    alpha: f64,
    /// Smallest change that counts
    #[arg(long, value_name = "RATIO", default_value = MIN_EFFECT.as_str(), value_parser = units::parse_margin)]
    min_effect: f64,
    /// Do not correct p for the number of comparisons
    #[arg(long)]
    no_correction: bool,
    /// Exit with code 1 when there is one of these
    #[arg(long, value_name = "WHAT", default_value = "nothing")]
    fail_on: FailOn,
    /// Make the baseline worse by this much and compare it with itself. Exits with 1 if a case would not be noticed,
    /// and says from which change on each is
    #[arg(long, value_name = "RATIO", value_parser = parse_share("10%"))]
    self_test: Option<f64>,
    /// csv, text or md [default: text on a terminal, else csv]
    #[arg(short, long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Seed of the bootstrap
    #[arg(long, value_name = "N", default_value_t = Rule::DEFAULT.seed)]
    seed: u64,
    #[command(flatten)]
    tables: TableArgs,
}

/// When `compare` exits with 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    /// Never
    Nothing,
    /// A regression, or a case of the baseline that was not measured again
    Regression,
    /// A regression, or an inconclusive comparison
    Inconclusive,
    /// Any change, for better or worse, or a case that one side lacks
    Change,
}

/// The parser of a share, such as this one.
pub fn parse_share(such_as: &'static str) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| share(text, || format!("`{text}`: write a share between 0 and 100 %, such as {such_as}"))
}

/// One metric of one case on both sides.
pub(super) struct Compared {
    /// Case and metric; [`Self::row`] adds what was found.
    row: VerdictRow,
    metric: Option<&'static Metric>,
    found: Comparison,
    /// The baseline's values.
    base: Vec<f64>,
    /// With `--by`: `cubic → bbr`.
    values: String,
}

impl Compared {
    /// Whether the baseline has values, and the new side has none.
    fn is_lost(&self) -> bool {
        self.found.verdict == Missing && !self.base.is_empty()
    }

    /// Whether only one side has the case.
    fn is_alone(&self) -> bool {
        self.found.verdict == Missing && self.found.base.or(self.found.new).is_none()
    }

    pub(super) fn row(&self) -> VerdictRow {
        let mut row = self.row.clone();
        judge::compared(&mut row, &self.found);
        row
    }
}

/// The other side, as the answer names it.
fn against(sides: &Sides, base: &[PathBuf]) -> String {
    let settings = sides.contrasts.iter().filter_map(|contrast| contrast.setting.as_ref());
    match (&distinct(settings.map(|setting| &setting.values[0]))[..], base) {
        ([value], _) => (*value).clone(),
        ([], [file]) => file.display().to_string(),
        // Tests may have first values of their own.
        _ => "the baseline".to_owned(),
    }
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    // Sides that are files are compared without `--by`.
    let args = &Args { by: args.by.clone().filter(|by| by != FILE), ..args.clone() };
    let (base, new) = files(args)?;
    let self_test = args.self_test.is_some();
    let records = [&base, if self_test || args.by.is_some() { &base } else { &new }];
    let records = [environment::read_all(records[0])?, environment::read_all(records[1])?];
    let mut sides = read(args, base.clone(), new.clone(), &records)?;
    if let Some(worse) = args.self_test {
        for contrast in &mut sides.contrasts {
            contrast.new = contrast.base.clone();
            for case in &mut contrast.new.cases {
                for (values, column) in case.values.iter_mut().zip(&sides.columns) {
                    let metric = metrics::find(column);
                    for value in values {
                        *value = Worse::of(rule(args, metric).better).make(*value, metric, worse);
                    }
                }
            }
        }
    }
    let mut comparisons = compare(args, &sides);
    if self_test {
        say_least(args, &mut comparisons);
    }
    if !self_test && args.by.is_none() && print::is_one_run(&sides) {
        sides.said.push("both sides are of the same run".to_owned());
    }
    let format = args.tables.output.format(args.format);
    let facts = print::facts(&sides, &comparisons, &records);
    let rows: Vec<VerdictRow> = comparisons.iter().map(Compared::row).collect();
    // A self-test has its answer in the table.
    let named = |row: &VerdictRow| VerdictRow { case: short_names(&row.case), ..row.clone() };
    let named: Vec<VerdictRow> = rows.iter().filter(|_| !self_test).map(named).collect();
    let answer = judge::answer(&named, &against(&sides, &base)).map(|(_, text)| text);
    let incomplete = if self_test { Vec::new() } else { incomplete(&sides, &base, &new, &records) };
    let answer = incomplete.iter().cloned().chain(answer).collect::<Vec<_>>().join(" ");
    even_unread(args.tables.output.write(output, |w| match format {
        Format::Csv => verdicts::csv(&rows, w),
        _ => print::people(&comparisons, &answer, &facts, format, &Sheet::of(&args.tables.output), w),
    }))?;
    if format == Format::Csv {
        for text in incomplete.iter().chain([&facts]) {
            crate::warn(text);
        }
    }
    // A renamed test must not pass as an unchanged one.
    if !self_test && comparisons.iter().all(Compared::is_alone) {
        let file = new.first().or(base.first()).map(|file| file.display().to_string()).unwrap_or_default();
        return Err(Error::Data {
            place: Place { file, line: 0, column: None },
            reason: match &args.by {
                Some(by) => format!("no case has values for two values of {by}, so that nothing was compared"),
                None => {
                    "no case has values here and in the baseline, so that nothing was compared; --match COLUMN matches \
                         them by another column, --by COLUMN compares the values of a setting in all files"
                        .to_owned()
                }
            },
        });
    }
    let verdict = verdict(args, &comparisons);
    Ok(if args.fail_on == FailOn::Nothing { verdict } else { incomplete::outcome(verdict, &incomplete) })
}

/// Sentences about what was not measured, each with its files.
fn incomplete(sides: &Sides, base: &[PathBuf], new: &[PathBuf], records: &[Vec<RunRecord>; 2]) -> Vec<String> {
    let bases = || sides.contrasts.iter().flat_map(|contrast| &contrast.base.cases);
    let news = || sides.contrasts.iter().flat_map(|contrast| &contrast.new.cases);
    let said = |files: &[PathBuf], sentences: Vec<String>| -> Vec<String> {
        let name = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
        sentences.into_iter().map(|text| format!("{name}: {text}")).collect()
    };
    if new.is_empty() {
        return said(base, incomplete::sentences(&records[0], bases().chain(news())));
    }
    let [of_base, of_new] = records;
    let of_base = said(base, incomplete::sentences(of_base, bases()));
    [of_base, said(new, incomplete::sentences(of_new, news()))].concat()
}

/// A comparison as a report shows it.
pub(super) struct Found {
    pub rows: Vec<VerdictRow>,
    /// The table for people.
    pub columns: Vec<Column>,
    /// Numbers of iterations, drift, machine.
    pub facts: String,
}

/// Compares two runs as `plumb compare BASE NEW` does.
pub(super) fn report(base: &Path, new: &Path) -> Result<Found, Error> {
    let words = [OsStr::new("compare"), OsStr::new("--"), base.as_os_str(), new.as_os_str()];
    let args: Args = parsed(words).map_err(|e| Error::Usage(e.to_string()))?;
    let (base, new) = files(&args)?;
    let records = [environment::read_all(&base)?, environment::read_all(&new)?];
    let sides = read(&args, base, new, &records)?;
    let comparisons = compare(&args, &sides);
    let facts = print::facts(&sides, &comparisons, &records);
    let rows = comparisons.iter().map(Compared::row).collect();
    Ok(Found { rows, columns: print::columns(&comparisons), facts })
}

/// Adds a note from which change on each case would be noticed.
fn say_least(args: &Args, comparisons: &mut [Compared]) {
    let tested = if args.no_correction { 1 } else { comparisons.iter().filter(|c| c.found.p.is_some()).count() };
    for compared in comparisons {
        let values = &compared.base;
        let worse = Worse::of(compared.found.rule.better);
        let least = worsening::least_noticed(worse, |by| {
            let worsened: Vec<f64> = values.iter().map(|v| worse.make(*v, compared.metric, by)).collect();
            let mut found = Comparison::of(values, &worsened, rule(args, compared.metric));
            found.decide_among(tested);
            found.is_noticed()
        });
        compared.found.notes.insert(
            0,
            match least {
                Some(least) => format!("noticed from {} on", units::margin(least)),
                None => "no regression would be noticed".to_owned(),
            },
        );
    }
}

fn verdict(args: &Args, comparisons: &[Compared]) -> Verdict {
    let any = |wanted: &[words::Verdict]| comparisons.iter().any(|c| wanted.contains(&c.found.verdict));
    let failed = if args.self_test.is_some() {
        comparisons.is_empty() || comparisons.iter().any(|c| !c.found.is_noticed())
    } else {
        match args.fail_on {
            FailOn::Nothing => false,
            FailOn::Regression => any(&[Regression]) || comparisons.iter().any(Compared::is_lost),
            FailOn::Inconclusive => any(&[Regression, Inconclusive, Missing]),
            FailOn::Change => any(&[Regression, Improvement, Changed, Missing]),
        }
    };
    if failed { Verdict::Failed } else { Verdict::Ok }
}

fn rule(args: &Args, metric: Option<&Metric>) -> Rule {
    Rule {
        test: args.test,
        alpha: args.alpha,
        min_ratio: args.min_effect,
        seed: args.seed,
        ..metric.map_or(Rule::DEFAULT, Rule::of)
    }
}

fn compare(args: &Args, sides: &Sides) -> Vec<Compared> {
    let mut found = Vec::new();
    // Known before any value is looked at, so that the rounds can be cut to it.
    let comparisons = if args.no_correction { 1 } else { sides.contrasts.iter().map(|c| sides.tests(c)).sum() };
    for contrast in &sides.contrasts {
        found.extend(of_contrast(args, sides, contrast, comparisons));
    }
    comparison::decide(found.iter_mut().map(|c| &mut c.found), !args.no_correction);
    found
}

fn of_contrast(args: &Args, sides: &Sides, contrast: &Contrast, comparisons: usize) -> Vec<Compared> {
    let (bases, news) = (Index::new(&contrast.base.cases), Index::new(&contrast.new.cases));
    let assertion = match &contrast.setting {
        Some(Setting { name, values: [base, new], .. }) => format!("{name}: {new} against {base}"),
        None => "baseline".to_owned(),
    };
    let one = |[base, new]: [Option<&Case>; 2], m: usize, found: &dyn Fn(Rule) -> Comparison| {
        let column = &sides.columns[m];
        let metric = metrics::find(column);
        let mut row = VerdictRow { assertion: assertion.clone(), metric: column.clone(), ..VerdictRow::default() };
        match (base, new) {
            (Some(base), _) => bases.mark(base, &mut row),
            (None, new) => news.mark(new?, &mut row),
        }
        new.map(|n| n.origin.clone()).unwrap_or_default().mark(&mut row);
        let mut found = found(rule(args, metric));
        if let (Some(base), Some(new)) = (base, new) {
            found.disturbed = samples::disturbed(base, new);
        }
        row.baseline_run_id = base.map(|b| b.origin.run_id.clone()).unwrap_or_default();
        let base = base.map(|b| b.values[m].clone()).unwrap_or_default();
        let values = contrast.setting.as_ref().map(Setting::change).unwrap_or_default();
        Some(Compared { row, metric, found, base, values })
    };
    let mut found = Vec::new();
    for base in &contrast.base.cases {
        let new = news.find(&base.key);
        for m in sides.judged(base, new) {
            found.extend(one([Some(base), new], m, &|rule| {
                let Some(new) = new else {
                    return Comparison::missing(rule, (base.values[m].len(), 0), "only in the baseline");
                };
                let in_turns = || samples::rounds(base, new, m).filter(|_| !args.unpaired && args.self_test.is_none());
                match in_turns().filter(|_| args.test == Test::Rank) {
                    Some(rounds) => Comparison::in_turns(&rounds, rule, comparisons),
                    None => Comparison::of(&base.values[m], &new.values[m], rule),
                }
            }));
        }
    }
    for new in contrast.new.cases.iter().filter(|c| bases.find(&c.key).is_none()) {
        let m = new.headline(&sides.columns).unwrap_or(0);
        found.extend(one([None, Some(new)], m, &|rule| {
            Comparison::missing(rule, (0, new.values[m].len()), "not in the baseline")
        }));
    }
    found
}

// The two sides of every comparison, read from their files.

/// Most differences between two sides, or tests without a part in a comparison, that are named.
const MOST_SAID: usize = 5;

/// The two sides of every comparison.
struct Sides {
    /// One, or with `--by` one per value but the first of a test.
    contrasts: Vec<Contrast>,
    /// Columns compared, by name.
    columns: Vec<String>,
    /// Whether each case is compared in its headline only.
    headline: bool,
    /// Sentences about how cases were paired, and what was left out.
    said: Vec<String>,
}

impl Sides {
    /// Number of comparisons that can be tested.
    fn tests(&self, contrast: &Contrast) -> usize {
        let news = Index::new(&contrast.new.cases);
        let of = |base: &Case| {
            let new = news.find(&base.key);
            let both = |m: &usize| !base.values[*m].is_empty() && new.is_some_and(|n| !n.values[*m].is_empty());
            self.judged(base, new).iter().filter(|m| both(m)).count()
        };
        contrast.base.cases.iter().map(of).sum()
    }

    /// Indices of the columns in which a case is compared: its headline, or the ones that the user named. One that both
    /// sides lack, such as the loss of a round-trip test, is left out unless they lack all.
    fn judged(&self, base: &Case, new: Option<&Case>) -> Vec<usize> {
        if self.headline {
            let of = |case: &Case| case.headline(&self.columns);
            return vec![of(base).or_else(|| new.and_then(of)).unwrap_or(0)];
        }
        // The rate of a probe and the payload of requests are what the plan asked for.
        let has = |m: &usize| {
            !self.is_incidental(base, *m)
                && (!base.values[*m].is_empty() || new.is_some_and(|new| !new.values[*m].is_empty()))
        };
        let all = 0..self.columns.len();
        let some: Vec<usize> = all.clone().filter(has).collect();
        let told =
            |m: usize| self.contrasts.iter().flat_map(|c| &c.base.cases).any(|case| !self.is_incidental(case, m));
        if some.is_empty() { all.filter(|m| !self.is_incidental(base, *m) || !told(*m)).collect() } else { some }
    }

    /// Whether a column says nothing of a case but what the plan asked for.
    fn is_incidental(&self, case: &Case, column: usize) -> bool {
        metrics::find(&self.columns[column]).is_some_and(|metric| case.family.is_incidental(metric.name))
    }
}

fn files(args: &Args) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Error> {
    let files = &args.tables.input.files;
    if args.by.is_some() {
        return Ok((files.clone(), Vec::new()));
    }
    let (base, new) = match (args.base.as_slice(), files.as_slice()) {
        ([], [base, new @ ..]) => (vec![base.clone()], new.to_vec()),
        (base, new) => (base.to_vec(), new.to_vec()),
    };
    if base.is_empty() || new.is_empty() && args.self_test.is_none() {
        return Err(Error::Usage(
            "compare takes two files: plumb compare BASE.csv NEW.csv; or the values of a setting in one: plumb compare --by \
             COLUMN RESULTS.csv"
                .to_owned(),
        ));
    }
    Ok((base, new))
}

fn read(args: &Args, base: Vec<PathBuf>, new: Vec<PathBuf>, records: &[Vec<RunRecord>; 2]) -> Result<Sides, Error> {
    let open = |files: Vec<PathBuf>| Table::open(&InputArgs { files });
    let mut base = open(base)?;
    // A self-test has one side: the baseline stands in for the other until it is made worse.
    let mut new = if new.is_empty() { None } else { Some(open(new)?) };
    let headline = args.metrics.is_empty();
    let columns: Vec<String> = if headline {
        let of =
            |t: &Table| samples::headlines(t.header()).into_iter().map(|c| t.header().names()[c].clone()).collect();
        let both: Vec<String> = of(&base);
        // A column that only one of the files has cannot be compared.
        let names: Vec<String> =
            both.into_iter().filter(|name| new.as_ref().is_none_or(|t| t.header().find(name).is_some())).collect();
        if names.is_empty() {
            return Err(Error::Usage("say which columns to compare: -m COLUMN,…".to_owned()));
        }
        names
    } else {
        args.metrics.iter().map(|m| Ok(base.header().names()[base.asked(m)?].clone())).collect::<Result<_, Error>>()?
    };
    let indices = |table: &Table| columns.iter().map(|c| table.require(c)).collect::<Result<Vec<_>, _>>();
    let selection = &args.tables.selection;
    if let Some(by) = &args.by {
        let of = indices(&base)?;
        let column = base.header().names()[base.asked(by)?].clone();
        let mut samples = Samples::read_split(&mut base, selection, &of, &column)?;
        if column != "direction" {
            samples.keep_totals();
        }
        let (contrasts, alone) = settings::split(&samples, by, &column, args.base_value.as_deref())?;
        let alone = first_few(alone.into_iter(), MOST_SAID);
        let alone = (!alone.is_empty()).then(|| format!("not compared, with one value: {}", alone.join(", ")));
        let said = alone.into_iter().collect();
        return Ok(Sides { contrasts, columns, headline, said });
    }
    let side = |table: &mut Table| {
        let of = indices(table)?;
        let mut samples = Samples::read(table, selection, &of, args.match_by.as_deref())?;
        samples.keep_totals();
        Ok::<_, Error>(samples)
    };
    let mut base = side(&mut base)?;
    let mut new = match &mut new {
        Some(table) => side(table)?,
        None => base.clone(),
    };
    let mut said = Vec::new();
    if args.match_by.is_none() && args.self_test.is_none() {
        let found = settings::settle(&mut base, &mut new, [&records[0], &records[1]]);
        said = first_few(found.iter().map(ToString::to_string), MOST_SAID);
    }
    Ok(Sides { contrasts: vec![Contrast { base, new, setting: None }], columns, headline, said })
}

#[cfg(test)]
mod tests;
