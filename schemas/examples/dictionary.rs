//! Writes `schemas/results.schema.json`, and the data dictionary into `docs/reference/results.md` between its marks:
//! `cargo run -p schemas --example dictionary`.

use std::fmt::Write as _;

use schemas::columns::{COLUMNS, ColumnType};

fn main() -> std::io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/results.md");
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/results.schema.json");
    std::fs::write(schema, format!("{:#}\n", schemas::publish::results_schema()))?;
    let page = std::fs::read_to_string(path)?;
    let (Some(begin), Some(end)) = (page.find("<!-- dictionary -->\n"), page.find("<!-- end -->")) else {
        return Err(std::io::Error::other("docs/reference/results.md has lost its marks"));
    };
    let begin = begin + "<!-- dictionary -->\n".len();
    std::fs::write(path, format!("{}{}\n{}", &page[..begin], dictionary(), &page[end..]))
}

/// The data dictionary of `docs/reference/results.md`: one Markdown table per group of columns.
pub fn dictionary() -> String {
    let mut text = String::new();
    let mut group = "";
    for column in COLUMNS {
        if column.group != group {
            group = column.group;
            let _ = write!(
                text,
                "\n### {group}\n\n| column | type | metric | better | meaning |\n| --- | --- | --- | --- | --- |\n"
            );
        }
        let ty = match column.ty {
            ColumnType::Text => "text",
            ColumnType::Integer => "integer",
            ColumnType::Number => "number",
            ColumnType::Boolean => "boolean",
            ColumnType::Time => "time",
        };
        let metric = column.metric;
        let name = metric.map(|m| format!("`{}`", m.name)).unwrap_or_default();
        let better = metric.map_or("", |m| m.better.as_str());
        // A `|` inside code would end the cell.
        let description = column.description().replace('|', "\\|");
        let _ = writeln!(text, "| `{}` | {ty} | {name} | {better} | {description} |", column.name);
    }
    text
}
