//! Case ids join results across versions: those of the shipped plans, and of a plan that sets every key, must not change.

use std::{fmt::Write, path::Path};

use runner::plan::{Format, LoadOptions, load_str};

#[test]
fn case_ids_stay_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut plans: Vec<_> = std::fs::read_dir(root.join("plans"))
        .expect("plans/ is part of the project")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    plans.sort();
    plans.push(root.join("tests/e2e/fixtures/every-key.yaml"));
    let mut now = String::new();
    for path in plans {
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        let text = std::fs::read_to_string(&path).expect("readable");
        let plan = load_str(name, &text, &LoadOptions::default())
            .unwrap_or_else(|out| panic!("{}", out.render(Format::Human)));
        let _ = writeln!(now, "# {name}");
        for case in &plan.cases {
            let _ = writeln!(now, "{} {}", case.id, case.name);
        }
    }
    let golden = include_str!("fixtures/case_ids.txt");
    // A case with another id has no baseline any more.
    let changed: Vec<_> = golden.lines().zip(now.lines()).filter(|(then, now)| then != now).collect();
    assert!(changed.is_empty(), "then and now: {changed:#?}");
    assert_eq!(golden.lines().count(), now.lines().count());
}
