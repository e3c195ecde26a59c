//! Streams and requests over TLS: bytes that both ends agree on, records that the interface counted, and what is refused.

use std::{fs, process::Command};

use crate::{
    needs::has_program,
    netns::{Namespace, Pair},
    program::{Folder, Row, Serve, count, number, of, parse, plumb},
};

const CIPHERS: [&str; 3] = ["aes_128_gcm", "aes_256_gcm", "chacha20_poly1305"];

/// Data of a record, as a mean; `None`: nobody counted the records.
fn record_bytes(row: &Row) -> Option<f64> {
    row["tls_record_bytes"].parse().ok()
}

#[test]
fn both_ends_agree_on_every_byte_of_every_pattern() {
    let folder = Folder::new();
    let stream = "workload: tls_stream, integrity: true, bytes: 3MB";
    let tests = [
        format!("ciphers: {{{stream}, matrix: {{tls.cipher: [{}]}}}}", CIPHERS.join(", ")),
        format!("io: {{{stream}, matrix: {{io: [blocking, nonblocking, spin]}}}}"),
        format!("sizes: {{{stream}, matrix: {{message_size: [1000, 16383, 16384, 16385, 1MiB]}}}}"),
        format!("reverse: {{{stream}, direction: reverse}}"),
        format!("both: {{{stream}, direction: bidirectional, streams: 2}}"),
        format!("shared: {{{stream}, streams: 6, threads: 2}}"),
        "duplex: {workload: tls_duplex, integrity: true, bytes: 3MB}".to_owned(),
        "one: {workload: tls_rr, integrity: true, transactions: 500}".to_owned(),
        "many: {workload: tls_rr, integrity: true, inflight: 8, request_size: 20000, response_size: 70000, transactions: 500}".to_owned(),
        "joined: {workload: tls_rr, integrity: true, inflight: 8, coalesce: true, transactions: 500}".to_owned(),
        "paced: {workload: tls_rr, rate: 2k/s, transactions: 200}".to_owned(),
    ];
    let plan = folder.plan("", &tests.map(|test| format!("  {test}")).join("\n"));
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let iterations = of(&rows, "iteration");
    for row in &iterations {
        assert_eq!((&*row["status"], &*row["error"]), ("ok", ""), "{row:?}");
        assert_eq!((&*row["transport"], row["library"].starts_with("rustls 0.")), ("tls", true), "{row:?}");
        assert!(CIPHERS.contains(&&*row["tls_cipher"]), "{row:?}");
        if row["test"] != "paced" {
            assert_eq!(count(row, "bytes_sent"), count(row, "bytes_received"), "{row:?}");
        }
        let in_records = record_bytes(row).unwrap();
        match &*row["test"] {
            // Its last message may be a part of one.
            "sizes" => {
                let (all, message) = (count(row, "bytes_sent"), count(row, "message_bytes"));
                let records = all / message * message.div_ceil(16_384) + (all % message).div_ceil(16_384);
                assert!((in_records * records as f64 - all as f64).abs() < 1e-3, "{records}: {row:?}");
            }
            "one" | "paced" => assert_eq!(row["tls_record_bytes"], "1"),
            "many" => assert_eq!(row["tls_record_bytes"], "10000"),
            // Of 183 records three are timed.
            "ciphers" => {
                for end in ["local_encryption_cpus", "remote_encryption_cpus"] {
                    assert!((1e-6..1.5).contains(&number(row, end)), "{end}: {row:?}");
                }
            }
            "joined" => assert!((1.0..=8.0).contains(&in_records), "{in_records}"),
            _ => assert!(in_records > 16_000.0 && in_records <= 16_384.0, "{row:?}"),
        }
    }
    let ciphers: Vec<&str> =
        iterations.iter().filter(|row| row["test"] == "ciphers").map(|row| &*row["tls_cipher"]).collect();
    assert_eq!(ciphers, CIPHERS);
    let kept = |test: &str| iterations.iter().filter(|row| row["test"] == test).count();
    assert_eq!((kept("io"), kept("sizes"), kept("both"), kept("duplex")), (3, 5, 3, 3));
}

