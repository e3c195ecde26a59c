//! A document of blocks, written as Markdown with pictures beside it or as one HTML page.

use crate::table::layout::{self, Column};
use std::fmt::Write as _;

pub enum Block {
    /// A heading of the second level.
    Heading(String),
    List(Vec<String>),
    Table(Vec<Column>),
    /// Text shown as it is.
    Verbatim {
        /// Title of the text.
        about: String,
        text: String,
    },
    Picture {
        /// Description for readers who cannot see it.
        about: String,
        svg: String,
    },
}

pub struct Document {
    pub title: String,
    pub blocks: Vec<Block>,
}

impl Document {
    /// Writes Markdown. `picture` gets each picture's number (from 1) and content, and returns its name in the text.
    /// Without a name, the text says that the picture was left out.
    pub fn markdown(&self, mut picture: impl FnMut(usize, &str) -> Option<String>) -> String {
        let mut out = format!("# {}\n", self.title);
        let mut pictures = 0;
        for block in &self.blocks {
            out.push('\n');
            match block {
                Block::Heading(text) => _ = writeln!(out, "## {text}"),
                Block::List(items) => {
                    for item in items {
                        _ = writeln!(out, "- {item}");
                    }
                }
                Block::Table(columns) => {
                    let mut bytes = Vec::new();
                    // Writing to memory does not fail.
                    _ = layout::markdown(columns, &mut bytes);
                    out.push_str(&String::from_utf8_lossy(&bytes));
                }
                Block::Verbatim { about, text } => {
                    // A fence longer than any in the text.
                    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
                    let fence = "`".repeat(longest.max(2) + 1);
                    _ = writeln!(out, "<details><summary>{}</summary>\n", escaped(about));
                    _ = writeln!(out, "{fence}\n{}\n{fence}\n\n</details>", text.trim_end());
                }
                Block::Picture { about, svg } => {
                    pictures += 1;
                    match picture(pictures, svg) {
                        Some(name) => _ = writeln!(out, "![{}]({name})", about.replace(['[', ']'], "")),
                        None => _ = writeln!(out, "*{about}: write to a file (-o) for the picture*"),
                    }
                }
            }
        }
        out
    }

    /// Writes one HTML page that refers to nothing else.
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
             <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        for block in &self.blocks {
            match block {
                Block::Heading(text) => _ = writeln!(out, "<h2>{}</h2>", escaped(text)),
                Block::List(items) => {
                    out.push_str("<ul>\n");
                    for item in items {
                        _ = writeln!(out, "<li>{}</li>", escaped(item));
                    }
                    out.push_str("</ul>\n");
                }
                Block::Table(columns) => html_table(columns, &mut out),
                Block::Verbatim { about, text } => {
                    _ = writeln!(
                        out,
                        "<details><summary>{}</summary>\n<pre>{}</pre>\n</details>",
                        escaped(about),
                        escaped(text)
                    );
                }
                Block::Picture { about, svg } => {
                    _ = writeln!(out, "<figure role=\"img\" aria-label=\"{}\">\n{svg}</figure>", escaped(about));
                }
            }
        }
        out.push_str("</body>\n</html>\n");
        out
    }
}

fn html_table(columns: &[Column], out: &mut String) {
    let class = |c: &Column| if c.right { " class=\"number\"" } else { "" };
    out.push_str("<table>\n<tr>");
    for column in columns {
        _ = write!(out, "<th{}>{}</th>", class(column), escaped(&column.title));
    }
    out.push_str("</tr>\n");
    for row in 0..columns.first().map_or(0, |c| c.cells.len()) {
        out.push_str("<tr>");
        for column in columns {
            _ = write!(out, "<td{}>{}</td>", class(column), escaped(&column.cells[row]));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

const STYLE: &str = "body { font: 16px/1.5 'DejaVu Sans', Verdana, sans-serif; color: #222; max-width: 76em; margin: 2em auto; padding: 0 1em; }
h2 { margin-top: 2em; }
table { border-collapse: collapse; font-size: 90%; }
th, td { text-align: left; padding: 0.2em 0.9em 0.2em 0; border-bottom: 1px solid #e3e3e3; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1.5em 0; }
svg { max-width: 100%; height: auto; }
pre { background: #f6f6f6; padding: 1em; overflow-x: auto; }
";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        Document {
            title: "a < b".into(),
            blocks: vec![
                Block::Heading("Results".into()),
                Block::Table(vec![Column { title: "case".into(), right: false, cells: vec!["x|y".into()] }]),
                Block::Verbatim { about: "plan".into(), text: "a: ```\n".into() },
                Block::Picture { about: "throughput".into(), svg: "<svg></svg>\n".into() },
            ],
        }
    }

    #[test]
    fn markdown_keeps_what_could_break_it() {
        let text = document().markdown(|n, _| Some(format!("r.{n}.svg")));
        assert!(text.contains("| x\\|y |") && text.contains("\n````\na: ```\n````\n"), "{text}");
        assert!(text.contains("![throughput](r.1.svg)"));
        assert!(document().markdown(|_, _| None).contains("write to a file (-o)"));
    }

    #[test]
    fn html_is_escaped_and_whole() {
        let text = document().html();
        assert!(text.contains("<h1>a &lt; b</h1>") && text.contains("<svg></svg>") && text.ends_with("</html>\n"));
        assert!(!text.contains("http"), "nothing is fetched from elsewhere");
    }
}
