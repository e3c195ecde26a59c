//! Usage texts and fixed messages.

/// For `-h` and for a mistake in the options before `--`.
pub const USAGE: &str = "
Usage: netperf [global options] -- [test options]

This is Plumbline with netperf's command line. Global options:
    -H host[,family]       host of the far end, where netserver or
                           `plumb serve --also netperf` listens
    -p port[,local]        port of the far end (12865), and of this end
    -L address[,family]    local address
    -4, -6                 IPv4 or IPv6
    -t test                TCP_STREAM, TCP_MAERTS, TCP_RR, TCP_CRR, TCP_CC,
                           TCP_SENDFILE, UDP_STREAM, UDP_RR, SCTP_STREAM,
                           SCTP_RR, OMNI, LOC_CPU, REM_CPU or UUID
    -l length              seconds; negative: bytes or transactions; 0: until
                           it is stopped (SIGINT, SIGALRM)
    -i most,least          iterations until the result is confident
    -I level[,width]       level (95 or 99) and full width in per cent
    -r                     only the result must be confident
    -s seconds             pause between the set-up and the load
    -c, -C                 report the CPU of this end, of the far end
    -D seconds             interim results
    -f unit                G M K B (bytes), g m k b (bits), x (transactions)
    -j                     collect latency
    -P 0|1                 without or with titles
    -v level               0: the result alone; 2: more
    -B text                tag of the result
    -F file                data to send
    -S                     keep-alive on the data connection
    -T local,remote        CPUs to run on
    -y local,remote        socket priority
    -Y local,remote        type of service: 0xb8, ef, af41
    -a, -o, -W             alignment, offset and number of this end's buffers
    -V                     print the version
    -h                     print this text

A pair `a,b` sets both ends, `a,` the first and `,b` the second. One value sets
both, or, for -H, -L, -p and -F, the first.
";

/// For `-h` after `--`.
pub const TEST_USAGE: &str = "
Usage: netperf [global options] -- [test options]

Test options:
    -m local,remote        bytes per send call
    -M remote,local        bytes per receive call
    -r request,response    bytes of a request and its response
    -s send,receive        socket buffers of this end
    -S send,receive        socket buffers of the far end
    -b requests            requests under way beyond the first
    -k [selection]         print NAME=value for each selector
    -o [selection]         print CSV
    -O [selection]         print columns
                           A selection is names joined by commas, `;` between
                           blocks, `all`, a file of names, or ? for the list
    -D                     no delay (TCP_NODELAY) at both ends
    -C                     cork (TCP_CORK) at this end
    -K local,remote        congestion control
    -e seconds             a datagram without an answer counts as lost
    -R 0|1                 whether packets may leave the local network
    -H address, -L address addresses of the data, at the far end and here
    -P local,remote        ports of the data
    -p first,last          local ports of connection tests
    -d direction           for OMNI: send, recv, rr, or bits
    -T protocol            for OMNI: tcp, udp, udplite, sctp or dccp
    -t type                for OMNI: stream or dgram
    -c                     for OMNI: a connection for each transaction
    -G bytes               maximum segment size
    -l hops                time to live
    -q bytes               pace to this many bytes per second
    -f, -F, -a             discover the path's MTU, Fast Open, deferred accept
    -n                     connect the UDP socket
    -u uuid                identifier of the test
    -4, -6                 IPv4 or IPv6
    -h                     print this text
";

/// For `-V`.
pub const VERSION: &str = concat!("Netperf version 2.7.0 (Plumbline ", env!("CARGO_PKG_VERSION"), ")\n");

/// For a name of `-t` that is no test.
pub fn unknown_test(name: &str) -> String {
    format!(
        "The test you requested ({name}) is unknown to this netperf.\n\
         It has TCP_STREAM, TCP_MAERTS, TCP_RR, TCP_CRR, TCP_CC, TCP_SENDFILE, UDP_STREAM,\n\
         UDP_RR, SCTP_STREAM, SCTP_RR, OMNI, LOC_CPU, REM_CPU and UUID.\n"
    )
}

/// For iterations that did not become confident, with the full widths that were reached.
pub fn unconfident(widths: super::confidence::Widths) -> String {
    let [throughput, local, remote] =
        [widths.throughput, widths.local_cpu, widths.remote_cpu].map(|width| 100.0 * width);
    format!(
        "!!! WARNING\n\
         !!! Desired confidence was not achieved within the specified iterations.\n\
         !!! The results of the iterations vary more than was asked for: look for\n\
         !!! the cause in the hosts and in the network before you use this result.\n\
         !!! Confidence intervals: Throughput      : {throughput:.3}%\n\
         !!!                       Local CPU util  : {local:.3}%\n\
         !!!                       Remote CPU util : {remote:.3}%\n\n"
    )
}
