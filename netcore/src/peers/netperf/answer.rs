//! Answers to a client's request: the response, which says where the data go, and the results.

use nix::unistd::{SysconfVar, sysconf};

use super::{
    asked::{Asked, Form},
    messages::{self, CPU_BY_PROC_STAT, Test, flag},
    wire::{Message, Text, kind},
};
use crate::{
    report::{Counts, CpuUse, SideReport},
    spec::{Pattern, Transport},
};

/// The sockets of a test as the response tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    pub data_port: u16,
    /// `SO_RCVBUF` and `SO_SNDBUF` as the kernel reports them.
    pub receive_buffer: i32,
    pub send_buffer: i32,
}

/// Clock ticks of a second: netperf's measure of a CPU whose load `/proc/stat` tells.
const CPU_RATE: f32 = 100.0;

/// The answer to a request that is refused.
pub fn refusal(kind: u32, errno: u32) -> Message {
    Message::new(kind + 1, errno)
}

/// The answer to `CPU_CALIBRATE`.
pub fn calibration(cpus: u32) -> Message {
    let mut message = Message::new(kind::CPU_CALIBRATE, 0);
    message.put(0, &CPU_RATE);
    message.put(1, &cpus);
    message
}

/// The answer to `DO_SYSINFO`: netperf no longer tells any of it.
pub fn sysinfo() -> Message {
    let mut message = Message::new(kind::SYSINFO + 1, 0);
    message.put(0, &Text(*b",Deprecated,Deprecated,Deprecated,Deprecated"));
    message
}

impl Form {
    /// Type of the request.
    fn kind(self) -> u32 {
        match self {
            Self::Omni => kind::OMNI,
            Self::Classic(test) => test.kind(),
        }
    }
}

fn size(bytes: u64) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// The response to a request.
pub fn response(asked: &Asked, opened: &Opened) -> Message {
    let spec = &asked.spec;
    let cpu_rate = if spec.collect.cpu { CPU_RATE } else { 0.0 };
    let no_delay = i32::from(spec.far.socket.no_delay == Some(true));
    let measure_cpu = i32::from(spec.collect.cpu);
    let Opened { data_port, receive_buffer, send_buffer } = *opened;
    let data_port = data_port.into();
    let mut message = Message::new(asked.form.kind() + 1, 0);
    match asked.form {
        Form::Omni => messages::OmniResponse {
            receive_buffer,
            receive_size: size(spec.sizes.receive_bytes),
            receive_width: 1,
            send_buffer,
            send_size: size(spec.sizes.message_bytes),
            send_width: 1,
            flags: if no_delay == 1 { flag::NO_DELAY } else { 0 }
                | if measure_cpu == 1 { flag::MEASURE_CPU } else { 0 },
            cpu_rate,
            data_port,
            priority: asked.priority,
            tos: asked.tos,
            ..messages::OmniResponse::default()
        }
        .write(&mut message),
        Form::Classic(test @ (Test::TcpStream | Test::TcpMaerts)) => {
            let sizes = &spec.sizes;
            let bytes = if test == Test::TcpStream { sizes.receive_bytes } else { sizes.message_bytes };
            let response = messages::StreamResponse {
                receive_buffer,
                size: size(bytes),
                no_delay,
                measure_cpu,
                send_buffer,
                data_port,
                cpu_rate,
                ..messages::StreamResponse::default()
            };
            response.write(&mut message);
        }
        Form::Classic(Test::UdpStream) => messages::DatagramResponse {
            receive_buffer,
            send_buffer,
            measure_cpu,
            data_port,
            cpu_rate,
            ..messages::DatagramResponse::default()
        }
        .write(&mut message),
        Form::Classic(Test::TcpRr | Test::TcpCrr | Test::TcpCc | Test::UdpRr) => messages::ExchangeResponse {
            receive_buffer,
            no_delay,
            measure_cpu,
            send_buffer,
            data_port,
            cpu_rate,
            ..messages::ExchangeResponse::default()
        }
        .write(&mut message),
    }
    message
}

/// Sum of a count over the flows, from the first byte to the last.
fn total(report: &SideReport, count: fn(&Counts) -> u64) -> u64 {
    report.totals.iter().map(|flow| count(&flow.counts)).sum()
}

/// CPU figures of the results.
struct Cpu<'r> {
    used: Option<&'r CpuUse>,
}

impl Cpu<'_> {
    /// Percent of a share; 0 where nothing was measured.
    #[expect(clippy::cast_possible_truncation, reason = "the wire has 32 bits for it")]
    fn percent(&self, share: fn(&CpuUse) -> f64) -> f32 {
        self.used.map_or(0.0, |used| (100.0 * share(used)) as f32)
    }

    /// All states but idle and iowait.
    fn busy(&self) -> f32 {
        self.percent(|used| used.busy)
    }

    /// The CPUs that the shares are of.
    fn count(&self) -> u32 {
        self.used.map_or_else(cpus, |used| used.cpus)
    }

    fn method(&self) -> u32 {
        self.used.map_or(0, |_| CPU_BY_PROC_STAT)
    }
}

