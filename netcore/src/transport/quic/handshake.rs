//! The ends of QUIC before the load: their settings and certificates, the tickets of earlier connections, and the handshakes of a test.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use quinn_proto::{
    ClientConfig, Dir, Endpoint, EndpointConfig, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt, congestion,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use quinn_udp::UdpSocketState;
use rustls::{
    NamedGroup,
    client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue},
    crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
    pki_types::ServerName,
};
use socket2::SockRef;

use super::{
    BLOCKED, CONTROL_BYTES, Flow, IDLE, INCOMING_BYTES, INCOMING_BYTES_IN_ALL, LOOK_UP, MOST_CONNECTIONS, Node,
    PIECE_BYTES, because,
};
use crate::{
    error::EndError,
    lock::Lock,
    spec::{
        QuicCongestionControl, Session, TestSpec,
        memory::{AHEAD_BYTES, ARRIVED_BYTES},
    },
    transport::{Deadline, Link, address, tls},
};

/// The protocol's name in handshakes (ALPN).
const PROTOCOL: &[u8] = b"plumb";

/// Tickets of a flow that are kept.
const TICKETS: usize = 16;

/// Tickets of earlier connections of a flow. A connection uses one and brings others; the next one waits until they are there.
#[derive(Debug, Default)]
pub(super) struct Tickets(Lock<(Option<NamedGroup>, VecDeque<Tls13ClientSessionValue>)>);

impl Tickets {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().1.is_empty()
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.lock().0 = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.lock().0
    }

    /// TLS 1.2 is not offered.
    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut state = self.0.lock();
        state.1.truncate(TICKETS - 1);
        state.1.push_front(ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.lock().1.pop_front()
    }
}

/// The means by which a near end begins its connections.
pub(super) struct Opening {
    pub(super) config: ClientConfig,
    /// Set when the far end's certificate is checked, which no resumed handshake does.
    pub(super) checked: Arc<AtomicBool>,
    /// `None`: each connection has a full handshake.
    pub(super) tickets: Option<Arc<Tickets>>,
}

/// The transport's settings, which both ends share.
fn transport(spec: &TestSpec) -> Arc<TransportConfig> {
    let options = spec.quic_options().unwrap_or_default();
    let window = VarInt::from_u64(options.window_bytes()).unwrap_or(VarInt::MAX);
    // It fits: the bound is a constant.
    let idle = IDLE.try_into().unwrap_or(VarInt::MAX.into());
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(options.mtu_bytes());
    let mut config = TransportConfig::default();
    config
        .stream_receive_window(window)
        .receive_window(window)
        .send_window(options.window_bytes())
        .max_concurrent_uni_streams(VarInt::from_u32(1))
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .mtu_discovery_config(Some(discovery))
        .datagram_receive_buffer_size(spec.transport.is_datagram().then_some(ARRIVED_BYTES))
        .datagram_send_buffer_size(AHEAD_BYTES)
        .crypto_buffer_size(16 << 10)
        .allow_spin(false)
        // Other tests have a deadline of their own.
        .max_idle_timeout(spec.pattern.is_connecting().then_some(idle));
    match options.congestion_control.unwrap_or_default() {
        QuicCongestionControl::Cubic => {}
        QuicCongestionControl::NewReno => {
            config.congestion_controller_factory(Arc::new(congestion::NewRenoConfig::default()));
        }
        QuicCongestionControl::Bbr => {
            config.congestion_controller_factory(Arc::new(congestion::BbrConfig::default()));
        }
    }
    Arc::new(config)
}

fn failed(error: impl fmt::Display) -> EndError {
    EndError::Impossible(format!("cannot begin QUIC: {error}"))
}

/// Prepares an end of a flow.
fn node(link: &Link, spec: &TestSpec, part: tls::Part<'_>) -> Result<Node, EndError> {
    let options = spec.quic_options().unwrap_or_default();
    let initial = TLS13_AES_128_GCM_SHA256.tls13().and_then(rustls::Tls13CipherSuite::quic_suite);
    let initial = initial.ok_or_else(|| failed("its library lacks AES-128"))?;
    let (mut server, mut opening) = (None, None);
    match part {
        tls::Part::Far(identity) => {
            let mut config = (*identity.config).clone();
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
            if config.max_early_data_size > 0 {
                // QUIC bounds it by its windows: RFC 9001, section 4.6.1.
                config.max_early_data_size = u32::MAX;
            }
            let crypto = QuicServerConfig::with_initial(Arc::new(config), initial).map_err(failed)?;
            let mut config = ServerConfig::with_crypto(Arc::new(crypto));
            config
                .transport_config(transport(spec))
                .migration(false)
                .max_incoming(MOST_CONNECTIONS)
                .incoming_buffer_size(INCOMING_BYTES)
                .incoming_buffer_size_total(INCOMING_BYTES_IN_ALL);
            server = Some(Arc::new(config));
        }
        tls::Part::Near(fingerprint) => {
            let cipher = spec.cipher().unwrap_or_default();
            let (mut config, _, checked) = tls::client(cipher, fingerprint).map_err(failed)?;
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
            let tickets =
                spec.session().filter(|session| *session != Session::Full).map(|_| Arc::new(Tickets::default()));
            if let Some(tickets) = &tickets {
                config.resumption = Resumption::store(tickets.clone());
                config.enable_early_data = spec.session() == Some(Session::Early);
            }
            let crypto = QuicClientConfig::with_initial(Arc::new(config), initial).map_err(failed)?;
            let mut config = ClientConfig::new(Arc::new(crypto));
            config.transport_config(transport(spec));
            opening = Some(Opening { config, checked, tickets });
        }
    }
    let state =
        UdpSocketState::new((&link.receive).into()).map_err(EndError::system("cannot prepare a socket for QUIC"))?;
    // The library has made the socket non-blocking. A call that waits and receives saves the call that only waits.
    super::connection::set_blocking(&link.receive, true)?;
    let socket = SockRef::from(&*link.receive);
    let bounds = socket.set_read_timeout(Some(BLOCKED)).and_then(|()| socket.set_write_timeout(Some(LOOK_UP)));
    bounds.map_err(EndError::system("cannot bound the waits of a socket for QUIC"))?;
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(options.mtu_bytes().max(1472)).map_err(failed)?;
    let most = if spec.pattern.is_connecting() { MOST_CONNECTIONS } else { 1 };
    Ok(Node {
        endpoint: Endpoint::new(Arc::new(config), server, !state.may_fragment(), None),
        socket: link.receive.clone(),
        state,
        peer: address::peer_ip(&link.receive)?,
        opening,
        most,
        open: Vec::with_capacity(most),
        window: options.window_bytes(),
        piece: vec![0; PIECE_BYTES].into_boxed_slice(),
        control: vec![0; CONTROL_BYTES].into_boxed_slice(),
        output: Vec::with_capacity(1 << 16),
        figures: Arc::default(),
        taken: Instant::now(),
        published: Instant::now(),
        calls: (0, 0),
        is_refused: false,
        has_left: false,
    })
}

