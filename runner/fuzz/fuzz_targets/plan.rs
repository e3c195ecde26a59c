//! From a text to checked cases, or to sentences. Zero bytes separate the plan from options: `--set`, `--only`, `--host` and
//! `--explain`, in turn.
#![no_main]

use libfuzzer_sys::fuzz_target;
use runner::plan::{Format, LoadOptions, explain::explain_str, load_str};

fuzz_target!(|data: &str| {
    let mut words = data.split('\0');
    let text = words.next().unwrap_or_default();
    let mut options = LoadOptions::default();
    let mut paths = Vec::new();
    for (word, turn) in words.zip((0..4).cycle()) {
        match turn {
            0 => options.sets.push(word.to_owned()),
            1 => options.only.push(word.to_owned()),
            2 => options.hosts.push(word.to_owned()),
            _ => paths.push(word),
        }
    }
    match load_str("f.yaml", text, &options) {
        Ok(plan) => {
            assert!(plan.cases.len() <= plan.run.max_cases as usize);
            plan.estimate();
            plan.warnings.render(Format::Human);
        }
        Err(mistakes) => {
            assert!(mistakes.has_errors());
            assert!(mistakes.sentences().iter().all(|sentence| !sentence.is_empty()));
            for format in [Format::Human, Format::Json, Format::Github] {
                assert!(!mistakes.render(format).is_empty());
            }
        }
    }
    for path in paths {
        match explain_str("f.yaml", text, &options, path) {
            Ok(explanation) => drop(explanation.to_string()),
            Err(mistakes) => assert!(mistakes.has_errors()),
        }
    }
});
