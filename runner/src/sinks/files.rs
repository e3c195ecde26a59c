//! Paths of all files that a run writes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::run_json;
use crate::{
    error::{Error, replace},
    plan::{
        Plan,
        model::{Plot, Table},
    },
};

/// The files of a run; what is `None` is not written.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// `output.dir`, with the run's id in it.
    pub dir: Option<PathBuf>,
    /// The results table.
    pub results: Option<PathBuf>,
    /// Interval rows, where they have a table of their own.
    pub intervals: Option<PathBuf>,
    /// Kernel and interface counters, written where any were collected.
    pub counters: Option<PathBuf>,
    /// Hops of paths, written where any were probed.
    pub hops: Option<PathBuf>,
    /// Verdicts, written where anything was judged.
    pub verdicts: Option<PathBuf>,
    /// Output of hooks, written if any ran.
    pub hooks: Option<PathBuf>,
    /// Facts about the run.
    pub run_json: Option<PathBuf>,
    /// JUnit XML.
    pub junit: Option<PathBuf>,
    /// Whether the command line names it.
    pub junit_is_named: bool,
    /// The summary in Markdown.
    pub markdown: Option<PathBuf>,
    /// Pictures, with the file each goes to.
    pub plots: Vec<(Plot, PathBuf)>,
    /// Whether GitHub is told of verdicts at the plan's own lines.
    pub annotations: bool,
    /// A copy of `run.json` beside a table outside of the run's folder.
    pub run_json_copy: Option<PathBuf>,
    /// Copies of the plans in the run's folder, with their texts.
    pub plans: Vec<(PathBuf, String)>,
    /// Tables whose place, with the files beside them, belongs to one run at a time.
    pub claimed: Vec<PathBuf>,
    /// Whether the rows go to a device or a pipe that is named as a file.
    pub is_special: bool,
}

/// Options of the command line for files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output<'a> {
    /// `-o`.
    pub table: Option<&'a Path>,
    /// Whether rows go to standard output: a plan's folder then has everything but the table.
    pub rows_elsewhere: bool,
    /// `--junit`.
    pub junit: Option<&'a Path>,
    /// `--resume`: a run's folder or its table.
    pub resume: Option<&'a Path>,
}

impl Files {
    /// From the command line (`-o` or `--resume`, `--junit`) and the plans' `output`. Touches nothing.
    pub fn of(plans: &[Plan], output: &Output<'_>, run_id: &str) -> Result<Self, Error> {
        let mut dirs: Vec<&str> = plans.iter().filter_map(|p| p.output.dir.as_deref()).collect();
        dirs.dedup();
        if dirs.len() > 1 {
            return Err(Error::Usage(format!(
                "these plans write to different places ({}): run them one by one, or set output.dir with --set",
                dirs.join(", ")
            )));
        }
        let (dir, table) = match (output.resume, dirs.first()) {
            (Some(table), _) if !table.is_dir() => (None, Some(table)),
            (Some(dir), _) => (Some(dir.to_owned()), None),
            (None, Some(dir)) => (Some(PathBuf::from(dir.replace("${run.id}", run_id))), output.table),
            (None, None) => (None, output.table),
        };
        let mut files = Self { dir: dir.clone(), ..Self::default() };
        if let Some(dir) = &dir {
            let tables: Vec<Table> = plans.iter().filter_map(|p| p.output.tables.as_ref()).flatten().copied().collect();
            let wanted = |table| tables.is_empty() || tables.contains(&table);
            files.results = (!output.rows_elsewhere).then(|| dir.join("results.csv"));
            files.intervals = tables.contains(&Table::Intervals).then(|| dir.join("intervals.csv"));
            files.counters = wanted(Table::Counters).then(|| dir.join("counters.csv"));
            files.hops = wanted(Table::Hops).then(|| dir.join("hops.csv"));
            files.verdicts = wanted(Table::Verdicts).then(|| dir.join("verdicts.csv"));
            files.hooks = Some(dir.join("hooks.log"));
            files.run_json = Some(dir.join("run.json"));
            files.claimed.push(dir.join("results.csv"));
        }
        if let Some(table) = table {
            files.results = Some(table.to_owned());
            // A device or a pipe has nothing beside it.
            files.is_special = fs::metadata(table).is_ok_and(|m| !m.is_file() && !m.is_dir());
            if !files.is_special {
                files.claimed.push(table.to_owned());
                if dir.is_some() {
                    files.run_json_copy = Some(run_json::beside(table));
                } else {
                    files.counters = Some(table.with_extension("counters.csv"));
                    files.hops = Some(table.with_extension("hops.csv"));
                    files.verdicts = Some(table.with_extension("verdicts.csv"));
                    files.hooks = Some(table.with_extension("hooks.log"));
                    files.run_json = Some(run_json::beside(table));
                }
            }
        }
        let base = dir.as_deref().or_else(|| table.and_then(Path::parent)).unwrap_or(Path::new("")).to_owned();
        let first = |of: fn(&Plan) -> Option<&PathBuf>| plans.iter().find_map(of).map(|p| base.join(p));
        files.junit_is_named = output.junit.is_some();
        files.junit = output.junit.map(Path::to_owned).or_else(|| first(|p| p.output.junit.as_ref()));
        files.markdown = first(|p| p.output.markdown.as_ref());
        files.annotations = plans.iter().any(|p| p.output.annotations.unwrap_or_default().are_wanted());
        let plots = plans.iter().flat_map(|p| p.output.plots.iter().flatten());
        // Beside a table they are named after it: that of another `-o` has its own.
        let owner = table.filter(|_| dir.is_none() && !files.is_special);
        let picture = |p: &Plot| {
            let file = base.join(&p.file);
            let name = owner.zip(file.file_name()).map(|(table, own)| table.with_extension(own));
            match name.as_deref().and_then(Path::file_name) {
                Some(name) => file.with_file_name(name),
                None => file,
            }
        };
        files.plots = plots.map(|p| (p.clone(), picture(p))).collect();
        files.plans = plan_copies(dir.as_deref(), plans);
        files.spare(plans)?;
        Ok(files)
    }

