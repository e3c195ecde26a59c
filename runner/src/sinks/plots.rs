//! `output.plots`: pictures of the results at the end of a run, drawn by the code of `plumb plot`.

use std::path::Path;

use analyze::{
    plot::{self, Options},
    table::{InputArgs, Selection},
};

use crate::{error::Error, plan::model::Plot};

/// Draws one picture into its file. Returns notes for the user.
pub fn draw(what: &Plot, results: &Path, file: &Path) -> Result<Vec<String>, Error> {
    // A plan may name a swept key (`rate`, `socket.mss`); the table has its column.
    let column = |name: &String| crate::plan::check::column(name).unwrap_or_else(|| name.clone());
    let options = Options {
        input: InputArgs { files: vec![results.to_owned()] },
        output: Some(file.to_owned()),
        x: what.x.as_ref().map(column),
        y: what.y.as_ref().map(column),
        value: what.value.as_ref().map(column),
        tests: what.tests.clone().unwrap_or_default(),
        by: what.by.iter().map(column).collect(),
        log: what.log,
        title: what.title.clone(),
        selection: Selection { record: what.record.map(|r| r.to_string()), ..Selection::default() },
        ..Options::default()
    };
    plot::draw(what.kind, &options, &mut std::io::sink())
        .map_err(|e| Error::Usage(format!("the picture {}: {e}", file.display())))
}
