//! The steps by which CI fetches the released program (`ci/`), run for real against a local HTTP server.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    process::{Command, Output},
};

use serde_yaml::Value;

use crate::{
    needs::{has_program, is_installed},
    program::Folder,
};

fn project(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// Serves these bytes at `/plumbline.tar.gz`, and nothing elsewhere. Returns the server's address.
fn serve(content: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let request: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let is_it = request.first().is_some_and(|line| line.starts_with("GET /plumbline.tar.gz "));
            let (status, body) = if is_it { ("200 OK", &content[..]) } else { ("404 Not Found", &[][..]) };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            // A client that has seen enough may be gone.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    address
}

/// An archive laid out like a release's, in which the program only says its version.
fn archive(folder: &Folder) -> Vec<u8> {
    let pack = "mkdir -p release/bin && printf '#!/bin/sh\\necho plumb 9.9.9\\n' >release/bin/plumb \
                && chmod 755 release/bin/plumb && tar -czf release.tar.gz release";
    assert!(Command::new("sh").args(["-c", pack]).current_dir(folder.path("")).status().unwrap().success());
    fs::read(folder.path("release.tar.gz")).unwrap()
}

fn sha256(folder: &Folder) -> String {
    let output = Command::new("sha256sum").arg(folder.path("release.tar.gz")).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// The step of the GitHub action.
fn github() -> String {
    let action: Value = serde_yaml::from_str(&project("ci/action.yml")).unwrap();
    let step = &action["runs"]["steps"][0];
    for (name, input) in [("PLUMBLINE_URL", "inputs.url"), ("PLUMBLINE_SHA256", "inputs.sha256")] {
        assert!(step["env"][name].as_str().unwrap().contains(input), "{name}");
    }
    step["run"].as_str().unwrap().to_owned()
}

/// The lines that a job has with the GitLab template.
fn gitlab() -> String {
    let template: Value = serde_yaml::from_str(&project("ci/gitlab.yml")).unwrap();
    let lines = template[".plumbline"]["before_script"].as_sequence().unwrap();
    lines.iter().filter_map(Value::as_str).chain(["plumb --version"]).collect::<Vec<_>>().join("\n")
}

/// Runs a step's script as CI does.
fn run(script: &str, folder: &Folder, url: &str, sha256: &str) -> Output {
    Command::new("sh")
        .args(["-e", "-c", script])
        .env("PLUMBLINE_URL", url)
        .env("PLUMBLINE_SHA256", sha256)
        .env("PLUMBLINE_DIR", folder.path("plumbline"))
        .env("GITHUB_ACTION_PATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci"))
        .env("GITHUB_PATH", folder.path("github-path"))
        .env_remove("http_proxy")
        .env("no_proxy", "127.0.0.1")
        .current_dir(folder.path(""))
        .output()
        .unwrap()
}

/// Whether one of the programs that the lines fetch with is installed.
fn fetches() -> bool {
    is_installed("curl") || has_program("wget", "wget")
}

#[test]
fn the_released_program_runs_if_its_checksum_is_right() {
    if !fetches() {
        return;
    }
    for (name, step) in [("GitHub", github()), ("GitLab", gitlab())] {
        let folder = Folder::new();
        let address = serve(archive(&folder));
        let ran = run(&step, &folder, &format!("{address}/plumbline.tar.gz"), &sha256(&folder));
        assert!(ran.status.success(), "{name}: {ran:?}");
        assert!(String::from_utf8_lossy(&ran.stdout).contains("plumb 9.9.9"), "{name}: {ran:?}");
        if name == "GitHub" {
            let path = fs::read_to_string(folder.path("github-path")).unwrap();
            assert_eq!(path.trim_end(), folder.name("plumbline/bin"));
        }
    }
}

#[test]
fn a_wrong_checksum_or_address_ends_with_a_sentence() {
    if !fetches() {
        return;
    }
    for (name, step) in [("GitHub", github()), ("GitLab", gitlab())] {
        let folder = Folder::new();
        let address = serve(archive(&folder));
        let wrong = "0".repeat(64);
        for (url, sha256, sentence) in [
            ("plumbline.tar.gz", &wrong, "expected is 0000"),
            ("missing.tar.gz", &sha256(&folder), "missing.tar.gz cannot be fetched"),
        ] {
            let ran = run(&step, &folder, &format!("{address}/{url}"), sha256);
            let said = String::from_utf8_lossy(&ran.stderr);
            assert!(!ran.status.success() && said.contains(sentence), "{name}: {ran:?}");
            assert!(!folder.path("plumbline").exists() && !folder.path("github-path").exists(), "{name}");
        }
    }
}

/// A template that is included from elsewhere brings no other file.
#[test]
fn both_fetch_by_the_same_lines() {
    let template: Value = serde_yaml::from_str(&project("ci/gitlab.yml")).unwrap();
    let inside = template[".plumbline"]["before_script"][0].as_str().unwrap();
    let inside: Vec<&str> = inside.lines().map(str::trim).filter(|line| !["(", ")"].contains(line)).collect();
    let fetch = project("ci/fetch");
    let lines: Vec<&str> = fetch.lines().filter(|line| !line.starts_with('#')).map(str::trim).collect();
    assert_eq!(inside, lines);
}