    /// All files that the run may write, but the table of somebody's pipe.
    pub fn all(&self) -> impl Iterator<Item = &PathBuf> {
        let results = self.results.iter().filter(|_| !self.is_special);
        let tables = results.chain(&self.intervals).chain(&self.counters).chain(&self.hops).chain(&self.verdicts);
        let others = [&self.hooks, &self.run_json, &self.run_json_copy, &self.junit, &self.markdown];
        let pictures = self.plots.iter().map(|(_, file)| file);
        tables.chain(others.into_iter().flatten()).chain(pictures).chain(self.plans.iter().map(|(file, _)| file))
    }

    /// The files that go with the table when a later run replaces it, relative to the folder of `run.json`: all in a run's
    /// own folder; beside a table, those that are named after it. Reports have names of their own there, and so has the
    /// JUnit file of the command line.
    pub fn owned(&self) -> Vec<String> {
        let Some(folder) = self.run_json.as_deref().and_then(Path::parent) else { return Vec::new() };
        let beside = [&self.results, &self.counters, &self.hops, &self.verdicts, &self.hooks, &self.run_json];
        let belonging: Vec<&PathBuf> = match self.dir {
            Some(_) => self.all().filter(|file| !self.junit_is_named || Some(*file) != self.junit.as_ref()).collect(),
            None => beside.into_iter().flatten().chain(self.plots.iter().map(|(_, file)| file)).collect(),
        };
        let inside = belonging.into_iter().filter_map(|file| file.strip_prefix(folder).ok()?.to_str());
        let mut names: Vec<String> = inside.filter(|name| Path::new(name).is_relative()).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Refuses to write over what the run reads.
    fn spare(&self, plans: &[Plan]) -> Result<(), Error> {
        // A file that does not exist yet cannot be written over.
        let made: Vec<(PathBuf, &PathBuf)> =
            self.all().filter_map(|file| fs::canonicalize(file).ok().map(|real| (real, file))).collect();
        for plan in plans {
            let baseline = plan.baseline.as_ref().map(|(baseline, _)| (&*baseline.source, "the baseline"));
            for (read, what) in [Some((Path::new(&plan.path), "the plan")), baseline].into_iter().flatten() {
                let Ok(read) = fs::canonicalize(read) else { continue };
                if let Some((_, file)) = made.iter().find(|(real, _)| *real == read) {
                    return Err(Error::Usage(format!(
                        "{} is {what}, which results would be written over: name another file",
                        file.display()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Keeps the plans beside the results, as written and as resolved.
    pub fn keep_plans(&self) -> Result<(), Error> {
        self.plans.iter().try_for_each(|(path, text)| replace(path, text.as_bytes()))
    }
}

/// The plans as written and as resolved, with the files in a run's folder that they are kept in.
fn plan_copies(dir: Option<&Path>, plans: &[Plan]) -> Vec<(PathBuf, String)> {
    let mut copies = Vec::new();
    for (dir, plan) in plans.iter().filter_map(|plan| Some((dir?, plan))) {
        // Several plans in one folder are told apart by their names.
        let name = if plans.len() == 1 { "plan".to_owned() } else { format!("plan-{}", plan.name.replace('/', "-")) };
        let text = plan.sources.get(0).map(|s| s.text.clone()).unwrap_or_default();
        copies.push((dir.join(format!("{name}.yaml")), text));
        copies.push((dir.join(format!("{name}.resolved.yaml")), plan.resolved.clone()));
    }
    copies
}
