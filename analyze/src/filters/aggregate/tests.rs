use super::*;
use crate::parsed;

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn aggregate(file: &tempfile::NamedTempFile, options: &[&str]) -> Result<String, Error> {
    let path = file.path().to_str().unwrap();
    let args = parsed(["aggregate", path].iter().chain(options)).unwrap();
    let mut out = Vec::new();
    run(&args, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

const SMALL: &str = "case,record,phase,status,streams,throughput_bits_per_s,latency_p99_us\n\
    a,interval,measure,ok,1,7,\na,iteration,measure,ok,1,1,\na,iteration,measure,ok,1,3,\n\
    b,iteration,measure,ok,1,5,\na,iteration,measure,failed,1,,\na,summary,,ok,1,2,\n";

#[test]
fn groups_stand_in_the_order_of_their_first_rows() {
    let out = aggregate(&file(SMALL), &["-m", "throughput", "-a", "count,mean,stddev,median,best,p50"]).unwrap();
    assert_eq!(
        out,
        "case,throughput_bits_per_s_count,throughput_bits_per_s_mean,throughput_bits_per_s_stddev,\
         throughput_bits_per_s_median,throughput_bits_per_s_best,throughput_bits_per_s_p50\n\
         a,2,2,1.4142135623730951,2,3,2\nb,1,5,,5,5,5\n"
    );
}

#[test]
fn rows_are_grouped_by_their_file() {
    // The second file has its columns in another order.
    let (one, two) = (file(SMALL), file("throughput_bits_per_s,case\n10,a\n20,a\n"));
    let [a, b] = [&one, &two].map(|file| file.path().to_str().unwrap());
    let of = |arguments: &[&str]| {
        let args = parsed(["aggregate", a, b, "-m", "throughput", "-a", "mean"].iter().chain(arguments)).unwrap();
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let head = "throughput_bits_per_s_mean";
    assert_eq!(of(&["-g", "file"]), format!("file,{head}\n{a},3\n{b},15\n"));
    assert_eq!(of(&["--by", "case,file"]), format!("case,file,{head}\na,{a},2\nb,{a},5\na,{b},15\n"));
    // A table that has such a column means that.
    let own = file("file,throughput_bits_per_s\nx,1\ny,2\n");
    let out = aggregate(&own, &["-g", "file", "-m", "throughput", "-a", "mean"]).unwrap();
    assert_eq!(out, format!("file,{head}\nx,1\ny,2\n"));
}

#[test]
fn fairness_is_that_of_streams() {
    let text = "case,record,iteration,stream,throughput_bits_per_s\na,stream,1,0,4\na,stream,1,1,0\na,stream,2,0,3\n\
        a,stream,2,1,3\na,iteration,1,,4\na,iteration,2,,6\n";
    let options = ["--record", "stream", "-g", "case,iteration", "-m", "throughput", "-a", "fairness,p5.5,p55"];
    let out = aggregate(&file(text), &options).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    // Percentiles keep names of their own, whatever their digits.
    let column = "throughput_bits_per_s";
    assert_eq!(lines[0], format!("case,iteration,{column}_fairness_ratio,{column}_p055,{column}_p55"));
    assert!(lines[1].starts_with("a,1,0.5,") && lines[2].starts_with("a,2,1,3,"), "{out}");
}

#[test]
fn the_header_is_written_without_rows() {
    let out = aggregate(&file("case,throughput_bits_per_s\n"), &["-g", "case", "-m", "throughput"]).unwrap();
    assert_eq!(out.lines().count(), 1);
    assert!(out.starts_with("case,throughput_bits_per_s_count,"));
}

#[test]
fn parts_are_not_taken_for_observations() {
    let small = file(SMALL);
    let error = |options: &[&str]| aggregate(&small, options).unwrap_err();
    assert!(error(&["--record", "interval"]).to_string().contains("not independent observations"));
    let mean = error(&["--record", "interval", "-a", "mean"]);
    assert!(mean.to_string().contains("the mean of parts is not the whole's"), "{mean}");
    assert_eq!(mean.exit_code(), 2);
    assert!(aggregate(&small, &["--record", "interval", "-a", "median,max"]).is_ok());
}

#[test]
fn unknown_statistics_are_named() {
    let error = aggregate(&file(SMALL), &["-a", "average"]).unwrap_err().to_string();
    assert!(error.starts_with("unknown statistic `average`: there are count, sum, mean"), "{error}");
}

/// Twelve megabytes are several blocks; quotes put some of them on the slow path.
#[test]
fn any_number_of_threads_writes_the_same_bytes() {
    let mut text = String::from("case,streams,throughput_bits_per_s,error\n");
    let mut x: u64 = 1;
    for i in 0..220_000 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let note = if i % 100_000 == 77 { "\"a, \"\"b\"\"\nc\"" } else { "" };
        text += &format!("case{},{},{}.{},{note}\n", x >> 60, (x >> 50) % 3, x >> 33, i);
    }
    let file = file(&text);
    let options = ["-g", "case,streams", "-m", "throughput", "-a", "count,mean,stddev,median,p99,ci,min,max"];
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| aggregate(&file, &options).unwrap())
    };
    let one = on(1);
    assert_eq!(one.lines().count(), 1 + 16 * 3);
    assert_eq!(one, on(2));
    assert_eq!(one, on(5));
    // Against the plain way: every row in turn.
    let mut table = Table::open(&crate::table::InputArgs { files: vec![file.path().to_owned()] }).unwrap();
    let mut sum = 0.0;
    let mut count = 0.0;
    while let Some(row) = table.next_row().unwrap() {
        sum += row.number(2).unwrap().unwrap();
        count += 1.0;
    }
    let mut sums = (0.0, 0.0);
    for line in one.lines().skip(1) {
        let cells: Vec<f64> = line.split(',').skip(2).take(2).map(|c| c.parse().unwrap()).collect();
        sums = (sums.0 + cells[0] * cells[1], sums.1 + cells[0]);
    }
    assert_eq!(sums.1, count);
    assert!((sums.0 / sum - 1.0).abs() < 1e-12);
}