/// Number of this host's online CPUs.
pub fn cpus() -> u32 {
    // Whatever affinity or quota this process has: shares of the CPU are those of all of them.
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(1)
}

/// The results of a test. `opened` stands for buffers that the report does not have.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "the wire has these widths")]
pub fn results(asked: &Asked, opened: &Opened, report: &SideReport) -> Message {
    let bytes_received = total(report, |counts| counts.bytes_received);
    let bytes_sent = total(report, |counts| counts.bytes_sent);
    // Of datagrams one call may receive several, and a netserver counts each.
    let datagrams = asked.spec.transport.is_datagram() && asked.spec.pattern == Pattern::Stream;
    let receives =
        total(report, if datagrams { |counts| counts.messages_received } else { |counts| counts.receives }) as u32;
    let sends = total(report, |counts| counts.sends) as u32;
    let transactions = total(report, |counts| counts.transactions) as u32;
    let nanoseconds: u64 = report.phases.iter().map(|phase| phase.elapsed_ns).sum();
    let elapsed_s = (nanoseconds as f64 / 1e9) as f32;
    let cpu = Cpu { used: report.phases.last().and_then(|phase| phase.cpu.as_ref()) };
    let buffer = |name, initial| report.last_value(name).and_then(|bytes| bytes.parse().ok()).unwrap_or(initial);
    let receive_buffer = buffer("receive_buffer", opened.receive_buffer);
    let send_buffer = buffer("send_buffer", opened.send_buffer);
    let (cpu_percent, cpu_method, cpus) = (cpu.busy(), cpu.method(), cpu.count());
    let mut message = Message::new(asked.form.kind() + 2, 0);
    match asked.form {
        Form::Omni => {
            let congestion_control = report.last_value("congestion_control").and_then(Text::new);
            let retransmits = report.totals.iter().filter_map(|flow| flow.tcp_info).map(|info| info.retransmits).sum();
            messages::OmniResults {
                bytes_received,
                receives,
                receive_buffer,
                bytes_sent,
                sends,
                send_buffer,
                transactions,
                elapsed_s,
                cpu_percent,
                user_percent: cpu.percent(|used| used.user),
                system_percent: cpu.percent(|used| used.system),
                iowait_percent: cpu.percent(|used| used.iowait),
                irq_percent: cpu.percent(|used| used.irq),
                softirq_percent: cpu.percent(|used| used.softirq),
                cpu_method,
                cpus,
                peak_cpu: cpu.used.map_or(-1, |used| size(used.peak_id.into())),
                peak_percent: cpu.percent(|used| used.peak),
                retransmits: if asked.spec.transport == Transport::Tcp { size(retransmits) } else { -1 },
                congestion_control: congestion_control.filter(|_| asked.wants_congestion_control).unwrap_or_default(),
            }
            .write(&mut message);
        }
        Form::Classic(test @ (Test::TcpStream | Test::TcpMaerts)) => {
            let receives_data = test == Test::TcpStream;
            let results = messages::StreamResults {
                bytes: if receives_data { bytes_received as f64 } else { bytes_sent as f64 },
                calls: if receives_data { receives } else { sends },
                elapsed_s,
                cpu_percent,
                service_demand: 0.0,
                cpu_method,
                cpus,
                receive_buffer: if receives_data { receive_buffer } else { 0 },
                send_buffer: if receives_data { send_buffer } else { 0 },
            };
            results.write(&mut message);
        }
        Form::Classic(Test::UdpStream) => messages::DatagramResults {
            messages: receives,
            bytes_received: bytes_received as u32,
            elapsed_s,
            cpu_percent: if cpu.used.is_some() { cpu_percent } else { -1.0 },
            cpu_method,
            cpus,
        }
        .write(&mut message),
        Form::Classic(Test::TcpRr | Test::TcpCrr | Test::TcpCc | Test::UdpRr) => messages::ExchangeResults {
            bytes_received: bytes_received as u32,
            receives,
            transactions,
            elapsed_s,
            cpu_percent,
            service_demand: 0.0,
            cpu_method,
            cpus,
        }
        .write(&mut message),
    }
    message
}

#[cfg(test)]
mod tests {
    use nix::{
        sched::{CpuSet, sched_getaffinity, sched_setaffinity},
        unistd::Pid,
    };

    use super::*;

    #[test]
    fn a_daemon_on_one_cpu_tells_of_all_of_them() {
        let ours = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let first = (0..CpuSet::count()).find(|cpu| ours.is_set(*cpu).unwrap()).unwrap();
        let mut one = CpuSet::new();
        one.set(first).unwrap();
        sched_setaffinity(Pid::from_raw(0), &one).unwrap();
        let stat = std::fs::read_to_string("/proc/stat").unwrap();
        let online = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count();
        assert_eq!(cpus() as usize, online);
        let used = CpuUse { cpus: 7, ..CpuUse::default() };
        assert_eq!(Cpu { used: Some(&used) }.count(), 7);
    }
}