/// Makes the handshakes of all flows, at the same time; of a connect pattern, prepares them.
pub fn secure(
    links: &[Arc<Link>],
    spec: &TestSpec,
    part: tls::Part<'_>,
    deadline: &Deadline<'_>,
) -> Result<(), EndError> {
    let Some(options) = spec.quic_options() else { return Ok(()) };
    let prepare = |link: &Arc<Link>| Ok(Handshake { flow: link.flow, node: node(link, spec, part)?, quiet_by: None });
    let mut all: Vec<Handshake> = links.iter().map(prepare).collect::<Result<_, EndError>>()?;
    if !spec.pattern.is_connecting() {
        shake_hands(&mut all, deadline)?;
    }
    for (link, Handshake { node, .. }) in links.iter().zip(all) {
        // A link has one end. No other cipher is offered, so every handshake agrees on it or fails.
        let _ = link.quic.set(Flow {
            figures: node.figures.clone(),
            node: Lock::new(Some(Box::new(node))),
            congestion_control: options.congestion_control.unwrap_or_default(),
            asked: options.congestion_control,
            cipher: spec.cipher().unwrap_or_default().name(),
            asked_cipher: spec.tls.as_ref().map(|tls| tls.cipher.name()),
        });
    }
    Ok(())
}

/// A flow whose connection is being made.
struct Handshake {
    flow: u32,
    node: Node,
    /// When it need not wait any longer for the last acknowledgement, once it is made.
    quiet_by: Option<Instant>,
}

/// Makes the connections of all flows, and goes on until nothing is under way: the path's MTU is known then, and the first round trip
/// of the load has no packet of before. An end cannot know that the other one has its last acknowledgement, so this has a bound.
fn shake_hands(all: &mut [Handshake], deadline: &Deadline<'_>) -> Result<(), EndError> {
    let count = all.len();
    let mut left: Vec<&mut Handshake> = all.iter_mut().collect();
    for each in &mut left {
        each.node.begin().map_err(|error| each.failed(&error))?;
    }
    while !left.is_empty() {
        if deadline.left().is_zero() {
            let flows = u32::try_from(count).unwrap_or(u32::MAX);
            return Err(deadline.missed(count - left.len(), flows, "a QUIC handshake did not end"));
        }
        // Of several, none waits long for its own packets.
        let wait = if left.len() == 1 { deadline.slice() } else { Duration::from_micros(200) };
        let mut waiting = Vec::with_capacity(left.len());
        for each in left {
            if !each.go_on(wait)? {
                waiting.push(each);
            }
        }
        left = waiting;
    }
    Ok(())
}

impl Handshake {
    fn failed(&self, reason: &dyn fmt::Display) -> EndError {
        EndError::Impossible(format!("flow {}: the QUIC handshake failed: {reason}", self.flow))
    }

    /// Goes on for a while. Whether it has ended.
    fn go_on(&mut self, wait: Duration) -> Result<bool, EndError> {
        self.node.transmit().map_err(|error| self.failed(&error))?;
        if let Some(open) = self.node.open.last_mut() {
            if let Some(reason) = &open.lost {
                let reason = because(reason);
                return Err(self.failed(&reason));
            }
            if !open.connection.is_handshaking() {
                let now = Instant::now();
                let by = *self.quiet_by.get_or_insert_with(|| now + 10 * open.connection.rtt() + 5 * LOOK_UP);
                if open.connection.poll_timeout().is_none() || now >= by {
                    // Each end has one stream to the other.
                    let opened = open.connection.streams().open(Dir::Uni);
                    return opened.map(|_| true).ok_or_else(|| self.failed(&"the other end allows no stream"));
                }
            }
        }
        self.node.turn(Instant::now() + wait).map_err(|error| self.failed(&error))?;
        Ok(false)
    }
}