#[test]
fn the_first_error_of_the_input_wins() {
    let mut text = String::from("case,throughput_bits_per_s\n");
    for i in 0..1_100_000 {
        text += if i == 600_000 || i == 1_090_000 { "a,x\n" } else { "a,12345\n" };
    }
    let error = aggregate(&file(&text), &["-m", "throughput"]).unwrap_err().to_string();
    assert!(error.ends_with(":600002, column `throughput_bits_per_s`: `x` is not a number"), "{error}");
}

/// Lines are counted per piece and per block, and a quoted cell may hold line ends.
#[test]
fn errors_name_their_line_wherever_they_are() {
    for rows in [0, 30_000, 600_000] {
        let mut text = b"case,throughput_bits_per_s,error\na,1,\"two\nlines\"\n".to_vec();
        text.extend(b"a,12345,\n".repeat(rows));
        for (bad, said) in [(&b"a,x,\n"[..], "`x` is not a number"), (b"\xff,1,\n", "byte 0xff is not UTF-8")] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), [&text, bad, b"a,1\n"].concat()).unwrap();
            let error = aggregate(&file, &["-m", "throughput"]).unwrap_err().to_string();
            assert!(error.contains(&format!(":{}", 4 + rows)) && error.contains(said), "{rows}: {error}");
        }
    }
}

#[test]
fn cells_that_nobody_looks_at_are_still_counted() {
    for (last, said) in [("a,1", "the row has 2 cells, the header 4"), ("a,1,,,", "the row has 5 cells, the header 4")]
    {
        let text = format!("case,throughput_bits_per_s,plan,error\na,1,p,\n{last}\n");
        let error = aggregate(&file(&text), &["-m", "throughput"]).unwrap_err().to_string();
        assert!(error.ends_with(&format!(":3: {said}")), "{error}");
    }
}

/// S and SKEWED of stats/published.rs, in an order of their own.
const SAMPLES: &str = "case,throughput_bits_per_s\n\
    s,41.2\ns,42.3\nskewed,12.5\ns,40.8\ns,41.9\ns,42.8\nskewed,0.2\nskewed,0.5\ns,41.1\ns,41.7\ns,42.0\ns,41.5\ns,39.9\n\
    skewed,0.9\nskewed,1.1\nskewed,1.3\nskewed,1.9\nskewed,2.8\nskewed,4.4\nskewed,7.1\n\
    few,1\nfew,2\nfew,3\nfew,4\nfew,5\nfew,6\nfew,7\n";

