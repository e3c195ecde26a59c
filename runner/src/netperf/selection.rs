//! A command line with the selectors that `-k`, `-o` or `-O` names, in blocks, and their output.

use std::fmt::Write;

use super::{
    facts::Facts,
    globals::{Stop, wrong},
    kind::{Calls, Layout, Shape, Task, Test},
    request::Request,
    selectors::{SELECTORS, Selector, named},
    specifics::Form,
};

/// A command line that was read: what to run, and how to print its results.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandLine {
    pub request: Request,
    /// `None`: the table of the test.
    pub output: Option<(Form, Selection)>,
}

impl CommandLine {
    /// Reads the words after the program's name, which `program` is in messages.
    pub fn parse(program: &str, words: &[String]) -> Result<Self, Stop> {
        let mut request = Request::parse(program, words)?;
        let wants_columns = matches!(request.task, Some(Task::Test(Test { layout: Layout::Columns, .. })));
        let by_default = || default(request.shape, request.globals.local_cpu || request.globals.remote_cpu);
        let output = match &request.specifics.output {
            Some((form, Some(text))) => {
                let letter = match form {
                    Form::KeyValue => 'k',
                    Form::Csv => 'o',
                    Form::Columns => 'O',
                };
                Some((*form, parse(text).map_err(wrong(letter))?))
            }
            Some((form, None)) => Some((*form, by_default())),
            None if wants_columns => Some((Form::Columns, by_default())),
            None => None,
        };
        let selected = output.iter().flat_map(|(_, selection)| selection).flatten();
        request.wants_latency |= selected.into_iter().any(|selector| selector.is_latency());
        Ok(Self { request, output })
    }
}

/// Selectors in blocks; only `-O` shows the blocks.
pub type Selection = Vec<Vec<&'static Selector>>;

/// netperf reads no more blocks.
const MOST_BLOCKS: usize = 4;

/// Sizes of the blocks of `all`, after the placeholder at the table's beginning.
const ALL: [usize; MOST_BLOCKS] = [24, 29, 58, 62];

const RESULT: &[&str] = &["ELAPSED_TIME", "THROUGHPUT", "THROUGHPUT_UNITS"];

const CPU: &[&str] = &[
    "LOCAL_CPU_UTIL",
    "LOCAL_CPU_PERCENT_USER",
    "LOCAL_CPU_PERCENT_SYSTEM",
    "LOCAL_CPU_PERCENT_IOWAIT",
    "LOCAL_CPU_PERCENT_IRQ",
    "LOCAL_CPU_PERCENT_SWINTR",
    "LOCAL_CPU_METHOD",
    "REMOTE_CPU_UTIL",
    "REMOTE_CPU_PERCENT_USER",
    "REMOTE_CPU_PERCENT_SYSTEM",
    "REMOTE_CPU_PERCENT_IOWAIT",
    "REMOTE_CPU_PERCENT_IRQ",
    "REMOTE_CPU_PERCENT_SWINTR",
    "REMOTE_CPU_METHOD",
    "LOCAL_SD",
    "REMOTE_SD",
    "SD_UNITS",
];

/// The selection of an option without one.
pub fn default(shape: Shape, with_cpu: bool) -> Selection {
    let sizes: &[&str] = match shape.calls {
        Calls::SEND if !shape.connects => &["LSS_SIZE_END", "RSR_SIZE_END", "LOCAL_SEND_SIZE"],
        Calls::RECEIVE if !shape.connects => &["RSS_SIZE_END", "LSR_SIZE_END", "REMOTE_SEND_SIZE"],
        _ => &["LSS_SIZE_END", "LSR_SIZE_END", "RSR_SIZE_END", "RSS_SIZE_END", "REQUEST_SIZE", "RESPONSE_SIZE"],
    };
    let cpu = if with_cpu { CPU } else { &[] };
    vec![[sizes, RESULT, cpu].concat().into_iter().filter_map(named).collect()]
}

/// Every selector, in netperf's blocks.
fn all() -> Selection {
    let mut rest = &SELECTORS[1..];
    let mut block = |size| {
        let (block, others) = rest.split_at(size);
        rest = others;
        block.iter().collect()
    };
    ALL.into_iter().map(&mut block).collect()
}

/// Reads a selection: `all`, names, or the path of a file with names or titles. Unknown names in a list are left out, as netperf's
/// `-k` does.
pub fn parse(text: &str) -> Result<Selection, String> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(all());
    }
    if text.contains([',', ';']) || named(text).is_some() {
        let block = |block: &str| block.split([',', ' ']).filter_map(named).collect();
        return Ok(text.split(';').take(MOST_BLOCKS).map(block).collect());
    }
    let lines = std::fs::read_to_string(text)
        .map_err(|error| format!("`{text}` is no selector, and no file of them that can be read: {error}"))?;
    let item = |item: &str| {
        let item = item.trim();
        let titled = || SELECTORS.iter().find(|selector| selector.title() == item);
        named(item).or_else(titled).unwrap_or(&SELECTORS[0])
    };
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    Ok(lines.take(MOST_BLOCKS).map(|line| line.split(',').map(item).collect()).collect())
}

