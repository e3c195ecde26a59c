//! The keys of plans that refusals and notes name: one that is misspelt in code does not compile. Keys of socket options are in
//! their table ([`super::socket`]). `port` and `port_count` are the two halves of a plan's `ports`.

macro_rules! keys {
    ($($name:ident)*) => {
        $(
            #[expect(non_upper_case_globals, reason = "spelt like the key")]
            pub const $name: &str = stringify!($name);
        )*

        /// All of them.
        pub const ALL: &[&str] = &[$($name),*];
    };
}

keys! {
    arrival bind buffers bytes close coalesce collect connected control
    cooldown direction duration hops inflight integrity io message_size one_way outage timestamps pacing payload
    port port_count ports quic rate receive receive_size remote_buffers remote_cpu remote_ports
    remote_socket reply_timeout request_size response_size streams threads tls transactions warmup workload
}

/// A test that these engines cannot run on any machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unsupported {
    /// The key to blame in the plan: `workload`, `io`, `rate`, `socket.mss`, ….
    pub key: &'static str,
    pub reason: String,
}

/// Rules, one each: a condition, the key to blame, the reason. The first condition that holds refuses the test.
macro_rules! refuse_if {
    ($($condition:expr => $key:expr, $reason:literal $(, $argument:expr)*;)+) => {$(
        if $condition {
            return Err($crate::spec::key::Unsupported { key: $key, reason: format!($reason $(, $argument)*) });
        }
    )+};
}
pub(crate) use refuse_if;
