//! Keys for an operator: made, shared, private, and missing.

use std::os::unix::fs::PermissionsExt;

use crate::program::{Folder, Serve, of, parse, plumb};

const HOSTS: &str = "hosts: {b: {address: 127.0.0.1}}";
const REMOTE: &str = "  bulk: {workload: tcp_stream, to: b, bytes: 10MB}";

#[test]
fn a_key_opens_the_daemon_that_has_it_and_nothing_else_does() {
    let folder = Folder::new();
    let (key, other) = (folder.name("lab.key"), folder.name("other.key"));
    assert_eq!(plumb(&["key", &key]).code, Some(0));
    assert_eq!(plumb(&["key", &other]).code, Some(0));
    let plan = folder.plan(HOSTS, REMOTE);
    let keyed = Serve::start(&["--key-file", &key]);
    let open = Serve::start(&[]);
    let run = |address: &str, more: &[&str]| {
        let host = format!("b={address}");
        let mut all = vec!["run", &plan, "--host", &host, "--progress", "never"];
        all.extend(more);
        plumb(&all)
    };

    let ran = run(&keyed.address, &["--key-file", &key]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    assert!(of(&rows, "iteration").iter().all(|row| row["status"] == "ok"), "{}", ran.stdout);

    for (address, more, sentence) in [
        (&keyed.address, vec![], "requires a key; give one with hosts.b.key_file in the plan, --key-file or PLUMB_KEY"),
        (&keyed.address, vec!["--key-file", &other], "it has another key"),
        (&open.address, vec!["--key-file", &key], "uses no key and one was given for it"),
    ] {
        let ran = run(address, &more);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains("host `b`") && ran.stderr.contains(sentence), "{sentence}: {}", ran.stderr);
    }
}

#[test]
fn a_key_that_others_can_read_is_refused_at_both_ends() {
    let folder = Folder::new();
    let key = folder.name("lab.key");
    assert_eq!(plumb(&["key", &key]).code, Some(0));
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // An existing key is never replaced: that would lock out every end that still has it.
    let text = std::fs::read(&key).unwrap();
    assert_ne!(plumb(&["key", &key]).code, Some(0));
    assert_eq!(std::fs::read(&key).unwrap(), text);

    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let plan = folder.plan(HOSTS, REMOTE);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--key-file", &key];
    let run = ["run", &plan, "--host", "b=127.0.0.1:1", "--key-file", &key];
    for args in [&serve[..], &run[..]] {
        let ran = plumb(args);
        assert!(!matches!(ran.code, Some(0) | None), "{}", ran.stderr);
        assert!(ran.stderr.contains("chmod 600"), "{}", ran.stderr);
    }
}
