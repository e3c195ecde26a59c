//! Where everything that a run leaves behind is written.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::run_json;
use crate::{
    error::{Error, replace},
    plan::{
        Plan,
        model::{Annotations, Plot, Table},
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
    /// Verdicts, written where anything was judged.
    pub verdicts: Option<PathBuf>,
    /// What hooks printed, written where any ran.
    pub hooks: Option<PathBuf>,
    /// What is known about the run.
    pub run_json: Option<PathBuf>,
    /// JUnit XML.
    pub junit: Option<PathBuf>,
    /// The summary in Markdown.
    pub markdown: Option<PathBuf>,
    /// Pictures, with the file each goes to.
    pub plots: Vec<(Plot, PathBuf)>,
    /// Whether GitHub is told of verdicts at the plan's own lines.
    pub annotations: bool,
}

impl Files {
    /// From the command line (`-o`, `--junit`) and the plans' `output`. Makes the folders.
    pub fn of(
        plans: &[Plan],
        output: Option<&Path>,
        junit: Option<&Path>,
        dir: Option<&Path>,
        run_id: &str,
    ) -> Result<Self, Error> {
        let mut dirs: Vec<&str> = plans.iter().filter_map(|p| p.output.dir.as_deref()).collect();
        dirs.dedup();
        if dirs.len() > 1 {
            return Err(Error::Usage(format!(
                "these plans write to different places ({}): run them one by one, or set output.dir with --set",
                dirs.join(", ")
            )));
        }
        let dir = match (dir, dirs.first()) {
            (Some(dir), _) => Some(dir.to_owned()),
            (None, Some(dir)) => Some(PathBuf::from(dir.replace("${run.id}", run_id))),
            (None, None) => None,
        };
        let mut files = Self { dir: dir.clone(), ..Self::default() };
        if let Some(dir) = &dir {
            fs::create_dir_all(dir).map_err(Error::output(dir.display()))?;
            let tables: Vec<Table> = plans.iter().filter_map(|p| p.output.tables.as_ref()).flatten().copied().collect();
            let wanted = |table| tables.is_empty() || tables.contains(&table);
            files.results = Some(dir.join("results.csv"));
            files.intervals = tables.contains(&Table::Intervals).then(|| dir.join("intervals.csv"));
            files.counters = wanted(Table::Counters).then(|| dir.join("counters.csv"));
            files.verdicts = wanted(Table::Verdicts).then(|| dir.join("verdicts.csv"));
            files.hooks = Some(dir.join("hooks.log"));
            files.run_json = Some(dir.join("run.json"));
        }
        if let Some(output) = output {
            files.results = Some(output.to_owned());
            if dir.is_none() {
                files.counters = Some(output.with_extension("counters.csv"));
                files.verdicts = Some(output.with_extension("verdicts.csv"));
                files.hooks = Some(output.with_extension("hooks.log"));
                files.run_json = Some(run_json::beside(output));
            }
        }
        let base = dir.as_deref().or_else(|| output.and_then(Path::parent)).unwrap_or(Path::new("")).to_owned();
        let first = |of: fn(&Plan) -> Option<&PathBuf>| plans.iter().find_map(of).map(|p| base.join(p));
        files.junit = junit.map(Path::to_owned).or_else(|| first(|p| p.output.junit.as_ref()));
        files.markdown = first(|p| p.output.markdown.as_ref());
        files.annotations = plans.iter().any(|p| match p.output.annotations.unwrap_or_default() {
            Annotations::Always => true,
            Annotations::Never => false,
            Annotations::Auto => std::env::var_os("GITHUB_ACTIONS").is_some_and(|v| v == "true"),
        });
        let plots = plans.iter().flat_map(|p| p.output.plots.iter().flatten());
        files.plots = plots.map(|p| (p.clone(), base.join(&p.file))).collect();
        let made = [&files.junit, &files.markdown];
        for file in made.into_iter().flatten().chain(files.plots.iter().map(|(_, f)| f)) {
            if let Some(parent) = file.parent().filter(|p| !p.as_os_str().is_empty()) {
                fs::create_dir_all(parent).map_err(Error::output(parent.display()))?;
            }
        }
        files.spare(plans)?;
        Ok(files)
    }

    /// Refuses to write over what the run reads.
    fn spare(&self, plans: &[Plan]) -> Result<(), Error> {
        let tables = [&self.results, &self.intervals, &self.counters, &self.verdicts];
        let others = [&self.hooks, &self.run_json, &self.junit, &self.markdown];
        let made = tables.into_iter().chain(others).flatten().chain(self.plots.iter().map(|(_, file)| file));
        // What is not there yet is written over by nobody.
        let made: Vec<(PathBuf, &PathBuf)> =
            made.filter_map(|file| fs::canonicalize(file).ok().map(|real| (real, file))).collect();
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
    pub fn keep_plans(&self, plans: &[Plan]) -> Result<(), Error> {
        let Some(dir) = &self.dir else { return Ok(()) };
        for plan in plans {
            // Several plans in one folder are told apart by their names.
            let name = if plans.len() == 1 { "plan".to_owned() } else { format!("plan-{}", plan.name) };
            let text = plan.sources.get(0).map(|s| s.text.as_str()).unwrap_or_default();
            for (file, text) in [(format!("{name}.yaml"), text), (format!("{name}.resolved.yaml"), &plan.resolved)] {
                let path = dir.join(file);
                replace(&path, text.as_bytes())?;
            }
        }
        Ok(())
    }
}