/// Prints a selection. `headers`: with titles, except in lines of `NAME=value`.
pub fn render(form: Form, selection: &Selection, facts: &Facts<'_>, headers: bool) -> String {
    match form {
        Form::KeyValue => key_values(selection, facts),
        Form::Csv => csv(selection, facts, headers),
        Form::Columns => {
            let blocks: Vec<String> = selection.iter().map(|block| columns(block, facts, headers)).collect();
            blocks.join("\n")
        }
    }
}

/// A line for each selector that has a value.
fn key_values(selection: &Selection, facts: &Facts<'_>) -> String {
    let line = |selector: &&Selector| Some(format!("{}={}\n", selector.name, (selector.value)(facts).shown()?));
    selection.iter().flatten().filter_map(line).collect()
}

/// A line of titles, and one of values. A selector without a value has an empty cell.
fn csv(selection: &Selection, facts: &Facts<'_>, headers: bool) -> String {
    let all = || selection.iter().flatten();
    let line = |cells: Vec<String>| format!("{}\n", cells.join(","));
    let titles = if headers { line(all().map(|selector| selector.title()).collect()) } else { String::new() };
    titles + &line(all().map(|selector| (selector.value)(facts).shown().unwrap_or_default()).collect())
}

/// Lines of a title in `-O`.
const TITLE_LINES: usize = 4;

/// Values below their titles, each column as wide as its longest line, or as its value and a blank.
fn columns(block: &[&'static Selector], facts: &Facts<'_>, headers: bool) -> String {
    let mut lines = vec![String::new(); TITLE_LINES + 1];
    for selector in block {
        let value = (selector.value)(facts).shown();
        let title = selector.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let width = title.max(value.as_ref().map_or(0, |value| value.chars().count() + 1));
        let value = value.unwrap_or_default();
        let cells = (0..TITLE_LINES).map(|at| selector.lines().nth(at).unwrap_or_default()).chain([value.as_str()]);
        for (line, cell) in lines.iter_mut().zip(cells) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{cell:<width$} ");
        }
    }
    let skipped = if headers { 0 } else { TITLE_LINES };
    lines[skipped..].join("\n") + "\n"
}

/// The names of all selectors, for `?`.
pub fn names(one_per_line: bool) -> String {
    let names: Vec<&str> = SELECTORS.iter().map(|selector| selector.name).collect();
    format!("{}\n", names.join(if one_per_line { "\n" } else { "," }))
}

#[cfg(test)]
mod tests {
    use netcore::spec::Transport;

    use super::*;

    fn names(selection: &Selection) -> Vec<Vec<&str>> {
        selection.iter().map(|block| block.iter().map(|selector| selector.name).collect()).collect()
    }

    #[test]
    fn all_is_every_selector_with_a_value() {
        let all = parse("ALL").unwrap();
        assert_eq!(all.iter().map(Vec::len).sum::<usize>(), SELECTORS.len() - 2);
        let first: Vec<&str> = all.iter().map(|block| block[0].name).collect();
        assert_eq!(first, ["SOCKET_TYPE", "LOCAL_CPU_UTIL", "LOCAL_SEND_THROUGHPUT", "LOCAL_SYSNAME"]);
        assert_eq!(all[3].last().unwrap().name, "COMMAND_LINE");
    }

    #[test]
    fn lists_have_blocks_and_leave_out_unknown_names() {
        let selection = parse("throughput,nosuch;protocol elapsed_time,").unwrap();
        assert_eq!(names(&selection), [vec!["THROUGHPUT"], vec!["PROTOCOL", "ELAPSED_TIME"]]);
        assert_eq!(parse("UUID;UUID;UUID;UUID;UUID").unwrap().len(), 4);
        assert_eq!(names(&parse("Throughput").unwrap()), [["THROUGHPUT"]]);
    }

    #[test]
    fn files_have_names_or_titles() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "throughput, Elapsed Time (sec),nosuch\n\nprotocol\n").unwrap();
        let selection = parse(file.path().to_str().unwrap()).unwrap();
        assert_eq!(names(&selection), [vec!["THROUGHPUT", "ELAPSED_TIME", "OUTPUT_NONE"], vec!["PROTOCOL"]]);
        assert!(parse("/no/such/file").unwrap_err().contains("No such file"));
    }

    #[test]
    fn the_default_follows_the_direction() {
        let of = |calls| {
            let shape = Shape { transport: Transport::Tcp, calls, connects: false };
            names(&default(shape, false)).remove(0).len()
        };
        assert_eq!((of(Calls::SEND), of(Calls::RECEIVE), of(Calls::BOTH)), (6, 6, 9));
        let shape = Shape { transport: Transport::Tcp, calls: Calls::SEND, connects: false };
        assert_eq!(names(&default(shape, true)).remove(0).len(), 23);
    }

    fn line(line: &str) -> CommandLine {
        CommandLine::parse("netperf", &line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn omni_prints_columns() {
        for options in ["", "-d rr", "-T udp -d stream"] {
            assert_eq!(line(&format!("-t omni -- {options}")).output.unwrap().0, Form::Columns);
        }
    }

    #[test]
    fn latency_is_collected_where_it_is_shown() {
        assert!(line("-j").request.wants_latency);
        assert!(line("-- -k throughput,p99_latency").request.wants_latency);
        assert!(line("-- -o all").request.wants_latency);
        assert!(!line("-- -k rt_latency").request.wants_latency);
    }
}
