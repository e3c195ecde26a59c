//! The selectors that `-k`, `-o` or `-O` names, in blocks.

use super::{
    kind::{Calls, Shape},
    selectors::{SELECTORS, Selector, named},
};

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
}
