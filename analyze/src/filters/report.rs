//! `plumb report`: a page about a run, to attach to a change.

mod answer;
mod doubts;
mod facts;
mod pictures;

use super::survey::Judged;
use crate::{
    cases::{
        Case, Cases,
        overview::{self, Overview},
    },
    error::{Error, Verdict},
    export::page::{self, Block, Page},
    history::analysed::Asked,
    judge::{incomplete, verdicts},
    site,
    survey::{self, Pairs},
    table::{
        InputArgs, Selection, Table,
        beside::{self, Beside},
        replace,
    },
};
use doubts::Doubts;
use schemas::{
    columns::VerdictRow,
    metrics::{self, Metric},
    run_record::RunRecord,
    text::short_names,
};
use std::{
    collections::BTreeSet,
    io::Write,
    path::{Path, PathBuf},
};

/// A page about a run: question, answer, verdicts, results, pictures, doubts, machines and plan.
///
/// plumb run plans/message-size.yaml -o sizes.csv; plumb report sizes.csv -o sizes.html
///
/// RESULTS is what `plumb run -o` wrote, or the folder it is in. RESULTS.run.json (plan, machines, notes) and
/// RESULTS.verdicts.csv are used if they exist and are of the same run. The results have a row per case, member and
/// direction: the mean over its iterations with its confidence interval and their number, and percentiles of all
/// latencies together. The pictures are those of the plan (`output.plots`), else those that suit the tests. --against
/// adds what `plumb compare OTHER RESULTS` finds. FILE.html is one page with everything inside, for screens, phones and
/// paper. FILE.md has its pictures beside it (FILE.1.svg …). Without -o the page goes to standard output as Markdown,
/// without pictures.
///
/// With --history, it writes the pages of a history: its changes with their commits, its series, its runs.
#[derive(Debug, Clone, clap::Args)]
#[command(mut_group("Asked", |group| group.requires("history")), after_long_help = "\
Examples:
  plumb report results.csv -o results.html
  plumb report branch.csv --against main.csv -o change.html
  plumb report --history history/ -o site/

Exit codes: 0; 2 the command line is wrong, or the folder has other files; 3 a file could not be read or written.")]
pub struct Args {
    /// A results file, or the folder it is in
    #[arg(value_name = "RESULTS", required_unless_present = "history")]
    results: Option<PathBuf>,
    /// The page: FILE.md or FILE.html; with --history the folder of the pages
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compare with this earlier run, as `plumb compare OTHER RESULTS` does
    #[arg(long, value_name = "OTHER")]
    against: Option<PathBuf>,
    /// Its title [default: the plan's name]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Write the pages of this history into the folder of -o: an index, the runs, a page per series
    #[arg(long, value_name = "DIR", requires = "output", help_heading = "Of a history")]
    history: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Of a history")]
    asked: Asked,
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    if let Some((history, folder)) = args.history.as_ref().zip(args.output.as_ref()) {
        // As conflicts on the command line, they would switch off that the words of a history require one.
        if args.results.is_some() || args.against.is_some() {
            return Err(Error::Usage("--history is about many runs: leave out RESULTS and --against".to_owned()));
        }
        let (pages, notes) = site::write(history, &args.asked, args.title.as_deref(), folder)?;
        for note in notes {
            crate::warn(&note);
        }
        writeln!(output, "{}: {pages} pages", folder.join("index.html").display())?;
        return Ok(Verdict::Ok);
    }
    let Some(results) = &args.results else {
        return Err(Error::Usage("name the results, or --history DIR".to_owned()));
    };
    let html = match args.output.as_deref().map(|p| (p, p.extension().and_then(|e| e.to_str()))) {
        None | Some((_, Some("md"))) => false,
        Some((_, Some("html"))) => true,
        Some((path, _)) => {
            return Err(Error::Usage(format!(
                "{}: a report is Markdown or HTML: end the name in .md or .html",
                path.display()
            )));
        }
    };
    let results = results_file(results)?;
    let against = args.against.as_deref().map(results_file).transpose()?;
    let page = assemble(&results, against.as_deref(), args.title.as_deref())?;
    match &args.output {
        None => output.write_all(page.markdown(|_, _| None).as_bytes())?,
        Some(path) if html => {
            let text = page.html();
            replace(path, text)?;
        }
        Some(path) => {
            let mut pictures = Vec::new();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = page.markdown(|number, svg| {
                let name = format!("{stem}.{number}.svg");
                pictures.push((path.with_file_name(&name), svg.to_owned()));
                Some(linked(&name))
            });
            for (path, svg) in &pictures {
                replace(path, svg)?;
            }
            replace(path, text)?;
        }
    }
    Ok(Verdict::Ok)
}

