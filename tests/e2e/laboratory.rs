//! `plumb fit --to netem`: the script that it writes builds a path between two namespaces, and takes it down.

use std::{fmt::Write as _, fs, process::Command};

use crate::{
    needs::has_program,
    netns::Namespace,
    program::{Folder, Ran, plumb},
};

const HEAD: &str = "test,member,record,iteration,status,latency_min_us,latency_p50_us,latency_p95_us,throughput_bits_per_s,\
                    message_bytes,messages_sent,lost,loss_runs\n";

/// Rows of the plan `path`: 20 Mbit/s, 10 ms and 80 kB each way, and losses in runs of four.
fn table() -> String {
    let mut text = HEAD.to_owned();
    for i in 1..=3 {
        let row = format!("iteration,{i},ok");
        let _ = writeln!(text, "idle,,{row},20000,20100,20200,,,,,");
        for way in ["upload", "download"] {
            let _ =
                writeln!(text, "{way}-loss,,{row},,,,,100,1000,20,5\n{way},load,{row},,,,19417476,1400,1000,300,300");
            let _ = writeln!(text, "{way},probe,{row},,52100,,,,,,");
        }
    }
    text
}

#[test]
fn the_script_builds_a_path_and_takes_it_down() {
    let folder = Folder::new();
    let (results, lab) = (folder.path("path.csv"), folder.path("lab"));
    fs::write(&results, table()).unwrap();
    // The second time it replaces its own files.
    let fit = ["fit", "--to", "netem", results.to_str().unwrap(), "-o", lab.to_str().unwrap(), "-f", "text"];
    assert_eq!(plumb(&fit).code, Some(0));
    let said = plumb(&fit);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let way = "rate 20.0 Mbit/s · queue 79.5 KiB · delay 10.0 ms · jitter 50.0 µs · loss 2.00 %, in runs of 4.00";
    for name in ["upload", "download"] {
        assert!(said.stdout.contains(&format!("{name}: {way}")), "{}", said.stdout);
    }
    let plan = lab.join("plan.yaml");
    let checked = plumb(&["check", plan.to_str().unwrap()]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    // A namespace of this machine tells whether such can be made here.
    let Some(_) = Namespace::new() else { return };
    let script = |word: &str| -> Ran { Command::new(lab.join("path")).arg(word).output().unwrap().into() };
    let is_there = || Command::new("ip").args(["-n", "plumb-path-near", "link"]).output().unwrap().status.success();
    if !has_program("tc", "iproute2") {
        return;
    }
    let up = script("up");
    let shaped = Command::new("tc").args(["-n", "plumb-path-far", "qdisc", "show", "dev", "data"]).output().unwrap();
    let shaped = String::from_utf8_lossy(&shaped.stdout).into_owned();
    let again = script("up");
    let was_there = is_there();
    let down = script("down");
    assert_eq!((up.code, was_there, down.code), (Some(0), true, Some(0)), "{}{}", up.stderr, down.stderr);
    assert!(!is_there());
    assert!(shaped.contains("qdisc tbf") && shaped.contains("rate 20Mbit"), "{shaped}");
    // A kernel with netem has both; one without says what is missing.
    let is_said = up.stderr.contains("no netem here (Error: Specified qdisc kind is unknown.)")
        && up.stderr.contains("loss gemodel 0.5102% 25.0000%");
    assert!(shaped.contains("netem") || is_said, "{shaped}{}", up.stderr);
    // It touches no namespace that is there already.
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("the namespace plumb-path-near exists"), "{}", again.stderr);
    assert_eq!(script("sideways").code, Some(2));
}

#[test]
fn results_that_make_no_laboratory_get_a_sentence() {
    let folder = Folder::new();
    let results = folder.name("path.csv");
    let lab = folder.name("lab");
    let other = format!("{HEAD}bulk,,iteration,1,ok,,,,1e9,1400,1000,0,0\n");
    let full = table().replace(",1000,300,300", ",1000,1,1");
    for (text, said) in [(other, "`plumb run path"), (full, "--set vars.flood=RATE above what the path carries")] {
        fs::write(&results, text).unwrap();
        let ran = plumb(&["fit", "--to", "netem", &results, "-o", &lab]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains(said) && ran.stdout.is_empty(), "{}", ran.stderr);
        assert!(!folder.path("lab").exists(), "nothing is written");
    }
    fs::write(&results, table()).unwrap();
    let plan = folder.path("plan.yaml");
    fs::write(&plan, "mine").unwrap();
    let ran = plumb(&["fit", "--to", "netem", &results, "-o", &folder.name(".")]);
    assert_eq!((ran.code, fs::read_to_string(&plan).unwrap().as_str()), (Some(2), "mine"), "{}", ran.stderr);
    assert!(ran.stderr.contains("plan.yaml is not a file of a laboratory: name another folder"), "{}", ran.stderr);
    for (words, said) in [(vec![&*results], "--output"), (vec![&*results, &*results, "-o", &*lab], "reads one file")] {
        let ran = plumb(&[&["fit", "--to", "netem"], &words[..]].concat());
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
}
