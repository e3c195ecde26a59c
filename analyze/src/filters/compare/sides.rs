//! The two sides of every comparison, read from their files.

use std::path::PathBuf;

use schemas::{metrics, run_record::RunRecord};

use super::{
    Args,
    settings::{self, Contrast},
};
use crate::error::Error;
use crate::judge::environment;
use crate::judge::samples::{self, Case, Index, Samples};
use crate::table::{InputArgs, Table};

/// The two sides of every comparison.
pub(super) struct Sides {
    /// One, or with `--by` one per value but the first.
    pub(super) contrasts: Vec<Contrast>,
    /// Columns compared, by name.
    pub(super) columns: Vec<String>,
    /// Whether each case is compared in its headline only.
    pub(super) headline: bool,
    /// Sentences about how cases were paired.
    pub(super) said: Vec<String>,
}

impl Sides {
    /// Number of comparisons that can be tested.
    pub(super) fn tests(&self, contrast: &Contrast) -> usize {
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
    pub(super) fn judged(&self, base: &Case, new: Option<&Case>) -> Vec<usize> {
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

pub(super) fn files(args: &Args) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Error> {
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

/// The records that the runs left beside their tables.
pub(super) fn records(files: &[PathBuf]) -> Result<Vec<RunRecord>, Error> {
    let mut found = Vec::new();
    for file in files {
        found.extend(environment::read(file)?);
    }
    Ok(found)
}

pub(super) fn read(
    args: &Args,
    base: Vec<PathBuf>,
    new: Vec<PathBuf>,
    records: &[Vec<RunRecord>; 2],
) -> Result<Sides, Error> {
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
        args.metrics
            .iter()
            .map(|m| Ok(base.header().names()[base.require(m)?].clone()))
            .collect::<Result<_, Error>>()?
    };
    let indices = |table: &Table| columns.iter().map(|c| table.require(c)).collect::<Result<Vec<_>, _>>();
    let selection = &args.tables.selection;
    if let Some(by) = &args.by {
        let of = indices(&base)?;
        let column = base.header().names()[base.require(by)?].clone();
        let mut samples = Samples::read_split(&mut base, selection, &of, &column)?;
        if column != "direction" {
            samples.keep_totals();
        }
        let contrasts = settings::split(&samples, by, &column, args.base_value.as_deref())?;
        return Ok(Sides { contrasts, columns, headline, said: Vec::new() });
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
        const MOST: usize = 5;
        let found = settings::settle(&mut base, &mut new, [&records[0], &records[1]]);
        said.extend(found.iter().take(MOST).map(ToString::to_string));
        if found.len() > MOST {
            said.push(format!("and {} more", found.len() - MOST));
        }
    }
    Ok(Sides { contrasts: vec![Contrast { base, new, setting: None }], columns, headline, said })
}