/// A record has 22 bytes beside its data. Messages of 100 bytes are a record each.
#[test]
fn the_interface_carries_records() {
    let Some(alone) = Namespace::new() else { return };
    let folder = Folder::new();
    let bytes = 4_000_000;
    let carried = |workload: &str| {
        let plan = folder.plan("", &format!("  it: {{workload: {workload}, message_size: 100, bytes: {bytes}}}"));
        let (rows, [before, after]) = alone.carried(&plan);
        let row = of(&rows, "iteration")[0];
        assert_eq!(count(row, "bytes_received"), bytes);
        assert_eq!(record_bytes(row), (workload == "tls_stream").then_some(100.0));
        // The headers of IPv4, and of TCP with timestamps: loopback counts none of Ethernet.
        let packets = after.received_packets - before.received_packets;
        after.received_bytes - before.received_bytes - packets * (20 + 32)
    };
    let (clear, sealed) = (carried("tcp_stream"), carried("tls_stream"));
    let records = bytes / 100 * 122;
    assert!((bytes..bytes + 400_000).contains(&clear), "{clear}");
    assert!((records..records + 400_000).contains(&sealed), "{sealed}, and the records have {records}");
}

#[test]
fn two_hosts_use_the_far_ends_certificate() {
    let Some(pair) = Pair::new() else { return };
    let (_daemon, hosts) = pair.serve();
    let folder = Folder::new();
    let plan = folder.plan(
        &hosts,
        "  it: {workload: tls_stream, bytes: 2MB, integrity: true, direction: bidirectional, streams: 3, to: far}",
    );
    let ran = pair.near.run(&plan);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    for row in of(&rows, "iteration") {
        assert_eq!(count(row, "bytes_sent"), count(row, "bytes_received"), "{row:?}");
    }
}

#[test]
fn what_tls_does_not_have_is_refused_with_the_reason() {
    let folder = Folder::new();
    for (test, words) in [
        ("workload: tcp_stream, tls: {cipher: aes_128_gcm}", "this test runs over tcp: leave it out"),
        ("workload: tls_stream, tls: {cipher: rc4}", "unknown value `rc4`"),
        ("workload: tls_rr, tls: {session: resumed}", "use tls_crr or tls_cc"),
        ("workload: tls_cc, tls: {session: early}", "tls_cc has none: use tls_crr"),
        ("workload: tls_crr, request_size: 16385, tls: {session: early}", "and these have 16385"),
        ("workload: tls_crr, io: nonblocking", "nonblocking"),
        ("workload: tls_stream, io: sendfile", "`io: sendfile` lets the kernel take the data by itself"),
        ("workload: tls_crr, tls: {records: kernel}", "is for tls_stream"),
        ("workload: tls_crr, tls: {remote_records: kernel}", "is for tls_stream"),
        ("workload: tcp_rr, tls: {remote_records: kernel}", "this test runs over tcp"),
        ("workload: quic_rr, tls: {remote_records: kernel}", "is about TLS over TCP"),
        (
            "workload: tls_stream, direction: reverse, io: sendfile, tls: {records: kernel, remote_records: user}",
            "`io: sendfile` lets the kernel take the data by itself",
        ),
        ("workload: tls_stream, receive: discard", "discard"),
        ("workload: tls_stream, control: none, remote_ports: 443, to: b", "control"),
    ] {
        let plan = folder.plan("hosts: {b: {address: 127.0.0.1}}", &format!("  it: {{{test}}}"));
        let ran = plumb(&["check", &plan]);
        assert!(
            ran.code == Some(2) && ran.stderr.contains(words),
            "{test}: {:?}\n{}{}",
            ran.code,
            ran.stdout,
            ran.stderr
        );
    }
}

