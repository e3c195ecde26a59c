//! Far ends that do not start: the host, what went wrong there, its own last words, and what to do.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::{
    fleet::{Fleet, HUB},
    launch::{launch_of, run},
    program::{Folder, Ran},
};

/// Takes milliseconds, and nothing runs if a far end is missing.
const TEST: &str = "  rr: {workload: tcp_rr, from: h1, to: h2, transactions: 10}";

/// Two hosts, of which `h1` is fine.
struct Pair {
    fleet: Fleet,
    folder: Folder,
}

impl Pair {
    /// With these lines in front of sshd's configuration.
    fn new(sshd: &str) -> Option<Self> {
        Some(Self { fleet: Fleet::new(2)?.with_sshd(sshd)?, folder: Folder::new() })
    }

    /// Runs with these options of ssh for `h2`.
    fn run(&self, ssh: &str) -> Ran {
        self.run_with(&format!("launch: {{ssh: {{host: h2, {ssh}}}}}"))
    }

    fn run_with(&self, h2: &str) -> Ran {
        run(&self.fleet, &self.folder, &format!("{{h1: {{launch: ssh}}, h2: {{{h2}}}}}"), TEST)
    }

    /// A run that ends with exit code 3 and an error about `h2` alone with these words, and leaves nothing.
    fn fails(&self, ssh: &str, words: &[&str]) {
        let hosts = self.fleet.all_hosts();
        let before = self.fleet.traces(&hosts);
        is_about_h2(ssh, &self.run(ssh), words);
        self.fleet.await_clean(ssh, &hosts, &before, &[]);
    }

    /// A program on both hosts: the path is one of a shared file system.
    fn program(&self, name: &str, text: &[u8]) -> String {
        let path = self.fleet.path(HUB, &format!("/run/fleet/bin/{name}"));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        format!("/run/fleet/bin/{name}")
    }

    /// The user's configuration of ssh with other lines in front.
    fn config(&self, lines: &str) -> String {
        let path = self.folder.path("ssh_config");
        let own = fs::read_to_string(self.fleet.path(HUB, "/etc/ssh/ssh_config")).unwrap();
        fs::write(&path, format!("{lines}\n{own}")).unwrap();
        format!("config: {}", path.display())
    }
}

