//! A picture as a plan asks for it, drawn when the run ends and again by `plumb report`.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use schemas::one_or_many::OneOrMany;
use serde::{Deserialize, Serialize};

use super::{Kind, Log, Options, Paper};
use crate::table::{InputArgs, Record, Selection};

/// A picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The kind of picture.
    pub kind: Kind,
    /// The tests; all by default.
    #[serde(default)]
    pub tests: Option<Vec<String>>,
    /// The rows: `iteration` by default if there are any, `probe` for those of a search.
    #[serde(default)]
    pub record: Option<Record>,
    /// Column or metric along x.
    #[serde(default)]
    pub x: Option<String>,
    /// Column or metric along y.
    #[serde(default)]
    pub y: Option<String>,
    /// Column or metric that a heat map's colours show.
    #[serde(default)]
    pub value: Option<String>,
    /// Columns or metrics drawn beside y, for `bars`: one of them, or a list.
    #[serde(default)]
    pub beside: Option<OneOrMany>,
    /// Columns that tell curves apart: one of them, or a list.
    #[serde(default)]
    pub by: Option<OneOrMany>,
    /// Logarithmic axes: `x`, `y`, `xy` or `none`.
    #[serde(default)]
    pub log: Option<Log>,
    /// Title.
    #[serde(default)]
    pub title: Option<String>,
    /// The file, relative to `output.dir`; its ending (png, svg) decides the format.
    pub file: PathBuf,
}

impl Plot {
    /// Options of `plumb plot` that draw it from a table.
    pub fn options(&self, table: &Path) -> Options {
        Options {
            input: InputArgs { files: vec![table.to_owned()] },
            x: self.x.clone(),
            y: self.y.clone(),
            value: self.value.clone(),
            beside: self.beside.clone().unwrap_or_default().0,
            tests: self.tests.clone().unwrap_or_default(),
            by: self.by.clone().unwrap_or_default().0,
            log: self.log,
            paper: Paper { title: self.title.clone(), ..Paper::default() },
            selection: Selection { record: self.record.map(|r| r.to_string()), ..Selection::default() },
            ..Options::default()
        }
    }
}
