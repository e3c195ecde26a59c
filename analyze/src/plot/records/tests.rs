use super::*;
use crate::{
    plot::quantity::Quantity,
    table::{Selection, Table},
};

const TABLE: &str = "run_id,plan,test,record,phase,iteration,status,from,to,time,streams,message_bytes,throughput_bits_per_s\n\
    r1,p,bulk,iteration,measure,1,ok,a,b,2026-11-20T10:00:00Z,1,64,5\n\
    r1,p,bulk,iteration,measure,1,ok,a,b,2026-11-21T10:00:00Z,4,64,7\n\
    r1,p,bulk,iteration,measure,2,failed,a,b,2026-11-21T10:00:00Z,4,64,\n\
    r1,p,bulk,iteration,measure,3,ok,a,b,2026-11-21T10:00:00Z,4,64,\n\
    r1,p,bulk,iteration,measure,2,ok,a,b,2026-11-21T10:00:00Z,4,128,9\n";

fn read(text: &str, by: &[&str], columns: &Columns<'_>) -> Result<Records, Error> {
    let options = Options { by: by.iter().map(|b| (*b).to_owned()).collect(), ..Options::default() };
    let mut table = Table::from_text("x/t.csv", text).unwrap();
    Records::of_table(&mut table, &options, &Selection::default(), columns)
}

fn sweep<'a>() -> Columns<'a> {
    Columns {
        metric: Wanted::Column("throughput"),
        axes: &[Wanted::Column("message_bytes")],
        numeric_axes: true,
        lines: true,
        ..Columns::default()
    }
}

fn series(records: &Records) -> Vec<String> {
    records.list.iter().map(|record| records.series(record)).collect()
}

#[test]
fn series_are_told_apart_by_what_differs_and_nothing_else() {
    let r = read(TABLE, &[], &sweep()).unwrap();
    assert_eq!(r.by, ["streams"]);
    assert_eq!(series(&r), ["1 stream", "4 streams", "4 streams"]);
    assert_eq!(r.number(&r.list[2], "throughput"), Some(9.0));
    assert_eq!((r.metric.as_str(), &r.axes[..]), ("throughput_bits_per_s", &["message_bytes".to_owned()][..]));
}

#[test]
fn a_name_says_only_what_tells_apart() {
    let text = "test,direction,throughput_bits_per_s\nstream,forward,1\nduplex,forward,2\nduplex,reverse,3\n";
    let r = read(text, &[], &Columns { axes: &[], ..sweep() }).unwrap();
    assert_eq!(series(&r), ["stream", "duplex · upload", "duplex · download"]);
}

#[test]
fn a_row_in_which_nothing_was_timed_is_of_no_other_kind() {
    let text = "test,message_bytes,latency_kind,throughput_bits_per_s\na,1,round trip,5\na,2,,0\na,4,round trip,9\n";
    assert_eq!(read(text, &["test"], &sweep()).unwrap().list.len(), 3);
}

#[test]
fn what_by_leaves_out_is_refused() {
    let error = read(TABLE, &["test"], &sweep()).unwrap_err().to_string();
    assert!(error.contains("differ in `streams` would be joined") && error.contains("--by test,streams"), "{error}");
    assert!(error.contains("--where streams="), "{error}");
    assert!(read(TABLE, &["thing"], &sweep()).unwrap_err().to_string().contains("there is no column `thing`"));
}

#[test]
fn a_column_has_all_its_names() {
    let text = "test,message_bytes,axis_socket_mss,throughput_bits_per_s\nt,64,500,1\nt,64,900,2\n";
    let columns =
        Columns { metric: Wanted::Column("throughput.mean"), axes: &[Wanted::Column("message_size")], ..sweep() };
    let r = read(text, &["socket.mss"], &columns).unwrap();
    assert_eq!(r.by, ["axis_socket_mss"]);
    assert_eq!(r.axes, ["message_bytes"]);
    assert_eq!((r.text(&r.list[0], "message_size"), r.text(&r.list[0], "message_bytes")), ("64", "64"));
    assert_eq!(Quantity::of_column("rate").label, Quantity::of_column("offered_per_s").label);
    assert_eq!(series(&r), ["mss 500", "mss 900"]);
}

#[test]
fn rows_of_different_origin_are_apart_even_where_they_do_not_meet() {
    let text = "test,to,message_bytes,throughput_bits_per_s\nt,b,64,1\nt,b,128,2\nt,c,256,3\n";
    assert_eq!(series(&read(text, &[], &sweep()).unwrap()), ["to b", "to b", "to c"]);
    // Two runs in one table, each with its own sizes.
    let text = "run_id,message_bytes,throughput_bits_per_s\n0194c0-1-aaaaaa,64,1\n0194c0-2-bbbbbb,128,2\n";
    assert_eq!(series(&read(text, &[], &sweep()).unwrap()), ["run …aaaaaa", "run …bbbbbb"]);
}

