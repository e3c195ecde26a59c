//! The pictures of a plan (`output.plots`), which the code of `plumb plot` draws when its run ends.

use std::{
    io,
    path::{Path, PathBuf},
};

use analyze::plot::{self, Kind, Plot};
use clap::ValueEnum as _;
use schemas::{
    columns,
    vocabulary::{self, Unresolved},
};

use super::{
    case::Plan,
    diagnostics::{Diagnostics, suggest},
    keys,
    tree::Node,
};
use crate::error::Error;

/// A picture, with the file it goes to.
#[derive(Clone, Debug)]
pub struct Picture {
    plot: Plot,
    pub file: PathBuf,
}

impl Picture {
    /// The pictures of the plans, in the folder `base`. Beside a table they are named after it: that of another `-o` has its own.
    pub fn of(plans: &[Plan], base: &Path, table: Option<&Path>) -> Vec<Self> {
        let picture = |plot: &Plot| {
            let file = base.join(&plot.file);
            let name = table.zip(file.file_name()).map(|(table, own)| table.with_extension(own));
            let file = match name.as_deref().and_then(Path::file_name) {
                Some(name) => file.with_file_name(name),
                None => file,
            };
            Self { plot: plot.clone(), file }
        };
        plans.iter().flat_map(|p| p.output.plots.iter().flatten()).map(picture).collect()
    }

    /// Draws it from the table of results, or of intervals where they have their own. Returns notes for the user.
    pub fn draw(&self, results: &Path, intervals: Option<&Path>) -> Result<Vec<String>, Error> {
        let table = intervals.filter(|_| self.plot.kind == Kind::Timeseries).unwrap_or(results);
        let mut options = self.plot.options(table);
        options.paper.output = Some(self.file.clone());
        // A run may draw several pictures: each note says which it is about.
        let about = |what: &dyn std::fmt::Display| format!("the picture {}: {what}", self.file.display());
        plot::draw(self.plot.kind, &options, &mut io::sink())
            .map(|notes| notes.iter().map(|note| about(note)).collect())
            .map_err(|e| Error::Usage(about(&e)))
    }
}

/// Checks the pictures: their tests, what their kind has no use for, and their columns among those of the run's table. With
/// errors in the tests (`complete` is false) the swept keys are not all known.
pub fn check(root: &Node, axis_paths: &[String], complete: bool, out: &mut Diagnostics) {
    let header = columns::header(axis_paths);
    let tests: Vec<&str> =
        root.get("tests").and_then(Node::entries).unwrap_or_default().iter().map(|e| &*e.key).collect();
    for picture in root.at("output.plots").and_then(Node::items).unwrap_or_default() {
        for node in picture.get("tests").and_then(Node::items).unwrap_or_default() {
            let name = node.text().unwrap_or("");
            if !tests.contains(&name) {
                out.error(node.span, format!("unknown test `{name}`"), suggest(name, &tests));
            }
        }
        let axes = ["x", "y", "value", "by"].into_iter().filter_map(|key| picture.get(key));
        for node in axes.flat_map(|node| node.items().unwrap_or(std::slice::from_ref(node))) {
            let Some(name) = node.text() else { continue };
            let swept = vocabulary::canonical(name).starts_with(columns::AXIS_PREFIX) || keys::find(name).is_some();
            match vocabulary::resolve(name, &header) {
                // The latencies in the histograms, where the kind of picture draws them.
                _ if name == "latency" => {}
                Ok(_) => {}
                Err(Unresolved::Missing) if swept && !complete => {}
                Err(Unresolved::Missing) if swept && keys::of_path(name).is_some() => out.error(
                    node.span,
                    format!("no test sweeps `{name}`, so the results have no column for it"),
                    "sweep it in a `matrix`, or name a metric or a column",
                ),
                Err(Unresolved::Missing) => {
                    let known = vocabulary::spellings(&header);
                    let help = vocabulary::nearest(name, &known).map_or_else(
                        || "a column of the results, a metric, or a swept key".to_owned(),
                        |n| format!("did you mean `{n}`?"),
                    );
                    out.error(node.span, format!("unknown column or metric `{name}`"), help);
                }
                Err(Unresolved::Ambiguous(names)) => {
                    out.error(node.span, format!("`{name}` can be several columns"), names.join(" or "));
                }
            }
        }
        let kind = picture.get("kind").and_then(|node| Kind::from_str(node.text()?, false).ok());
        for option in kind.map(plot::unused).unwrap_or_default() {
            // `log: none` is the default.
            let given = picture.entry(option.trim_start_matches('-')).filter(|e| e.value.text() != Some("none"));
            if let Some((kind, entry)) = kind.and_then(|k| k.to_possible_value()).zip(given) {
                out.error(
                    entry.key_span,
                    format!("`{}` does not use `{}`", kind.get_name(), entry.key),
                    "leave it out, or choose another kind of picture",
                );
            }
        }
        if let Some(node) = picture.get("file") {
            let name = node.text().unwrap_or("");
            if !matches!(Path::new(name).extension().and_then(|e| e.to_str()), Some("png" | "svg")) {
                out.error(node.span, format!("`{name}` is not a picture format"), "end it in .png or .svg");
            }
        }
    }
}
