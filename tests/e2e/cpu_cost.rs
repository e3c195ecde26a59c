//! The CPU time of a test's own process is what the kernel counts for it, whatever runs beside it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use nix::unistd::{SysconfVar, sysconf};

use crate::program::{Folder, Serve, count, number, of, plumb, rows};

/// User and system time of a process, microseconds: fields 14 and 15 of its stat.
fn spent_us(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name of the program may hold spaces.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum();
    ticks * 1e6 / sysconf(SysconfVar::CLK_TCK).unwrap().unwrap() as f64
}

#[test]
fn what_others_use_is_not_in_the_cost_of_a_test() {
    let server = Serve::start(&[]);
    let folder = Folder::new();
    let plan = folder.plan(
        &format!("hosts: {{far: {{address: \"127.0.0.1\", control: \"{}\"}}}}", server.address),
        "  rr: {workload: tcp_rr, to: far, transactions: 20000}",
    );
    let done = AtomicBool::new(false);
    let before = spent_us(server.pid());
    let ran = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
        done.store(true, Ordering::Relaxed);
        ran
    });
    let counted = spent_us(server.pid()) - before;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let table = rows(&folder.path("r.csv"));
    let row = of(&table, "iteration")[0];
    let spent = number(row, "remote_process_demand") * count(row, "transactions") as f64;
    // The kernel counts in ticks. The session around the measurement costs little beside 20000 answers.
    let tick = 20_000.0;
    assert!(spent > 0.0 && spent <= counted + tick && spent >= counted / 2.0 - tick, "{spent} of {counted}");
    let of_machine = number(row, "remote_service_demand") * count(row, "transactions") as f64;
    assert!(of_machine > spent, "the neighbour counts there: {of_machine}, {spent}");
    assert_eq!(row["service_demand_unit"], "us_per_transaction");
}
