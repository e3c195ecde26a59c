//! The NAS Parallel Benchmarks (3.x, of MPI, OpenMP and one process): the block of results that every kernel prints.

use super::format::{Format, Line, Place};
use Place::{Begins, Ends, Inside};

pub(super) const NPB: Format = Format {
    name: "npb",
    failures: &[],
    wanted: "",
    lines: &[
        // The programs in C print no full stop.
        Line(Begins, "BT Benchmark Completed…", "workload=nas_bt"),
        Line(Begins, "CG Benchmark Completed…", "workload=nas_cg"),
        Line(Begins, "DC Benchmark Completed…", "workload=nas_dc"),
        Line(Begins, "DT Benchmark Completed…", "workload=nas_dt"),
        Line(Begins, "EP Benchmark Completed…", "workload=nas_ep"),
        Line(Begins, "FT Benchmark Completed…", "workload=nas_ft"),
        Line(Begins, "IS Benchmark Completed…", "workload=nas_is"),
        Line(Begins, "LU Benchmark Completed…", "workload=nas_lu"),
        Line(Begins, "MG Benchmark Completed…", "workload=nas_mg"),
        Line(Begins, "SP Benchmark Completed…", "workload=nas_sp"),
        Line(Begins, "UA Benchmark Completed…", "workload=nas_ua"),
        Line(Inside, "Class = {class}", ""),
        Line(Inside, "Time in seconds = {elapsed_s}", ""),
        Line(Inside, "Total processes = {ranks}", ""),
        Line(Inside, "Total threads = {threads}", ""),
        // Size and iterations follow from the class, Mop/s/process from the total.
        Line(Inside, "Mop/s total = {mops_per_s}", ""),
        // Compile options follow, with signs of equality of their own.
        Line(Ends, "Verification = …", ""),
    ],
    check: |row, line| match line.strip_prefix("Verification = ") {
        Some("UNSUCCESSFUL") => Err(format!(
            "the result of {} of class {} is wrong (verification UNSUCCESSFUL), so that its speed says nothing: look for a \
             faulty machine, library or compiler option",
            kernel(row),
            row.class.as_deref().unwrap_or("?")
        )),
        Some("SUCCESSFUL") => {
            row.verified = Some(true);
            Ok(())
        }
        Some("NOT PERFORMED") | None => Ok(()),
        Some(_) => Err(format!("expected SUCCESSFUL or UNSUCCESSFUL, found `{line}`")),
    },
    finish: |mut row, is_whole, sheet| {
        if !is_whole || row.mops_per_s.is_none() {
            let kernel = kernel(&row);
            return Err(format!(
                "the results of {kernel} that begin here have no Mop/s total and verification: cut off there"
            ));
        }
        if row.verified.is_none() {
            sheet.note("a kernel did not verify its result: `verified` is empty");
        }
        (row.transport, row.direction) = (row.ranks.map(|_| "mpi".to_owned()), None);
        Ok(Some(row))
    },
};

fn kernel(row: &schemas::columns::Row) -> String {
    row.workload.as_deref().unwrap_or_default().trim_start_matches("nas_").to_uppercase()
}