fn is_about_h2(what: &str, ran: &Ran, words: &[&str]) {
    assert_eq!(ran.code, Some(3), "{what}: {}", ran.stderr);
    for word in [&["host `h2`"], words].concat() {
        assert!(ran.stderr.contains(word), "{what}: {word}: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("`h1`"), "{what}: {}", ran.stderr);
}

#[test]
fn an_ssh_that_cannot_log_in_is_quoted_with_advice() {
    let Some(pair) = Pair::new("") else { return };
    pair.fails("port: 23", &["Connection refused", "nothing listens there"]);
    let stranger = pair.config("PubkeyAuthentication no");
    pair.fails(&stranger, &["Permission denied (publickey", "no password is asked for"]);
    let strange = pair.config("UserKnownHostsFile /dev/null");
    pair.fails(&strange, &["host key is known for", "its host key is unknown here"]);
    let other_key = pair.folder.name("known_hosts");
    pair.fleet.read(HUB, &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", &pair.folder.name("key")]);
    let public = fs::read_to_string(pair.folder.path("key.pub")).unwrap();
    fs::write(&other_key, format!("h2,10.77.0.2 {public}")).unwrap();
    let changed = pair.config(&format!("UserKnownHostsFile {other_key}"));
    pair.fails(&changed, &["has changed", "its host key is another one than you know"]);
    let nameless = pair.run_with("launch: {ssh: {host: nosuch.invalid}}");
    is_about_h2(
        "an unknown name",
        &nameless,
        &["Could not resolve hostname nosuch.invalid", "the name is unknown here"],
    );
}

#[test]
fn a_password_that_only_a_person_could_type_is_not_waited_for() {
    let Some(pair) = Pair::new("PasswordAuthentication yes\nPermitRootLogin yes") else { return };
    let config = pair.config("PubkeyAuthentication no");
    pair.fails(&config, &["Permission denied (publickey,password", "no password is asked for"]);
}

#[test]
fn a_program_that_is_missing_or_another_one_is_named_with_advice() {
    let Some(pair) = Pair::new("") else { return };
    pair.fails("program: nosuchplumb", &["nosuchplumb: not found", "with `program`", "`copy: true`"]);
    pair.fails("program: /nonexistent/plumb", &["No such file or directory", "with `program`"]);
    // A version from before `--launched`, and a later one with other lines.
    let old = pair.program("old", b"#!/bin/sh\necho \"error: unexpected argument '--launched' found\" >&2\nexit 2\n");
    pair.fails(&format!("program: {old}"), &["unexpected argument '--launched'", "the program there is older"]);
    let greeting = br#"#!/bin/sh
echo 'plumb-serving {"contract":99,"version":"99.1.0","pid":1,"host":"h2","machine":"x86_64","port":1,"addresses":[],"rank":null,"node":null,"reached_at":null}'
cat > /dev/null
"#;
    let later = pair.program("later", greeting);
    pair.fails(&format!("program: {later}"), &["99.1.0", "install this one", "`copy: true`"]);
    let garbled = pair.program("garbled", b"#!/bin/sh\necho 'plumb-serving what?'\ncat > /dev/null\n");
    pair.fails(&format!("program: {garbled}"), &["greets in an unknown way"]);
    // The header of a program for another machine (PA-RISC), and the loader's words about another C library.
    let foreign =
        pair.program("foreign", b"\x7fELF\x02\x02\x01\0\0\0\0\0\0\0\0\0\0\x02\0\x0f\0\0\0\x01\0\0\0\0\0\0\0\0");
    pair.fails(&format!("program: {foreign}"), &["Exec format error", "another machine"]);
    let loader = b"#!/bin/sh\necho \"plumb: /lib/libc.so.6: version \\`GLIBC_2.99' not found (required by plumb)\" >&2\nexit 1\n";
    let unloadable = pair.program("unloadable", loader);
    pair.fails(&format!("program: {unloadable}"), &["GLIBC_2.99", "its C library is older"]);
    let mute = pair.program("mute", b"#!/bin/sh\necho 'out of order' >&2\nexit 5\n");
    pair.fails(&format!("program: {mute}"), &["exit status: 5", "out of order"]);
}

#[test]
fn a_copy_is_refused_by_a_host_without_a_place() {
    let Some(pair) = Pair::new("") else { return };
    for folder in ["/root", "/tmp", "/var/tmp", "/dev/shm"] {
        pair.fleet.read("h2", &["mount", "-o", "remount,noexec", folder]);
    }
    pair.fails("copy: true", &["no folder for the program", "noexec"]);
    // One is enough, and it is found behind those that are unfit.
    pair.fleet.read("h2", &["mount", "-o", "remount,exec", "/dev/shm"]);
    let ran = pair.run("copy: true");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn a_copy_is_the_program_for_the_far_ends_machine() {
    let Some(pair) = Pair::new("") else { return };
    pair.program("uname", b"#!/bin/sh\n[ $(hostname) = h2 ] && echo aarch64 || exec /bin/uname \"$@\"\n");
    // It is looked for beside the program.
    let beside = "/run/fleet/bin/plumb-aarch64,";
    let release = "-aarch64.tar.gz, from this program's release";
    pair.fails("copy: true", &["its machine is aarch64", beside, "No such file", release]);
    pair.program("plumb-aarch64", b"#!/bin/sh\necho plumb 0.0.9\n");
    pair.fails("copy: true", &[beside, "is not of this program's version", release]);
    // This program in the place of the one for that machine.
    let right = fs::read(env!("CARGO_BIN_EXE_plumb")).unwrap();
    pair.program("plumb-aarch64", &right);
    let hosts = pair.fleet.all_hosts();
    let before = pair.fleet.traces(&hosts);
    let ran = pair.run("copy: true");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(launch_of(&pair.folder, "h2")["copied"], true);
    pair.fleet.await_clean("the program for another machine", &hosts, &before, &[]);
    // Or in the folder that the user names.
    let plan = pair.folder.plan(
        "hosts: {h2: {launch: {ssh: {host: h2, copy: true}}}}",
        "  rr: {workload: tcp_rr, to: h2, transactions: 10}",
    );
    let elsewhere = ["env", "PLUMB_PROGRAMS=/nonexistent", "/run/fleet/bin/plumb", "run", &plan];
    is_about_h2("another folder", &pair.fleet.run(HUB, &elsewhere), &["/nonexistent/plumb-aarch64", release]);
}

#[test]
fn what_a_login_shell_prints_is_no_greeting() {
    let Some(pair) = Pair::new("") else { return };
    // bash reads it for commands of ssh, too.
    let chatter = "echo Welcome to h2; echo; echo 'data 1 5'; seq 2000; echo 'beware of the leopard' >&2\n";
    fs::write(pair.fleet.path("h2", "/root/.bashrc"), chatter).unwrap();
    for way in ["", "copy: true"] {
        let ran = pair.run(way);
        assert_eq!(ran.code, Some(0), "{way}: {}", ran.stderr);
    }
    let ran = pair.run_with("control: launcher, launch: {ssh: {host: h2}}");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = pair.run("program: nosuchplumb");
    is_about_h2("a chatty host", &ran, &["nosuchplumb: not found"]);
}

#[test]
fn a_host_whose_address_for_data_has_no_way_back_is_named() {
    let Some(pair) = Pair::new("") else { return };
    pair.fleet.read("h2", &["ip", "address", "add", "10.99.0.2/24", "dev", "eth0"]);
    let ran = pair.run_with("network: 10.99.0.0/24, launch: {ssh: {host: h2}}");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("host `h2`") && ran.stderr.contains("10.99.0.2"), "{}", ran.stderr);
    assert!(ran.stderr.contains("nreachable"), "{}", ran.stderr);
}

/// Eight ends on one host: `e1` … `e8`.
fn eight(fleet: &Fleet, folder: &Folder, ssh: &str) -> Ran {
    let ends: Vec<_> = (1..=8).map(|i| format!("e{i}: {{launch: {{ssh: {{host: h1, {ssh}}}}}}}")).collect();
    let tests: Vec<_> = (1..=8).map(|i| format!("  t{i}: {{workload: tcp_rr, to: e{i}, transactions: 5}}")).collect();
    run(fleet, folder, &format!("{{{}}}", ends.join(", ")), &tests.join("\n"))
}

#[test]
fn an_sshd_that_takes_few_logins_at_a_time_gets_them_again() {
    let Some(fleet) = Fleet::new(1).and_then(|f| f.with_sshd("MaxStartups 2:50:3")) else { return };
    let folder = Folder::new();
    let ran = eight(&fleet, &folder, "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let log = fs::read_to_string(fleet.path(HUB, "/run/fleet/ssh/h1.log")).unwrap();
    assert!(log.contains("MaxStartups throttling"), "{log}");
}

#[test]
fn a_shared_connection_with_few_sessions_is_enough() {
    let Some(pair) = Pair::new("MaxSessions 2") else { return };
    let config = pair.config(&format!("ControlMaster auto\nControlPath {}/%C", pair.folder.name("")));
    let ran = eight(&pair.fleet, &pair.folder, &config);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn one_of_sixteen_that_fails_is_named_and_the_others_are_ended() {
    let Some(fleet) = Fleet::new(16).and_then(|f| f.with_sshd("")) else { return };
    let (folder, hosts) = (Folder::new(), fleet.all_hosts());
    let before = fleet.traces(&hosts);
    let ssh = |host: &str| if host == "h7" { "{ssh: {program: nosuchplumb}}" } else { "ssh" };
    let inventory: Vec<_> = fleet.hosts().map(|h| format!("{h}: {{launch: {}}}", ssh(&h))).collect();
    let tests: Vec<_> =
        fleet.hosts().map(|h| format!("  to_{h}: {{workload: tcp_rr, to: {h}, transactions: 5}}")).collect();
    let ran = run(&fleet, &folder, &format!("{{{}}}", inventory.join(", ")), &tests.join("\n"));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("host `h7`") && ran.stderr.contains("nosuchplumb: not found"), "{}", ran.stderr);
    assert!(!fleet.hosts().any(|h| h != "h7" && ran.stderr.contains(&format!("host `{h}`"))), "{}", ran.stderr);
    fleet.await_clean("after one of sixteen", &hosts, &before, &[]);
}
