//! Writes `schemas/results.schema.json`, and the data dictionary into `docs/reference/results.md` between its marks:
//! `cargo run -p schemas --example dictionary`.

fn main() -> std::io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/results.md");
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/results.schema.json");
    std::fs::write(schema, format!("{:#}\n", schemas::publish::results_schema()))?;
    let page = std::fs::read_to_string(path)?;
    let (Some(begin), Some(end)) = (page.find("<!-- dictionary -->\n"), page.find("<!-- end -->")) else {
        return Err(std::io::Error::other("docs/reference/results.md has lost its marks"));
    };
    let begin = begin + "<!-- dictionary -->\n".len();
    std::fs::write(path, format!("{}{}\n{}", &page[..begin], schemas::publish::dictionary(), &page[end..]))
}