/// The first two cells behind the case, for each line.
fn ends(out: &str) -> Vec<(f64, f64)> {
    let cell = |line: &str, i: usize| line.split(',').nth(i).unwrap().parse().unwrap_or(f64::NAN);
    out.lines().skip(1).map(|line| (cell(line, 1), cell(line, 2))).collect()
}

#[test]
fn the_bootstrap_is_of_the_centre_asked_for() {
    let samples = file(SAMPLES);
    let interval = |statistics: &str, more: &[&str]| {
        let options = [&["-m", "throughput", "--ci", "bootstrap", "-a", statistics], more].concat();
        aggregate(&samples, &options).unwrap()
    };
    let close = |ours: (f64, f64), low: f64, high: f64, tolerance: f64| {
        assert!((ours.0 / low - 1.0).abs() < tolerance && (ours.1 / high - 1.0).abs() < tolerance, "{ours:?}");
    };
    // scipy.stats.bootstrap((S,), numpy.mean, method='BCa', n_resamples=999999, rng=default_rng(1)), and of SKEWED, with
    // as much noise as stats/published.rs tells of.
    let mean = interval("ci", &[]);
    close(ends(&mean)[0], 40.98, 41.96, 0.001);
    close(ends(&mean)[1], 1.61, 6.65, 0.04);
    let header = mean.lines().next().unwrap();
    assert_eq!(
        header,
        "case,throughput_bits_per_s_ci_low,throughput_bits_per_s_ci_high,throughput_bits_per_s_margin_ratio,confidence_level"
    );
    // The same with confidence_level=.9
    close(ends(&interval("ci,mean,median", &["--level", "90%"]))[0], 41.07, 41.89, 0.001);
    // scipy.stats.bootstrap((S,), numpy.median, …)
    close(ends(&interval("ci,median,mean", &[]))[0], 41.1, 42.1, 1e-9);
    close(ends(&interval("ci,p50", &[]))[0], 41.1, 42.1, 1e-9);
    // scipy.stats.bootstrap((S,), lambda a, axis: scipy.stats.trim_mean(a, .1, axis=axis), …)
    close(ends(&interval("ci,trimmed", &[]))[0], 41.0, 42.025, 0.001);
    // Too few values are no interval.
    assert_eq!(mean.lines().nth(3), Some("few,,,,0.95"));
    assert_ne!(mean, interval("ci", &["--seed", "2"]));
}

#[test]
fn the_bootstrap_is_the_same_on_any_number_of_threads() {
    let samples = file(SAMPLES);
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| aggregate(&samples, &["-m", "throughput", "--ci", "bootstrap"]).unwrap())
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn what_is_too_much_to_resample_is_an_error() {
    let table = |rows: usize| {
        let mut text = String::from("case,throughput_bits_per_s\n");
        for i in 0..rows {
            text += &format!("a,{}\n", 100 + i * 7919 % 64);
        }
        file(&text)
    };
    let options = ["-m", "throughput", "-a", "median,ci", "--ci", "bootstrap"];
    let error = aggregate(&table(4097), &options).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(
        error.to_string().starts_with("--ci bootstrap resamples at most 4096 values a group, the number that is kept"),
        "{error}"
    );
    assert!(error.to_string().contains("group a has 4097 of throughput_bits_per_s"), "{error}");
    let within = aggregate(&table(40), &options).unwrap();
    assert!(ends(&within)[0].1 > 100.0, "{within}");
}

#[test]
fn an_interval_stays_within_the_range_of_its_metric() {
    let text = "case,latency_p99_us,loss_ratio,rate_error_ratio,queue_us\n\
        a,50,0.9,-0.5,50\na,60,0.9,0.5,60\na,400,1,0,400\n";
    let out =
        aggregate(&file(text), &["-m", "latency_p99_us,loss_ratio,rate_error_ratio,queue_us", "-a", "ci"]).unwrap();
    let cells: Vec<f64> =
        out.lines().nth(1).unwrap().split(',').skip(1).map(|cell| cell.parse().unwrap_or(f64::NAN)).collect();
    assert_eq!(cells[0], 0.0, "{out}");
    // The margin is that of the whole interval: 493 of 170.
    assert!((cells[2] - 2.9).abs() < 0.1, "{out}");
    assert_eq!(cells[4], 1.0, "{out}");
    assert_eq!(cells[6], -1.0, "{out}");
    assert!(cells[9] < -300.0, "nothing is known of a column without a metric: {out}");
}

