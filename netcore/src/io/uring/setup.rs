//! Makes a ring, or says why there is none.

use std::io;

use io_uring::IoUring;
use nix::sys::resource::{Resource, getrlimit};

use crate::spec::rings;

/// Flows that the queue of submissions has room for, at most: it has up to 32768 entries.
const MOST_FLOWS: usize = 8192;

/// Makes the ring with the best flags that the kernel knows; says whether its work is deferred to the thread's calls.
pub fn set_up(flows: usize) -> io::Result<(IoUring, bool)> {
    let flows = flows.clamp(1, MOST_FLOWS);
    // Of each flow an operation and a lasting receive, and the cancellation of each.
    let submissions = u32::try_from(flows * 4).unwrap_or(u32::MAX).next_power_of_two();
    // A lasting receive completes once for each buffer.
    let completions = submissions + u32::from(rings::buffers(flows));
    let builder = || {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(completions);
        builder
    };
    let is_unknown = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    match builder().setup_single_issuer().setup_defer_taskrun().setup_submit_all().build(submissions) {
        Err(error) if is_unknown(&error) => {}
        made => return made.map(|uring| (uring, true)),
    }
    match builder().setup_coop_taskrun().build(submissions) {
        Err(error) if is_unknown(&error) => {}
        made => return made.map(|uring| (uring, false)),
    }
    builder().build(submissions).map(|uring| (uring, false))
}

/// Adds why there is no ring, and the remedy.
pub fn explain(error: &io::Error) -> io::Error {
    let sentence = match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            "this kernel has no io_uring (ENOSYS), or a container hides it: leave `io` out".to_owned()
        }
        Some(libc::EPERM) => {
            forbidden(&std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default())
        }
        Some(libc::ENOMEM) => {
            let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft) / 1024;
            format!(
                "no memory for the ring and its buffers (ENOMEM); locked memory is limited to {limit} KiB: raise \
                 `ulimit -l`, or use fewer streams"
            )
        }
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), sentence)
}

/// Sentence for EPERM with this value of the sysctl `kernel.io_uring_disabled`.
fn forbidden(disabled: &str) -> String {
    let (cause, remedy) = match disabled.trim() {
        "1" => (
            "the sysctl kernel.io_uring_disabled is 1",
            "add the user to the group of kernel.io_uring_group, or set kernel.io_uring_disabled=0",
        ),
        "2" => ("the sysctl kernel.io_uring_disabled is 2", "set it to 0"),
        _ => ("EPERM: a filter of system calls, as containers have, forbids it", "allow io_uring_setup there"),
    };
    format!("io_uring is forbidden here ({cause}): {remedy}, or leave `io` out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_reason_and_the_remedy() {
        let sentence = |errno| explain(&io::Error::from_raw_os_error(errno)).to_string();
        assert!(sentence(libc::ENOSYS).contains("has no io_uring (ENOSYS)"));
        assert!(sentence(libc::EPERM).contains("leave `io` out"));
        assert!(sentence(libc::ENOMEM).contains("raise `ulimit -l`"));
        assert!(sentence(libc::EMFILE).contains("Too many open files"));
        assert!(forbidden("2\n").contains("kernel.io_uring_disabled is 2): set it to 0"));
        assert!(forbidden("1\n").contains("kernel.io_uring_group"));
        assert!(forbidden("0\n").contains("seccomp") || forbidden("").contains("a filter of system calls"));
    }

    #[test]
    fn any_number_of_flows_has_a_ring() {
        for flows in [1, 3, 1000, 100_000] {
            // A kernel or a container without rings says so in the tests of the program.
            let Ok((uring, _)) = set_up(flows) else { return };
            assert!(uring.params().cq_entries() >= uring.params().sq_entries());
        }
    }
}
