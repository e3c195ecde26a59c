//! Each form of output, to the last blank.

use super::*;

/// The line that every output with titles begins with.
fn banner_of(title: &str, more: &str) -> String {
    format!("{title} from 0.0.0.0 (0.0.0.0) port 0 AF_INET to h (127.0.0.1) port 0 AF_INET : demo{more}\n")
}

const STREAM_TITLES: &str = "Recv   Send    Send                          \n\
    Socket Socket  Message  Elapsed              \n\
    Size   Size    Size     Time     Throughput  \n\
    bytes  bytes   bytes    secs.    10^6bits/sec  \n\n";

#[test]
fn streams() {
    let figures = tcp_stream();
    let banner = banner_of("MIGRATED TCP STREAM TEST", "");
    let row = "131072  16384  16384    1.00     8004.68   \n";
    assert_eq!(printed("-H h", &figures), format!("{banner}{STREAM_TITLES}{row}"));
    assert_eq!(printed("-H h -v 0", &figures), format!("{banner}8004.68 \n"));
    assert_eq!(printed("-H h -P 0", &figures), row);
    assert_eq!(printed("-H h -P 0 -B tag", &figures), "131072  16384  16384    1.00     8004.68   tag\n");
    assert_eq!(printed("-H h -B tag", &figures), format!("{banner}{STREAM_TITLES}{row}"), "titles leave out the tag");
    assert_eq!(printed("-H h -P 0 -v 0 -B tag", &figures), "8004.68 tag\n");
    let blocks = "\nAlignment      Offset         Bytes    Bytes       Sends   Bytes    Recvs\n\
                  Local  Remote  Local  Remote  Xfered   Per                 Per\n\
                  Send   Recv    Send   Recv             Send (avg)          Recv (avg)\n    \
                      8       8      0       0 1001439232  16384.00     61123   98046.41  10214\n\n\
                  Maximum\nSegment\nSize (bytes)\n 65483\n";
    assert_eq!(printed("-H h -v 2", &figures), format!("{banner}{STREAM_TITLES}{row}{blocks}"));
    assert_eq!(printed("-H h -v 3", &figures), format!("{banner}{blocks}"), "no row above two");
}

#[test]
fn streams_with_cpu() {
    let figures = busy(tcp_stream());
    let titles = "Recv   Send    Send                          Utilization       Service Demand\n\
                  Socket Socket  Message  Elapsed              Send     Recv     Send    Recv\n\
                  Size   Size    Size     Time     Throughput  local    remote   local   remote\n\
                  bytes  bytes   bytes    secs.    10^6bits/s  % S      % S      us/KB   us/KB\n\n";
    let row = "131072  16384  16384    1.00       8004.68   100.00   100.00   2.047   2.047  \n";
    let banner = banner_of("MIGRATED TCP STREAM TEST", "");
    assert_eq!(printed("-H h -c -C", &figures), format!("{banner}{titles}{row}"));
    assert_eq!(printed("-H h -c -C -v 0 -P 0", &figures), " 2.047 S \n");
    let one_end = Figures { remote: tcp_stream().remote, ..figures };
    let printed = printed("-H h -c", &one_end);
    assert!(printed.contains("% S      % U "), "{printed}");
    assert!(printed.ends_with("100.00   -1.00    2.047   -1.000 \n"), "{printed}");
}

#[test]
fn maerts() {
    let banner = banner_of("MIGRATED TCP MAERTS TEST", "");
    let blocks = "\nAlignment      Offset         Bytes    Bytes       Recvs   Bytes    Sends\n\
                  Local  Remote  Local  Remote  Xfered   Per                 Per\n\
                  Recv   Send    Recv   Send             Recv (avg)          Send (avg)\n    \
                      8       8      0       0 1798924517  130964.22     13736   16384.00 110091\n\n\
                  Maximum\nSegment\nSize (bytes)\n 32768\n";
    let row = "131072  16384  16384    1.00     14389.21   \n";
    let expected = format!("{banner}{STREAM_TITLES}{row}{blocks}");
    assert_eq!(printed("-H h -t TCP_MAERTS -v 2", &tcp_maerts()), expected);
    let with_cpu = printed("-H h -t TCP_MAERTS -c -C", &busy(tcp_maerts()));
    assert!(with_cpu.contains("Elapsed              Recv     Send     Recv    Send\n"), "{with_cpu}");
}