/// The handshakes of a test are the far end's, whatever was asked: a flow's first one is full, and the others are as asked.
#[test]
fn each_connection_begins_as_asked() {
    let folder = Folder::new();
    let crr = "workload: tls_crr, integrity: true, transactions: 60";
    let sizes = "request_size: 3000, response_size: 100000";
    let tests = [
        format!("full: {{{crr}}}"),
        format!("resumed: {{{crr}, tls: {{session: resumed, cipher: aes_256_gcm}}}}"),
        format!("early: {{{crr}, {sizes}, streams: 3, tls: {{session: early}}}}"),
        format!("near: {{{crr}, {sizes}, close: near_first, tls: {{session: resumed}}}}"),
        format!("reset: {{{crr}, close: reset, io: spin, tls: {{session: early}}}}"),
        format!("shared: {{{crr}, streams: 4, threads: 2, tls: {{session: resumed}}}}"),
        "cc: {workload: tls_cc, transactions: 60, tls: {session: resumed}}".to_owned(),
        "cc_near: {workload: tls_cc, transactions: 60, close: near_first}".to_owned(),
        "paced: {workload: tls_crr, rate: 500/s, transactions: 60}".to_owned(),
    ];
    let plan = folder.plan("", &tests.map(|test| format!("  {test}")).join("\n"));
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let iterations = of(&rows, "iteration");
    assert_eq!(iterations.len(), 9);
    for row in iterations {
        assert_eq!((&*row["status"], &*row["error"], count(row, "errors")), ("ok", "", 0), "{row:?}");
        let (streams, all) = (count(row, "streams"), count(row, "transactions"));
        assert_eq!((all, count(row, "remote_connections")), (60, 60), "{row:?}");
        let ratio = |column: &str| row[column].parse::<f64>().unwrap();
        let later = (all - streams) as f64 / all as f64;
        let (resumed, early) = match &*row["test"] {
            "full" | "cc_near" | "paced" => (0.0, 0.0),
            "early" | "reset" => (later, later),
            _ => (later, 0.0),
        };
        assert!((ratio("resumed_ratio") - resumed).abs() < 1e-9, "{row:?}");
        assert!((ratio("early_ratio") - early).abs() < 1e-9, "{row:?}");
        assert_eq!(record_bytes(row), None);
        // The handshake is a part of the operation.
        let [handshake, whole] = ["handshake_p50_us", "latency_p50_us"].map(ratio);
        assert!(0.0 < handshake && handshake < whole, "{row:?}");
        let timed = netcore::measure::histogram::decode(&row["handshake_histogram"]).unwrap();
        assert_eq!(timed.len(), all, "{row:?}");
        for (quantile, column) in [(0.5, "handshake_p50_us"), (0.99, "handshake_p99_us")] {
            let read = timed.value_at_quantile(quantile).min(timed.max()) as f64 / 1e3;
            assert!((read - ratio(column)).abs() < 1e-9, "{read}: {row:?}");
        }
        assert_eq!(row["tls_cipher"], if row["test"] == "resumed" { CIPHERS[1] } else { CIPHERS[0] });
        if row["test"] == "early" {
            assert_eq!((count(row, "bytes_sent"), count(row, "bytes_received")), (60 * 103_000, 60 * 103_000));
        }
    }
    assert!(of(&rows, "summary").iter().all(|row| row["handshake_histogram"].is_empty()));
    let table = folder.path("rows.csv");
    fs::write(&table, &ran.stdout).unwrap();
    for kind in ["cdf", "percentiles"] {
        let points = folder.path(&format!("{kind}.csv"));
        let asked = ["plot", kind, "-x", "handshake_histogram", "--test", "full", "--data", points.to_str().unwrap()];
        let drawn = plumb(&[&asked[..], &["--term", table.to_str().unwrap()]].concat());
        assert!(drawn.code == Some(0) && drawn.stdout.contains("handshake"), "{}{}", drawn.stdout, drawn.stderr);
        assert!(drawn.stdout.contains("n = 60 values"), "{}", drawn.stdout);
    }
}

