//! `output.plots`: pictures of the results at the end of a run, drawn by the code of `plumb plot`.

use std::path::Path;

use analyze::{
    plot::{self, Options},
    table::{InputArgs, Selection},
};

use crate::{error::Error, plan::model::Plot};

/// Draws one picture into its file. Returns notes for the user.
pub fn draw(what: &Plot, results: &Path, file: &Path) -> Result<Vec<String>, Error> {
    let options = Options {
        input: InputArgs { files: vec![results.to_owned()] },
        output: Some(file.to_owned()),
        x: what.x.clone(),
        y: what.y.clone(),
        value: what.value.clone(),
        tests: what.tests.clone().unwrap_or_default(),
        by: what.by.iter().cloned().collect(),
        log: what.log,
        title: what.title.clone(),
        selection: Selection { record: what.record.map(|r| r.to_string()), ..Selection::default() },
        ..Options::default()
    };
    plot::draw(what.kind, &options, &mut std::io::sink())
        .map_err(|e| Error::Usage(format!("the picture {}: {e}", file.display())))
}