#[test]
fn exchanges() {
    let banner = banner_of("MIGRATED TCP REQUEST/RESPONSE TEST", " : first burst 0");
    let titles = "Local /Remote\n\
                  Socket Size   Request  Resp.   Elapsed  Trans.\n\
                  Send   Recv   Size     Size    Time     Rate         \n\
                  bytes  Bytes  bytes    bytes   secs.    per sec   \n\n";
    let rows = "16384  131072 1        1       1.00     48160.53   \n16384  131072\n";
    let blocks = "Alignment      Offset         RoundTrip  Trans    Throughput\n\
                  Local  Remote  Local  Remote  Latency    Rate     10^6bits/s\n\
                  Send   Recv    Send   Recv    usec/Tran  per sec  Outbound   Inbound\n    \
                      8      8       0      0   20.764   48160.526 0.385     0.385 \n";
    let figures = tcp_rr();
    assert_eq!(printed("-H h -t TCP_RR -v 2", &figures), format!("{banner}{titles}{rows}{blocks}"));
    assert_eq!(printed("-t TCP_RR -v 0 -P 0", &figures), "48160.53 \n");
    let tagged = "16384  131072 1        1       1.00     48160.53   tag\n16384  131072\n";
    assert_eq!(printed("-t TCP_RR -P 0 -B tag", &figures), tagged);
    let in_bits = printed("-H h -t TCP_RR -f m", &figures);
    let end = "Socket Size   Request  Resp.   Elapsed  \n\
               Send   Recv   Size     Size    Time     Throughput \n\
               bytes  Bytes  bytes    bytes   secs.    10^6bits/sec   \n\n\
               16384  131072 1        1       1.00        0.77   \n16384  131072\n";
    assert!(in_bits.ends_with(end), "{in_bits}");
    let with_cpu = printed("-H h -t TCP_RR -c -C", &busy(tcp_rr()));
    let end = "Socket Size   Request Resp.  Elapsed Trans.   CPU    CPU    S.dem   S.dem\n\
               Send   Recv   Size    Size   Time    Rate     local  remote local   remote\n\
               bytes  bytes  bytes   bytes  secs.   per sec  % S    % S    us/Tr   us/Tr\n\n\
               16384  131072 1       1      1.00    48160.53  100.00 100.00 41.528  41.528 \n16384  131072\n";
    assert!(with_cpu.ends_with(end), "{with_cpu}");
    let end = "Elapsed Tput     CPU    CPU    S.dem   S.dem\n\
               Send   Recv   Size    Size   Time    10^6bits local  remote local   remote\n\
               bytes  bytes  bytes   bytes  secs.   per sec  % S    % S    us/KB   us/KB\n\n";
    let with_cpu = printed("-H h -t TCP_RR -c -C -f m", &busy(tcp_rr()));
    assert!(with_cpu.contains(end), "{with_cpu}");
    let over_udp = printed("-t UDP_RR -P 0 -c -C", &busy(tcp_rr()));
    assert!(over_udp.contains(" 48160.53   100.00 100.00 41.528"), "{over_udp}");
    assert!(!printed("-t UDP_RR -P 0 -v 2", &figures).contains("Alignment"));
}

#[test]
fn connections() {
    let figures = tcp_rr();
    let banner = banner_of("TCP Connect/Close TEST", "");
    let output = printed("-H h -t TCP_CC -v 2", &figures);
    assert!(output.starts_with(&banner), "{output}");
    let end = "16384  131072 1        1       1.00     48160.53   \n16384  131072\n\n\
               Alignment      Offset\nLocal  Remote  Local  Remote\nSend   Recv    Send   Recv\n    8      8       0      0\n";
    assert!(output.ends_with(end), "{output}");
    assert_eq!(printed("-t TCP_CC -v 0 -P 0", &figures), "48160.53\n");
    let rows = "16384  131072 1        1       1.00     48160.53   \n16384  131072\n";
    assert_eq!(printed("-t TCP_CRR -P 0 -B tag", &figures), rows, "no tag");
    let with_cpu = printed("-H h -t TCP_CRR -c -C", &busy(tcp_rr()));
    let end = "bytes  bytes  bytes   bytes  secs.   per sec  %      %      us/Tr   us/Tr\n\n\
               16384  131072 1       1      1.00    48160.53   100.00 100.00 41.528  41.528\n16384  131072\n";
    assert!(with_cpu.ends_with(end), "{with_cpu}");
    assert_eq!(printed("-t TCP_CRR -P 0 -v 0 -c", &busy(tcp_rr())), "41.528\n");
}

