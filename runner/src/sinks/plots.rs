//! `output.plots`: pictures of the results at the end of a run, drawn by the code of `plumb plot`.

use std::path::Path;

use analyze::plot::{self, Plot};

use crate::error::Error;

/// Draws one picture into its file. Returns notes for the user.
pub fn draw(what: &Plot, results: &Path, file: &Path) -> Result<Vec<String>, Error> {
    let mut options = what.options(results);
    options.paper.output = Some(file.to_owned());
    // A run may draw several pictures: each note says which it is about.
    plot::draw(what.kind, &options, &mut std::io::sink())
        .map(|notes| notes.into_iter().map(|note| format!("the picture {}: {note}", file.display())).collect())
        .map_err(|e| Error::Usage(format!("the picture {}: {e}", file.display())))
}