#[test]
fn swept_keys_tell_apart_unless_they_go_along() {
    let header = "case,message_bytes,axis_socket_send_buffer,throughput_bits_per_s\n";
    let cases = "\"t[message_size=1,socket.send_buffer=4096]\",1,4096,1\n\"t[message_size=1,socket.send_buffer=65536]\",1,65536,2\n";
    let r = read(&format!("{header}{cases}"), &[], &sweep()).unwrap();
    assert_eq!(r.by, ["axis_socket_send_buffer"]);
    assert_eq!(series(&r), ["send buffer 4 KiB", "send buffer 64 KiB"]);
    // A reply that grows with its request stays on one curve; two blocks of sizes make two.
    let header = "case,message_bytes,axis_b,throughput_bits_per_s\n";
    let zipped = "\"t[a=1,b=5]\",1,5,1\n\"t[a=2,b=6]\",2,6,2\n\"t[a=3,b=7]\",3,7,2\n";
    assert_eq!(read(&format!("{header}{zipped}"), &[], &sweep()).unwrap().by, Vec::<String>::new());
    let blocks = "\"t[a=1,b=5]\",1,5,1\n\"t[a=2,b=5]\",2,5,2\n\"t[a=3,b=7]\",3,7,2\n";
    assert_eq!(read(&format!("{header}{blocks}"), &[], &sweep()).unwrap().by, ["axis_b"]);
    // So does a key with a column of its own.
    let blocks = "case,message_bytes,response_bytes,throughput_bits_per_s\n\
        \"t[request_size=1,response_size=5]\",1,5,1\n\"t[request_size=2,response_size=5]\",2,5,2\n\"t[request_size=3,response_size=7]\",3,7,2\n";
    assert_eq!(read(blocks, &[], &sweep()).unwrap().by, ["response_bytes"]);
}

#[test]
fn swept_quantities_are_read_with_their_unit() {
    let text = "case,axis_duration,throughput_bits_per_s\n\"t[duration=50ms]\",50ms,1\n\"t[duration=1s]\",1s,2\n";
    for x in [Wanted::Column("duration"), Wanted::Default] {
        let r = read(text, &[], &Columns { axes: &[x], ..sweep() }).unwrap();
        assert_eq!((r.axes[0].as_str(), r.by.len()), ("axis_duration", 0));
        assert_eq!(
            r.list.iter().map(|row| r.number(row, "axis_duration")).collect::<Vec<_>>(),
            [Some(0.05), Some(1.0)]
        );
        assert_eq!(r.quantity("axis_duration"), Quantity::new("duration", Some(Unit::Seconds)));
    }
    let words = text.replace("50ms", "soon");
    let error = read(&words, &[], &Columns { axes: &[Wanted::Column("duration")], ..sweep() }).unwrap_err();
    assert!(error.to_string().contains("`soon` is not a number"), "{error}");
}

#[test]
fn two_axes_are_the_two_swept_keys() {
    // Another test sweeps one key; a probe's requests and the kernel's answer vary, too.
    let mut text = String::from(
        "case,test,congestion_control,request_bytes,streams,throughput_bits_per_s,axis_socket_congestion_control\n",
    );
    text += "\"u[streams=1]\",u,cubic,1,1,5,\n\"u[streams=2]\",u,cubic,2,2,5,\n";
    for (cc, streams) in [("cubic", 1), ("cubic", 4), ("bbr", 1), ("bbr", 4)] {
        text += &format!("\"t[socket.congestion_control={cc},streams={streams}]\",t,{cc},{streams},{streams},7,{cc}\n");
    }
    let axes = &[Wanted::Default, Wanted::Default];
    let r = read(&text, &[], &Columns { axes, numeric_axes: false, lines: false, ..sweep() }).unwrap();
    assert_eq!(r.axes, ["streams", "axis_socket_congestion_control"]);
    assert!(r.by.is_empty(), "{:?}", r.by);
}

/// A probe beside swept streams has one stream of its own: the axis column has what was swept.
#[test]
fn probes_beside_a_swept_load_are_told_apart() {
    let mut text = String::from("case,test,member,workload,streams,congestion_control,latency_p50_us,axis_streams\n");
    for (streams, latency) in [(1, 10), (4, 40), (16, 160)] {
        text += &format!("\"l[streams={streams}]\",l,up-tcp,tcp_rr,1,cubic,{latency},{streams}\n");
    }
    let asked = |x| Columns { metric: Wanted::Column("latency.p50"), axes: x, ..sweep() };
    let r = read(&text, &["congestion_control"], &asked(&[Wanted::Column("streams")])).unwrap();
    assert_eq!((r.axes[0].as_str(), r.list.len()), ("axis_streams", 3));
    let r = read(&text, &[], &asked(&[Wanted::Default])).unwrap();
    assert_eq!((r.axes[0].as_str(), r.list.len(), r.by.len()), ("axis_streams", 3, 0));
}