#[test]
fn datagrams() {
    let figures = udp_stream();
    let banner = banner_of("MIGRATED UDP STREAM TEST", "");
    let titles = "Socket  Message  Elapsed      Messages                \n\
                  Size    Size     Time         Okay Errors   Throughput\n\
                  bytes   bytes    secs            #      #   10^6bits/sec\n\n";
    let rows = "212992   65507   1.00        86640      0    45399.40\n212992           1.00        42268           22148.45\n\n";
    assert_eq!(printed("-H h -t UDP_STREAM", &figures), format!("{banner}{titles}{rows}"));
    assert_eq!(printed("-P 0 -t UDP_STREAM -B tag -v 2", &figures), rows);
    assert_eq!(printed("-P 0 -t UDP_STREAM -v 0", &figures), "45399.40\n");
    let with_cpu = printed("-H h -t UDP_STREAM -c -C", &busy(figures.clone()));
    let end = "Socket  Message  Elapsed      Messages                   CPU      Service\n\
               Size    Size     Time         Okay Errors   Throughput   Util     Demand\n\
               bytes   bytes    secs            #      #   10^6bits/sec % SS     us/KB\n\n\
               212992   65507   1.00        86640      0    45399.4     100.00   0.361 \n\
               212992           1.00        42268           22148.5     100.00   0.361 \n\n";
    assert!(with_cpu.ends_with(end), "{with_cpu}");
    assert_eq!(printed("-P 0 -t UDP_STREAM -v 0 -c", &busy(figures)), "  0.36 S\n");
}

#[test]
fn selections_in_three_forms() {
    let figures = tcp_stream();
    let values = "LSS_SIZE_END=4194304\nRSR_SIZE_END=1026899\nLOCAL_SEND_SIZE=16384\nELAPSED_TIME=1.00\n\
                  THROUGHPUT=8004.68\nTHROUGHPUT_UNITS=10^6bits/s\n";
    assert_eq!(printed("-P 0 -- -k", &figures), values);
    let banner = banner_of("MIGRATED TCP STREAM TEST", "");
    let csv = "Local Send Socket Size Final,Remote Recv Socket Size Final,Local Send Size,Elapsed Time (sec),Throughput,\
               Throughput Units\n4194304,1026899,16384,1.00,8004.68,10^6bits/s\n";
    assert_eq!(printed("-H h -- -o", &figures), format!("{banner}{csv}"));
    let columns = "Local       Remote      Local  Elapsed Throughput Throughput  \n\
                   Send Socket Recv Socket Send   Time               Units       \n\
                   Size        Size        Size   (sec)                          \n\
                   Final       Final                                             \n\
                   4194304     1026899     16384  1.00    8004.68    10^6bits/s  \n";
    assert_eq!(printed("-H h -- -O", &figures), format!("{banner}{columns}"));
    let omni = printed("-H h -t omni", &figures);
    assert_eq!(omni, format!("{}{columns}", banner_of("OMNI Send TEST", "")));
    assert_eq!(printed("-P 0 -- -o THROUGHPUT,result_brand,Protocol,NOSUCH", &figures), "8004.68,,TCP\n");
    assert_eq!(printed("-P 0 -B b -- -k result_brand", &figures), "RESULT_BRAND=\"b\"\n");
    let blocks = "Throughput Throughput  \n           Units       \n                       \n                       \n\
                  8004.68    10^6bits/s  \n\nElapsed \nTime    \n(sec)   \n        \n1.00    \n";
    assert_eq!(printed("-H h -- -O throughput,throughput_units;elapsed_time", &figures), format!("{banner}{blocks}"));
    assert_eq!(printed("-P 0 -- -O throughput;protocol", &figures), "8004.68    \n\nTCP      \n");
    let brand = printed("-H h -- -O throughput,result_brand,protocol", &figures);
    assert!(brand.ends_with("\n8004.68           TCP      \n"), "{brand}");
}