#[test]
fn columns_are_not_written_twice_and_percentiles_are_below_100() {
    let message = |options: &[&str]| aggregate(&file(SMALL), options).unwrap_err().to_string();
    assert_eq!(message(&["-m", "throughput,throughput_bits_per_s"]), "-m names `throughput_bits_per_s` twice");
    assert_eq!(message(&["-g", "case,case", "-m", "throughput"]), "-g names `case` twice");
    assert_eq!(message(&["-m", "throughput", "-a", "p99,mean,p99.0"]), "-a names `p99` twice");
    for wrong in ["p101", "p100", "p500", "p-5"] {
        assert!(message(&["-m", "throughput", "-a", wrong]).contains(wrong), "{wrong}");
    }
    assert!(message(&["-m", "thruput"]).contains("did you mean `throughput`?"));
}

#[test]
fn any_name_groups_and_is_condensed() {
    let text = "case,status,message_bytes,axis_socket_mss,throughput_bits_per_s\na,ok,64,500,1\nb,ok,64,900,2\n";
    let out =
        aggregate(&file(text), &["-g", "message_size,socket.mss", "-m", "throughput.mean", "-a", "mean"]).unwrap();
    assert_eq!(out, "message_bytes,axis_socket_mss,throughput_bits_per_s_mean\n64,500,1\n64,900,2\n");
}

#[test]
fn a_swept_key_groups_by_what_was_swept() {
    // A probe has one stream of its own, whatever the load beside it has.
    let text = "case,streams,axis_streams,latency_p50_us\na,1,4,10\nb,1,16,20\n";
    let out = aggregate(&file(text), &["-g", "streams", "-m", "latency_p50_us", "-a", "mean"]).unwrap();
    assert_eq!(out, "axis_streams,latency_p50_us_mean\n4,10\n16,20\n");
}

#[test]
fn a_total_is_not_averaged_with_its_parts() {
    let refused = |text: &str, group: &str| aggregate(&file(text), &["-g", group, "-m", "throughput"]);
    let both = "case,direction,throughput_bits_per_s\na,forward,1\na,reverse,2\na,both,3\n";
    let error = refused(both, "case").unwrap_err().to_string();
    assert!(error.contains("add direction to -g") && error.contains("--where direction=both"), "{error}");
    assert!(refused(both, "case,direction").is_ok());
    let members = "case,member,throughput_bits_per_s\na,up,1\na,down,2\na,,3\n";
    let error = refused(members, "case").unwrap_err().to_string();
    assert!(error.contains("add member to -g") && error.contains("--where 'member='"), "{error}");
    // Without the total there is nothing twice, and a case without members is no total of another's.
    assert!(refused("case,direction,throughput_bits_per_s\na,forward,1\na,reverse,2\n", "case").is_ok());
    let cases = "case,test,member,throughput_bits_per_s\na,t,up,1\nb,t,,3\n";
    assert!(refused(cases, "test").is_ok());
    assert!(aggregate(&file(both), &["-g", "case", "-m", "throughput", "--ignore", "direction"]).is_ok());
}

#[test]
fn figures_that_were_asked_for_are_no_results() {
    let text = "case,record,phase,status,workload,offered_unit,search,throughput_bits_per_s,transactions_per_s,latency_p50_us\n\
         up,iteration,measure,ok,tcp_stream,,,1000,,\nrr,iteration,measure,ok,tcp_rr,,,8,20,5\n\
         paced,iteration,measure,ok,tcp_rr,transactions,,9,100,7\nfound,iteration,measure,ok,tcp_rr,transactions,held,9,300,7\n";
    let out = aggregate(&file(text), &["-g", "case", "-a", "count,mean"]).unwrap();
    let rows: Vec<&str> = out.lines().skip(1).collect();
    assert_eq!(rows, ["up,1,1000,0,,0,", "rr,0,,1,20,1,5", "paced,0,,0,,1,7", "found,0,,1,300,1,7"]);
    let asked = aggregate(&file(text), &["-g", "case", "-a", "mean", "-m", "throughput"]).unwrap();
    assert!(asked.contains("rr,8"), "{asked}");
}
