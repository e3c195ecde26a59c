//! The real program against real sockets, daemons and namespaces.

mod attacks;
mod baseline;
mod bisect;
mod buffers;
mod case_ids;
mod cgroup;
mod check_docs;
mod check_errors;
mod check_schema;
mod ci;
mod completions;
mod confirm;
mod copyless;
mod counters;
mod cpu_cost;
mod deploy;
#[expect(dead_code, reason = "no test calls the example's own main")]
#[path = "../../schemas/examples/dictionary.rs"]
mod dictionary;
mod directions;
mod ecn;
mod examples;
mod exclusive;
mod export_consumers;
mod export_iperf3;
mod export_trackers;
mod faults;
mod fetch;
mod filters;
#[path = "../common/fleet/mod.rs"]
mod fleet;
mod fleet_selftest;
mod flent;
mod gate;
mod history;
mod history_faults;
mod hops;
mod hostile;
mod hosts;
mod imports;
mod interop;
mod iperf3_scripts;
mod keys;
mod laboratory;
mod launch;
mod launch_cleanup;
mod launch_errors;
mod launch_mpi;
mod launch_slurm;
mod limited;
mod measure;
mod metrics;
mod migrating;
mod module_order;
mod mpi;
#[path = "../common/needs.rs"]
mod needs;
#[path = "../common/netns.rs"]
mod netns;
mod netperf_command;
mod netperf_lab;
mod netperf_scripts;
mod nodeset;
mod one_port;
mod one_way;
mod outage;
mod outputs;
mod pairs;
mod peer_iperf3;
mod peer_iperf3_server;
mod peer_netperf;
mod peer_netserver;
#[expect(dead_code, reason = "no test calls the example's own main")]
#[path = "../../runner/examples/plan_schema.rs"]
mod plan_schema;
mod plans;
mod power;
#[path = "../common/program.rs"]
mod program;
mod programs;
mod promises;
mod quic;
mod ranks;
mod readme;
mod relay;
mod replacing;
#[path = "../common/repository.rs"]
mod repository;
mod resume;
mod run;
mod segments;
mod selectors;
mod serve_log;
mod services;
mod signals;
mod soak;
mod socket_options;
mod spin;
mod stamp;
mod strace;
mod threads;
mod tls;
mod uring;
mod watch;
mod why;
mod wire;
mod witness;
mod workloads;
