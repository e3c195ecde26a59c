//! Pages as Markdown. Every block is between empty lines: without one, a list swallows the table that follows it.

use super::{Block, Item, Page, Piece, Tone};
use crate::table::{layout, markdown::escaped};
use schemas::text::plain_lines;
use std::fmt::Write as _;

impl Page {
    /// Writes Markdown, with an empty line at the end so that other Markdown may follow. `picture` gets each picture's
    /// number (from 1) and content, and returns its name in the text. Without a name, the text says that the picture was
    /// left out.
    pub fn markdown(&self, mut picture: impl FnMut(usize, &str) -> Option<String>) -> String {
        let mut out = format!("# {}\n\n", escaped(&self.title));
        if !self.origin.is_empty() {
            _ = writeln!(out, "{}\n", escaped(&self.origin));
        }
        write(&self.blocks, &mut 0, &mut picture, &mut out);
        out
    }
}

/// Writes blocks without pictures, as a part of another document.
pub fn part(blocks: &[Block]) -> String {
    let mut out = String::new();
    write(blocks, &mut 0, &mut |_, _| None, &mut out);
    out
}

fn write(
    blocks: &[Block],
    pictures: &mut usize,
    picture: &mut dyn FnMut(usize, &str) -> Option<String>,
    out: &mut String,
) {
    for block in blocks {
        match block {
            Block::Heading(text) => _ = writeln!(out, "## {}", escaped(text)),
            Block::Paragraph(text) => _ = writeln!(out, "{}", escaped(text)),
            Block::Answer { text, more, .. } => {
                _ = writeln!(out, "**{}**", escaped(text));
                if !more.is_empty() {
                    _ = writeln!(out, "\n{}", escaped(more));
                }
            }
            Block::List(items) => {
                for item in items {
                    _ = writeln!(out, "- {}", escaped(item));
                }
            }
            Block::Table { columns, .. } => {
                let mut bytes = Vec::new();
                // Writing to memory does not fail.
                _ = layout::markdown(columns, &mut bytes);
                out.push_str(&String::from_utf8_lossy(&bytes));
            }
            Block::Line(pieces) => _ = writeln!(out, "{}", line(pieces)),
            Block::Items(list) => items(list, 0, out),
            Block::Grid { columns, rows, .. } => {
                out.extend(columns.iter().map(|(title, _)| format!("| {title} ")));
                out.push_str("|\n");
                out.extend(columns.iter().map(|(_, right)| if *right { "| ---: " } else { "| --- " }));
                out.push_str("|\n");
                for row in rows {
                    out.extend(row.cells.iter().map(|cell| format!("| {} ", line(cell))));
                    out.push_str("|\n");
                }
            }
            // Readers of Markdown have the search of their program.
            Block::Search => {}
            Block::Verbatim(text) => {
                // A fence longer than any in the text.
                let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
                let fence = "`".repeat(longest.max(2) + 1);
                _ = writeln!(out, "{fence}\n{}\n{fence}", plain_lines(text.trim_end()));
            }
            Block::Picture { about, svg, .. } => {
                *pictures += 1;
                match picture(*pictures, svg) {
                    Some(name) => _ = writeln!(out, "![{}]({name})", escaped(about).replace(['[', ']'], "")),
                    None => _ = writeln!(out, "Picture: {}. Write to a file (-o) to have it.", escaped(about)),
                }
            }
            Block::Fold { about, blocks } => {
                _ = writeln!(out, "<details><summary>{}</summary>\n", super::html::escaped(about));
                write(blocks, pictures, picture, out);
                out.push_str("</details>\n");
            }
        }
        out.push('\n');
    }
}

/// The parts of a line that Markdown has.
fn line(pieces: &[Piece]) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) | Piece::Word(Tone::Plain, text) => escaped(text),
        Piece::Link { text, to } => format!("[{}]({to})", escaped(text).replace(['[', ']'], "")),
        Piece::Word(_, text) => format!("**{}**", escaped(text)),
        Piece::Drawing(_) => String::new(),
    };
    pieces.iter().map(piece).collect()
}

fn items(list: &[Item], depth: usize, out: &mut String) {
    for item in list {
        _ = writeln!(out, "{}- {}", "  ".repeat(depth), line(&item.line));
        items(&item.below, depth + 1, out);
    }
}

#[cfg(test)]
mod tests {
    use pulldown_cmark::{Event, Options, Parser, Tag};

    use super::*;
    use crate::table::layout::Column;

    fn table() -> Block {
        let columns = vec![Column { title: "case".into(), right: false, cells: vec!["x|y <script>".into()] }];
        Block::Table { about: "results".into(), columns }
    }

    /// A renderer's view of it: the kinds of blocks at the top, in their order.
    fn kinds(text: &str) -> Vec<&'static str> {
        let (mut depth, mut kinds) = (0, Vec::new());
        for event in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_GFM) {
            match event {
                Event::Start(tag) => {
                    if depth == 0 {
                        kinds.push(match tag {
                            Tag::Heading { .. } => "heading",
                            Tag::Paragraph => "paragraph",
                            Tag::List(_) => "list",
                            Tag::Table(_) => "table",
                            Tag::CodeBlock(_) => "code",
                            Tag::HtmlBlock => "html",
                            _ => "other",
                        });
                    }
                    depth += 1;
                }
                Event::End(_) => depth -= 1,
                _ => {}
            }
        }
        kinds
    }

    #[test]
    fn every_block_is_what_it_is_after_every_other() {
        let list = || Block::List(vec!["one".into(), "two".into()]);
        let blocks = vec![
            Block::Heading("Results".into()),
            table(),
            list(),
            table(),
            Block::Paragraph("text".into()),
            table(),
            Block::Fold { about: "more".into(), blocks: vec![Block::Verbatim("a: ```\n".into()), table()] },
            Block::Answer { tone: Tone::Good, text: "All hold.".into(), more: String::new() },
            list(),
        ];
        let page = Page { title: "a <b> #1".into(), origin: "run 1".into(), blocks };
        let text = page.markdown(|_, _| None);
        let expected = [
            "heading",
            "paragraph",
            "heading",
            "table",
            "list",
            "table",
            "paragraph",
            "table",
            "html",
            "code",
            "table",
            "html",
            "paragraph",
            "list",
        ];
        assert_eq!(kinds(&text), expected, "{text}");
        // Parts follow each other in one file, as in the summary of a step.
        let twice = part(&[list()]) + &part(&[table()]) + "| a |\n| - |\n| b |\n";
        assert_eq!(kinds(&twice), ["list", "table", "table"], "{twice}");
    }

    #[test]
    fn pictures_have_a_name_or_a_word() {
        let picture = Block::Picture { about: "a [b]".into(), svg: "<svg></svg>".into(), narrow: None };
        let page = Page { title: "t".into(), origin: String::new(), blocks: vec![picture] };
        assert!(page.markdown(|n, _| Some(format!("r.{n}.svg"))).contains("![a b](r.1.svg)"));
        assert!(page.markdown(|_, _| None).contains("Write to a file (-o)"));
    }
}
