//! `docs/gallery.md`: its commands parse, and its pictures and plans exist.

use clap::Parser;
use std::path::Path;

#[derive(clap::Parser)]
struct Plumb {
    #[command(subcommand)]
    _filter: analyze::Filter,
}

#[test]
fn every_command_parses_and_every_picture_is_there() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = std::fs::read_to_string(top.join("docs/gallery.md")).unwrap();
    let mut drawn = Vec::new();
    for line in text.lines().filter_map(|l| l.strip_prefix("    plumb ")) {
        if let Some(rest) = line.strip_prefix("run ") {
            let plan = rest.split(' ').next().unwrap();
            assert!(top.join(plan).is_file(), "{plan}");
            continue;
        }
        for command in format!("plumb {line}").split(" | ") {
            let words: Vec<&str> = command.split(' ').collect();
            Plumb::try_parse_from(&words).unwrap_or_else(|e| panic!("{command}: {e}"));
            drawn.extend(words.windows(2).filter(|w| w[0] == "-o").map(|w| w[1].to_owned()));
        }
    }
    let shown: Vec<&str> =
        text.split("](gallery/").skip(1).map(|rest| rest.split(')').next().unwrap()).filter(|n| *n != "draw").collect();
    assert!(shown.len() >= 14, "{shown:?}");
    for name in shown {
        assert!(top.join("docs/gallery").join(name).is_file(), "{name} is not there");
        assert!(drawn.iter().any(|d| d == name), "no command makes {name}");
    }
}