#[test]
fn rows_without_the_metric_are_left_out_and_said() {
    let r = read(TABLE, &[], &sweep()).unwrap();
    assert_eq!((r.list.len(), &r.notes[..]), (3, &["left out: 1 row without throughput (bulk)".to_owned()][..]));
    assert!(r.uncounted.unwrap().contains("1 failed"));
}

#[test]
fn the_metric_is_the_headline_and_probes_do_not_lie_at_zero() {
    let text = "case,member,workload,start_s,throughput_bits_per_s,transactions_per_s\n\
        l,up,tcp_stream,0,9e9,\nl,down,tcp_stream,0,8e9,\nl,probe,tcp_rr,0,1e5,6000\n";
    let columns = Columns { metric: Wanted::Default, lines: true, ..Columns::default() };
    let r = read(text, &[], &columns).unwrap();
    assert_eq!((r.metric.as_str(), r.list.len()), ("throughput_bits_per_s", 2));
    assert!(r.notes[0].starts_with("left out: 1 row without throughput as their headline"), "{:?}", r.notes);
    assert!(r.notes[0].contains("l probe") && r.notes[0].contains("-y transaction_rate"), "{:?}", r.notes);
    let asked = Columns { metric: Wanted::Column("throughput"), ..columns };
    assert_eq!(read(text, &[], &asked).unwrap().list.len(), 2);
    // Asked for by itself it is drawn.
    let alone: String = text.split_inclusive('\n').filter(|l| !l.contains("stream")).collect();
    assert_eq!(read(&alone, &[], &asked).unwrap().list.len(), 1);
    assert_eq!(read(&alone, &[], &columns).unwrap().metric, "transactions_per_s");
}

#[test]
fn the_axis_is_the_parameter_that_varies() {
    let columns = Columns { metric: Wanted::Default, axes: &[Wanted::Default], ..sweep() };
    let of = |text: &str| read(text, &[], &columns).map(|r| r.axes[0].clone());
    assert_eq!(of(TABLE).unwrap(), "message_bytes");
    let text = "test,streams,axis_socket_mss,throughput_bits_per_s\na,1,500,5\na,1,1400,6\n";
    assert_eq!(of(text).unwrap(), "axis_socket_mss");
    let error = of("test,streams,throughput_bits_per_s\na,1,5\nb,2,6\n").unwrap_err().to_string();
    assert!(error.contains("nothing varies") && error.contains("-x") && error.contains("`bars`"), "{error}");
}

#[test]
fn datagram_rates_are_said_in_bits_as_they_were_swept() {
    let header = "case,offered_per_s,offered_unit,message_bytes,loss_ratio\n";
    let columns = Columns { metric: Wanted::Column("loss_ratio"), axes: &[Wanted::Column("offered_per_s")], ..sweep() };
    let r = read(&format!("{header}t[rate=100Mbit/s],8928.57142857143,messages,1400,0.1\n"), &[], &columns).unwrap();
    assert_eq!(r.number(&r.list[0], "offered_per_s"), Some(1e8));
    assert_eq!(r.quantity("offered_per_s").unit, Some(Unit::BitsPerSecond));
    assert_eq!(r.header("offered_per_s"), "offered_bits_per_s");
    let r = read(&format!("{header}t[rate=9000/s],9000,messages,1400,0.1\n"), &[], &columns).unwrap();
    assert_eq!(r.number(&r.list[0], "offered_per_s"), Some(9000.0));
    assert_eq!(r.quantity("offered_per_s").unit, Some(Unit::PerSecond));
}

#[test]
fn cases_are_called_by_what_differs() {
    let text = "case,throughput_bits_per_s\n\"t[message_size=64,streams=4]\",1\n\"t[message_size=1024,streams=4]\",2\n";
    let columns = Columns { metric: Wanted::Default, by_case: true, ..Columns::default() };
    let r = read(text, &[], &columns).unwrap();
    assert_eq!(series(&r), ["64 B", "1 KiB"]);
    assert_eq!(r.labels.title.as_deref(), Some("message size"));
    assert_eq!(r.notes, ["all with 4 streams"]);
    let r = read("case,throughput_bits_per_s\na[streams=4],1\nb[streams=8],2\nc,3\n", &[], &columns).unwrap();
    assert_eq!(series(&r), ["a", "b", "c"]);
    assert_eq!(r.notes, ["streams goes along with the test"]);
    let text = "case,throughput_bits_per_s\na[streams=4],1\na[streams=8],2\nb,3\n";
    assert_eq!(series(&read(text, &[], &columns).unwrap()), ["a · 4 streams", "a · 8 streams", "b"]);
}

#[test]
fn the_footer_says_where_numbers_come_from() {
    let r = read(TABLE, &[], &sweep()).unwrap();
    assert_eq!(r.footer(), ["run r1", "a → b", "2026-11-20 … 2026-11-21", "2 iterations"]);
    assert_eq!(r.subject().as_deref(), Some("p, bulk"));
}

#[test]
fn files_are_series_too() {
    let r = read(TABLE, &["file", "streams"], &sweep()).unwrap();
    assert_eq!(series(&r)[0], "1 stream");
}