/// Makes a certificate with its key in a file, by another program.
fn certificate(folder: &Folder, name: &str, key: &[&str]) -> Option<String> {
    if !has_program("openssl", "openssl") {
        return None;
    }
    let [path, own] = ["", ".own"].map(|end| folder.path(&format!("{name}{end}.pem")).display().to_string());
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-nodes", "-subj", "/CN=any", "-keyout", &path, "-out", &own]).args(key);
    let made = openssl.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = fs::read_to_string(&own).unwrap() + &fs::read_to_string(&path).unwrap();
    fs::write(&path, text).unwrap();
    Some(path)
}

const P256: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];

#[test]
fn certificates_of_ones_own_are_used_over_tls_and_quic() {
    let folder = Folder::new();
    let Some(p256) = certificate(&folder, "p256", P256) else { return };
    let rsa = certificate(&folder, "rsa", &["-newkey", "rsa:2048"]).unwrap();
    let ed25519 = certificate(&folder, "ed25519", &["-newkey", "ed25519"]).unwrap();
    // Beyond what a far end of QUIC may send before the near end has answered.
    let long = folder.path("long.pem");
    let issuers = fs::read_to_string(folder.path("rsa.own.pem")).unwrap().repeat(20);
    fs::write(&long, fs::read_to_string(&rsa).unwrap() + &issuers).unwrap();
    let files = format!("tls.certificate: [{p256}, {rsa}, {ed25519}, {}]", long.display());
    let plan = folder.plan(
        "",
        &format!(
            "  stream: {{matrix: {{workload: [tls_stream, quic_stream], {files}}}, bytes: 3MB, integrity: true}}\n  \
             hands: {{matrix: {{workload: [tls_crr, quic_crr], {files}}}, transactions: 20}}\n  \
             resumed: {{matrix: {{workload: [tls_crr, quic_crr], {files}}}, transactions: 20, tls: {{session: resumed}}}}"
        ),
    );
    let table = folder.path("rows.csv");
    let ran = plumb(&["run", &plan, "--progress", "never", "-o", table.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = crate::program::rows(&table);
    let iterations = of(&rows, "iteration");
    assert_eq!(iterations.len(), 24);
    for row in iterations {
        assert_eq!((&*row["status"], &*row["error"]), ("ok", ""), "{row:?}");
    }
    let record = fs::read_to_string(folder.path("rows.run.json")).unwrap();
    for kind in ["ECDSA, a chain of", "RSA, a chain of", "ED25519, a chain of"] {
        assert!(record.contains(kind), "{kind}");
    }
}

#[test]
fn a_certificate_that_cannot_be_used_is_named_with_the_remedy() {
    let folder = Folder::new();
    let Some(good) = certificate(&folder, "good", P256) else { return };
    let written = |name: &str, text: String| {
        let path = folder.path(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let other = certificate(&folder, "other", P256).unwrap();
    let own = fs::read_to_string(folder.path("good.own.pem")).unwrap();
    let cases = [
        (
            written("mixed.pem", own.clone() + &fs::read_to_string(other).unwrap()),
            "is not that of its first certificate",
        ),
        (written("alone.pem", own), "append the key"),
        (written("words.pem", "words".to_owned()), "no certificate in PEM"),
        (folder.path("none.pem").display().to_string(), "No such file"),
    ];
    for (path, words) in cases {
        let plan =
            folder.plan("", &format!("  it: {{workload: tls_stream, bytes: 1kB, tls: {{certificate: {path}}}}}"));
        let ran = plumb(&["run", &plan, "--progress", "never"]);
        assert!(
            ran.code == Some(3) && ran.stderr.contains(&path) && ran.stderr.contains(words),
            "{words}: {}",
            ran.stderr
        );
    }
    // A daemon reads what its host allows.
    let plan = |serve: &Serve| {
        let hosts = format!("hosts: {{b: {{address: 127.0.0.1, control: \"{}\"}}}}", serve.address);
        folder.plan(&hosts, &format!("  it: {{workload: tls_stream, to: b, bytes: 1kB, tls: {{certificate: {good}}}}}"))
    };
    let closed = Serve::start(&[]);
    let ran = plumb(&["run", &plan(&closed), "--progress", "never"]);
    let words = "leave `tls.certificate` out, or start it with --allow-files";
    assert!(ran.code == Some(3) && ran.stderr.contains(words), "{}", ran.stderr);
    let open = Serve::start(&["--allow-files", &good]);
    assert_eq!(plumb(&["run", &plan(&open), "--progress", "never"]).code, Some(0));
}

/// The kernel's records, where it has them (`tests/vm/run` has such a kernel); elsewhere the end says what is missing.
#[test]
fn records_in_the_kernel_carry_every_byte_or_are_refused() {
    let folder = Folder::new();
    let stream = "workload: tls_stream, integrity: true, bytes: 3MB";
    let kernel = "tls: {records: kernel}";
    let [kernel_near, kernel_far] = [("kernel", "user"), ("user", "kernel")]
        .map(|(near, far)| format!("tls: {{records: {near}, remote_records: {far}}}"));
    let tests = [
        format!("ciphers: {{{stream}, {kernel}, matrix: {{tls.cipher: [{}]}}}}", CIPHERS.join(", ")),
        format!(
            "io: {{workload: tls_stream, bytes: 3MB, {kernel}, matrix: {{io: [blocking, nonblocking, spin, sendfile, splice, vmsplice]}}}}"
        ),
        format!("duplex: {{workload: tls_duplex, integrity: true, bytes: 3MB, {kernel}}}"),
        format!("rr: {{workload: tls_rr, integrity: true, request_size: 20000, transactions: 200, {kernel}}}"),
        // One end only: the library is the witness of the kernel.
        format!("near: {{{stream}, {kernel_near}, matrix: {{direction: [forward, reverse, bidirectional]}}}}"),
        format!("far: {{{stream}, {kernel_far}, matrix: {{direction: [forward, reverse, bidirectional]}}}}"),
        format!("file: {{workload: tls_stream, io: sendfile, bytes: 3MB, {kernel_near}}}"),
        format!("ways: {{workload: tls_duplex, integrity: true, bytes: 3MB, {kernel_far}}}"),
        format!("asked: {{workload: tls_rr, integrity: true, request_size: 20000, transactions: 200, {kernel_near}}}"),
    ];
    let plan = folder.plan("", &tests.map(|test| format!("  {test}")).join("\n"));
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    let rows = parse(&ran.stdout);
    if ran.stderr.contains("modprobe tls (CONFIG_TLS)") {
        assert!(ran.code == Some(3) && of(&rows, "iteration").iter().all(|row| row["status"] == "failed"), "{rows:?}");
        return;
    }
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for row in of(&rows, "iteration") {
        assert_eq!(row["error"], "", "{row:?}");
        let sender = match (&*row["test"], &*row["direction"]) {
            ("near", "reverse") | ("far" | "ways", "forward") => "user",
            // Of two senders that differ, none is the row's.
            ("near" | "far" | "ways", "both") => "",
            _ => "kernel",
        };
        assert_eq!(row["tls_records"], sender, "{row:?}");
        assert_eq!(row["library"] == "kernel", sender == "kernel", "{row:?}");
        assert_eq!(record_bytes(row).is_none(), sender == "kernel", "{row:?}");
        assert_eq!(count(row, "bytes_sent"), count(row, "bytes_received"), "{row:?}");
    }
}