#[test]
fn all_selectors_of_an_exchange() {
    let output = printed("-H 127.0.0.1 -l 1 -P 0 -t TCP_RR -- -k all", &tcp_rr());
    // What netperf 2.7.0 printed, with our figures, our fill of buffers and a measured latency.
    let expected = [
        "SOCKET_TYPE=Stream",
        "PROTOCOL=TCP",
        "DIRECTION=Send|Recv",
        "THROUGHPUT=48160.53",
        "THROUGHPUT_UNITS=Trans/s",
        "LSS_SIZE_REQ=-1",
        "LSS_SIZE=16384",
        "LSS_SIZE_END=4194304",
        "LOCAL_SEND_SIZE=0",
        "LOCAL_RECV_SIZE=0",
        "REMOTE_SEND_SIZE=1",
        "REMOTE_RECV_SIZE=1",
        "REQUEST_SIZE=1",
        "RESPONSE_SIZE=1",
        "LOCAL_CPU_UTIL=-1.00",
        "LOCAL_CPU_PERCENT_USER=0.00",
        "LOCAL_CPU_METHOD=U",
        "LOCAL_SD=-1.000",
        "SD_UNITS=usec/Tran",
        "CONFIDENCE_LEVEL=0",
        "CONFIDENCE_INTERVAL=-1.000000",
        "CONFIDENCE_ITERATION=1",
        "THROUGHPUT_CONFID=-1.000",
        "TRANSACTION_RATE=48160.526",
        "RT_LATENCY=20.764",
        "BURST_SIZE=0",
        "LOCAL_TRANSPORT_RETRANS=0",
        "TRANSPORT_MSS=32768",
        "LOCAL_SEND_THROUGHPUT=0.39",
        "LOCAL_CPU_BIND=-1",
        "LOCAL_CPU_COUNT=0",
        "LOCAL_CPU_PEAK_UTIL=-1.00",
        "LOCAL_CPU_PEAK_ID=-1",
        "LOCAL_CPU_MODEL=Deprecated",
        "LOCAL_CPU_FREQUENCY=0",
        "SOURCE_PORT=0",
        "SOURCE_ADDR=0.0.0.0",
        "SOURCE_FAMILY=0",
        "DEST_PORT=0",
        "DEST_ADDR=127.0.0.1",
        "DEST_FAMILY=2",
        "LOCAL_SEND_CALLS=48165",
        "LOCAL_BYTES_PER_RECV=1.00",
        "LOCAL_BYTES_XFERD=96330",
        "LOCAL_SEND_DIRTY_COUNT=-1",
        "LOCAL_NODELAY=0",
        "LOCAL_INTERFACE_VENDOR=0xfffffffe",
        "LOCAL_SECURITY_TYPE_ID=0",
        "UUID=3e1a578a-e6eb-11f1-9263-633e03bd5b84",
        "MIN_LATENCY=12",
        "MAX_LATENCY=5431",
        "P99_LATENCY=34",
        "MEAN_LATENCY=18.24",
        "STDDEV_LATENCY=108.26",
        "LOCAL_SOCKET_PRIO=-1",
        "LOCAL_SOCKET_TOS=0xffffffff",
        "LOCAL_CONG_CONTROL=cubic",
        "LOCAL_FILL_FILE=",
        "COMMAND_LINE=\"netperf -H 127.0.0.1 -l 1 -P 0 -t TCP_RR -- -k all\"",
    ];
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 172, "every selector but the tag, which is absent");
    for line in expected {
        assert!(lines.contains(&line), "{line} is not in\n{output}");
    }
    assert!(!printed("-P 0 -t TCP_RR -- -k rt_latency", &tcp_rr()).contains("MIN_LATENCY"));
}
