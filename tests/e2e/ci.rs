//! docs/guide/ci.md: its plan is valid, its workflows are YAML, and their commands run unchanged.
//!
//! This test adds options that shorten measurements. Two short runs on a busy machine may differ, so any verdict is
//! accepted; a wrong command is not.

use std::{fs, path::Path, process::Command};

const PAGE: &str = include_str!("../../docs/guide/ci.md");

/// The code blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let opening = format!("```{language}\n");
    PAGE.split(&opening).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// Every command under `run`, `script` and `after_script`, in order.
fn commands(block: &str) -> Vec<String> {
    fn gather(value: &serde_yaml::Value, found: &mut Vec<String>) {
        if let Some(map) = value.as_mapping() {
            for (key, value) in map {
                match (key.as_str(), value) {
                    (Some("run"), serde_yaml::Value::String(text)) => found.push(text.clone()),
                    (Some("script" | "after_script"), serde_yaml::Value::Sequence(lines)) => {
                        found.extend(lines.iter().filter_map(|l| l.as_str().map(str::to_owned)));
                    }
                    (_, value) => gather(value, found),
                }
            }
        }
        for value in value.as_sequence().into_iter().flatten() {
            gather(value, found);
        }
    }
    let mut found = Vec::new();
    gather(&serde_yaml::from_str(block).expect("the block is YAML"), &mut found);
    found
}

/// Runs a line of the page in a folder, as CI does; returns its exit code and output.
fn run(line: &str, place: &Path) -> (Option<i32>, String) {
    let binary = Path::new(env!("CARGO_BIN_EXE_plumb"));
    let programs = binary.parent().expect("it lies in a directory").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let line = if line.starts_with("plumb run") || line.starts_with("plumb gate") {
        format!("{line} --set duration=200ms --set warmup=0s --set iterations=8")
    } else {
        line.to_owned()
    };
    let output = Command::new("sh")
        .args(["-c", &line])
        .current_dir(place)
        .env("PATH", format!("{programs}:{path}"))
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_STEP_SUMMARY", place.join("summary.md"))
        .output()
        .expect("sh starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

#[test]
fn every_command_of_the_page_works() {
    crate::program::despite_stalls(runs_the_page);
}

fn runs_the_page() {
    let place = tempfile::tempdir().expect("a directory");
    let [plan, github, gitlab, history] = blocks("yaml").try_into().expect("a plan and three workflows");
    fs::write(place.path().join("ci.yaml"), plan).expect("written");
    let once: Vec<&str> = blocks("sh").iter().flat_map(|b| b.lines()).filter(|l| !l.is_empty()).collect();
    assert_eq!(once.len(), 2, "{once:?}");
    for line in once {
        let (code, text) = run(line, place.path());
        assert_eq!(code, Some(0), "`{line}`:\n{text}");
    }
    for (name, block, least) in [("GitHub", github, 4), ("GitLab", gitlab, 3)] {
        let lines: Vec<String> = commands(block).into_iter().filter(|l| !l.starts_with("export PATH=")).collect();
        assert!(lines.len() >= least && lines.iter().all(|l| l.starts_with("plumb ")), "{name}: {lines:?}");
        for line in lines {
            let (code, text) = run(&line, place.path());
            assert!(matches!(code, Some(0 | 1)), "{name}: `{line}` ended with {code:?}:\n{text}");
            assert!(!text.contains("error:"), "{name}: `{line}`:\n{text}");
            if line.contains("--self-test") {
                assert!(text.contains("noticed from "), "{text}");
            }
        }
    }
    let lines: Vec<String> = commands(history).into_iter().filter(|line| line.starts_with("plumb ")).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in lines {
        let (code, text) = run(&line, place.path());
        assert!(matches!(code, Some(0 | 1)) && !text.contains("error:"), "`{line}` ended with {code:?}:\n{text}");
    }
    let index = fs::read_to_string(place.path().join("site/index.html")).expect("the site");
    assert!(index.contains("no series has 20."), "{index}");
    for file in ["results.csv", "results.run.json", "results.verdicts.csv", "junit.xml", "report.html"] {
        assert!(place.path().join(file).exists(), "{file} is among the artefacts");
    }
    let summary = fs::read_to_string(place.path().join("summary.md")).expect("the step's summary");
    assert!(summary.contains("## ci") && summary.contains("at most 10 % below baselines/ci.csv"), "{summary}");
    let verdicts = fs::read_to_string(place.path().join("results.verdicts.csv")).expect("verdicts");
    assert!(verdicts.contains("at most 10 % below baselines/ci.csv"), "{verdicts}");
}

/// A tag can be moved to other code, which would run with the rights of the job.
#[test]
fn our_workflows_name_actions_by_commit_and_write_without_any() {
    for file in ["ci.yml", "release.yml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/workflows").join(file);
        let workflow: serde_yaml::Value = serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let (mut named, mut written) = (0, 0);
        for job in workflow["jobs"].as_mapping().unwrap().values() {
            let rights = if job["permissions"].is_null() { &workflow["permissions"] } else { &job["permissions"] };
            let writes = rights["contents"] == "write";
            written += usize::from(writes);
            for uses in job["steps"].as_sequence().unwrap().iter().filter_map(|step| step["uses"].as_str()) {
                let (_, commit) = uses.split_once('@').expect("a commit");
                assert!(commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit()), "{file}: {uses}");
                assert!(!writes, "{file}: {uses} may write");
                named += 1;
            }
            assert!(!writes || job["container"].is_null(), "{file}: a foreign image may write");
        }
        assert!(named > 0 && written == usize::from(file == "release.yml"), "{file}");
    }
}