/// A file's name as the target of a link.
fn linked(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b) || b >= 0x80;
    let byte = |b: u8| if plain(b) { vec![b] } else { format!("%{b:02X}").into_bytes() };
    String::from_utf8_lossy(&name.bytes().flat_map(byte).collect::<Vec<u8>>()).into_owned()
}

/// The results file: the given one, or the only one in the given folder.
fn results_file(path: &Path) -> Result<PathBuf, Error> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let file_error = Error::file(path);
    let named = path.join("results.csv");
    if named.is_file() {
        return Ok(named);
    }
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(path).map_err(&file_error)? {
        let file = entry.map_err(&file_error)?.path();
        // A run's table has a file of facts beside it.
        if file.extension().is_some_and(|e| e == "csv") && file.with_extension("run.json").is_file() {
            found.push(file);
        }
    }
    found.sort();
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => Err(Error::Usage(format!(
            "{}: there is no results.csv and no table with its run.json; name the results file",
            path.display()
        ))),
        several => Err(Error::Usage(format!(
            "{}: there are {} results files ({} …); name one",
            path.display(),
            several.len(),
            several[0].display()
        ))),
    }
}

/// The file, if it is of the run of the table; else it is a doubt that it is ignored.
fn own<T>(found: Beside<T>, doubts: &mut Doubts) -> Option<T> {
    match found {
        Beside::Own(file) => Some(file),
        Beside::Absent => None,
        Beside::Foreign(why) => {
            doubts.add(why);
            None
        }
    }
}

fn open(path: &Path) -> Result<Table, Error> {
    Table::open(&InputArgs { files: vec![path.to_owned()] })
}

fn assemble(results_path: &Path, against: Option<&Path>, title: Option<&str>) -> Result<Page, Error> {
    let cases = Cases::read(&mut open(results_path)?)?;
    let surveys = surveys(results_path, &cases)?;
    let mut doubts = Doubts::default();
    let facts = own(beside::run_record(results_path)?, &mut doubts);
    let facts = facts.as_ref();
    if facts.is_none() {
        doubts.add(format!(
            "without {} plan, machines and notes are unknown",
            results_path.with_extension("run.json").display()
        ));
    }
    let judged = own(beside::table(results_path, "verdicts.csv")?, &mut doubts);
    let judged = judged.map(|path| verdicts::read(&mut open(&path)?)).transpose()?.unwrap_or_default();
    let other = against.map(|path| super::compare::report(path, results_path)).transpose()?;
    let other_name = against.map(|path| path.display().to_string()).unwrap_or_default();

    let mut blocks = Vec::new();
    let plans = || facts.iter().flat_map(|f| &f.plans);
    let several = plans().count() > 1;
    for plan in plans().filter(|p| !p.description.is_empty()) {
        let name = if several { format!("{}: ", plan.name) } else { String::new() };
        blocks.push(Block::Paragraph(format!("{name}{}", plan.description)));
    }
    let answer = answer::of(
        &cases.list,
        &answer::Facts {
            verdicts: &judged,
            against: other.as_ref().map(|o| (other_name.as_str(), o.rows.as_slice())),
            cut_short: facts.and_then(incomplete::cut_short),
        },
    );
    blocks.push(answer);
    for survey in &surveys {
        blocks.extend(page::survey(&survey.text(&survey.pairs.name())));
    }

    let heading = |text: &str| Block::Heading(text.to_owned());
    if !judged.is_empty() {
        blocks.push(heading("Verdicts"));
        blocks.push(Block::Table { about: "Verdicts".to_owned(), columns: verdicts::columns(&judged) });
    }
    if let Some(other) = other {
        blocks.push(Block::Heading(format!("Compared with {other_name}")));
        blocks.push(Block::Table { about: "Comparison".to_owned(), columns: other.columns });
        blocks.push(Block::Paragraph(other.facts));
    }
    let mut results = Vec::new();
    let (pairs, others) = cases.pairs_apart();
    if !others.list.is_empty() {
        results.push(Block::Table { about: "Results".to_owned(), columns: others.table(&asked(facts, &judged)) });
        let limits = others.limits();
        if !limits.is_empty() {
            results.push(Block::List(limits.iter().map(|limit| short_names(limit)).collect()));
        }
    }
    let mut later = Doubts::default();
    let mut drawn = pictures::of(results_path, &cases, facts, &mut later);
    if !drawn.is_empty() {
        drawn.insert(0, heading(if drawn.len() == 1 { "Picture" } else { "Pictures" }));
    }

    doubts.left_out(&cases);
    doubts.values(&cases.list);
    if let Some(facts) = facts {
        doubts.run(facts, &cases.list);
    }
    doubts.append(later);
    let mut doubtful = vec![heading("What to doubt")];
    if doubts.is_empty() {
        doubtful
            .push(Block::Paragraph("Nothing was noted, and the iterations show no drift and no outliers.".to_owned()));
    } else {
        let names: BTreeSet<&str> = cases.list.iter().map(Case::name).collect();
        let labels: BTreeSet<&str> = cases.list.iter().map(|c| c.label.as_str()).collect();
        let sentences = doubts.sentences([&names, &labels]);
        doubtful.push(Block::List(sentences.iter().map(|sentence| short_names(sentence)).collect()));
    }
    let overview = asked_for(&others.list);
    if !results.is_empty() {
        blocks.push(heading("Results"));
    }
    if overview.is_empty() {
        blocks.extend(results.into_iter().chain(drawn).chain(doubtful));
    } else {
        // Of many cases the page has what was asked, and the rows for those who look for one.
        let rows =
            Block::Fold { about: format!("All {} rows, and what limited them", others.list.len()), blocks: results };
        blocks.extend(overview.into_iter().chain(doubtful).chain(drawn).chain([rows]));
    }
    blocks.extend(one_by_one(&pairs));
    if let Some(facts) = facts {
        blocks.push(heading("Details"));
        blocks.push(facts::environment(facts));
        blocks.extend(facts::plans(facts));
    }
    let named = || facts.and_then(|f| f.plans.first()).map(|p| p.name.as_str()).filter(|n| !n.is_empty());
    let title = match title.or_else(named) {
        Some(title) => title.to_owned(),
        None => results_path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    Ok(Page { title, origin: facts.map(facts::origin).unwrap_or_default(), blocks })
}

/// The pairs of surveys as rows, for those who look for one.
fn one_by_one(pairs: &Cases) -> Option<Block> {
    (!pairs.list.is_empty()).then(|| Block::Fold {
        about: format!("All {} pairs, one by one", pairs.list.len()),
        blocks: vec![Block::Table { about: "Pairs".to_owned(), columns: pairs.table(&[]) }],
    })
}

/// The tables of what was asked, for results with so many cases that their list is long.
fn asked_for(cases: &[Case]) -> Vec<Block> {
    let blocks = |of: Overview| {
        let Overview { said, about, columns, .. } = of;
        [Block::Paragraph(said), Block::Table { about, columns }]
    };
    overview::tables(cases).into_iter().flat_map(blocks).collect()
}

/// The surveys of a table whose pairs ran in rounds.
fn surveys(path: &Path, cases: &Cases) -> Result<Vec<Judged>, Error> {
    let tests: BTreeSet<&str> = cases.list.iter().filter(|case| case.is_pair()).map(Case::test).collect();
    if tests.is_empty() {
        return Ok(Vec::new());
    }
    let read = match survey::read(&mut open(path)?, &Selection::default(), None) {
        // The rest of the report is worth reading.
        Err(why @ (Error::Usage(_) | Error::Data { .. })) => {
            crate::warn(&format!("without the survey: {why}"));
            Vec::new()
        }
        read => read?,
    };
    let is_of = |pairs: &Pairs| pairs.key.iter().any(|(name, test)| name == "test" && tests.contains(test.as_str()));
    Ok(read.into_iter().filter(is_of).map(Judged::of).collect())
}

/// The metrics that the plan's pictures and verdicts are about.
fn asked(facts: Option<&RunRecord>, verdicts: &[VerdictRow]) -> Vec<&'static Metric> {
    let mut found: Vec<&'static Metric> = Vec::new();
    let plots = facts.iter().flat_map(|f| &f.plans).flat_map(|p| &p.plots);
    let drawn = plots.flat_map(|plot| ["y", "value"].map(|key| plot[key].as_str()));
    let judged = verdicts.iter().map(|row| Some(row.metric.as_str()));
    for metric in drawn.chain(judged).flatten().filter_map(metrics::find) {
        if !found.iter().any(|known| known.column == metric.column) {
            found.push(metric);
        }
    }
    found
}
