//! TLS on one connection of a connect pattern: the handshake, which is part of the operation, and the request and response in records.
//!
//! The library's own connection carries the data, and not [`crate::io::tls`]: these are few, and beside a handshake their copies do
//! not show.

use std::io::{self, Read, Write};

use crate::transport::{Link, records::broken, tls};

/// Length of the record that clients of TLS 1.3 send for old middleboxes only: RFC 8446, section D.4.
const CHANGE_CIPHER_SPEC: usize = 6;

/// TLS on a connection whose calls are those of the `socket`.
pub struct Secured(rustls::Connection);

impl Secured {
    /// Before the handshake; `None`: this test has no TLS.
    pub fn begin(link: &Link) -> io::Result<Option<Self>> {
        let begun = link.secured.get().and_then(tls::Secured::begin).transpose();
        begun.map(|tls| tls.map(Self)).map_err(broken)
    }

    /// The near end's handshake. Returns its place in [`crate::spec::HANDSHAKES`], and the bytes of the request that the far end
    /// has taken with it. The last flight waits for the rest of the request: by itself it would hold that back for an
    /// acknowledgement (Nagle's algorithm).
    pub fn shake_hands(&mut self, socket: &mut (impl Read + Write), request: &[u8]) -> io::Result<(usize, usize)> {
        let mut sent = 0;
        if let rustls::Connection::Client(tls) = &mut self.0
            && let Some(mut early) = tls.early_data()
        {
            sent = early.write(request)?;
        }
        self.reach_end(socket)?;
        let is_early = matches!(&self.0, rustls::Connection::Client(tls) if tls.is_early_data_accepted());
        let (kind, taken) = match self.0.handshake_kind() {
            Some(rustls::HandshakeKind::Resumed) if is_early => (2, sent),
            Some(rustls::HandshakeKind::Resumed) => (1, 0),
            _ => (0, 0),
        };
        if taken == request.len() {
            self.flush(socket)?;
        }
        Ok((kind, taken))
    }

    /// Sends a whole request or response.
    pub fn send_all(&mut self, socket: &mut (impl Read + Write), mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.0.writer().write(bytes)?;
            self.flush(socket)?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Receives a whole request or response. A far end goes on with its handshake as far as needed.
    pub fn receive_all(&mut self, socket: &mut (impl Read + Write), buffer: &mut [u8]) -> io::Result<()> {
        let mut got = 0;
        while got < buffer.len() {
            if let rustls::Connection::Server(tls) = &mut self.0
                && let Some(mut early) = tls.early_data()
            {
                got += early.read(&mut buffer[got..])?;
            }
            if got < buffer.len() {
                match self.received(socket, &mut buffer[got..])? {
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Some(n) => got += n,
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Says that no more comes, after the handshake: a peer takes it for the end of all data.
    pub fn end(&mut self, socket: &mut (impl Read + Write)) -> io::Result<()> {
        self.complete(socket)?;
        self.0.send_close_notify();
        self.flush(socket)
    }

    /// Waits until the peer has said that no more comes, and has closed: 0. Otherwise the number of bytes that came.
    pub fn peer_end(&mut self, socket: &mut (impl Read + Write)) -> io::Result<usize> {
        loop {
            match self.received(socket, &mut [0])? {
                Some(0) => return socket.read(&mut [0]),
                Some(n) => return Ok(n),
                None => {}
            }
        }
    }

    /// Data that have come; 0: the peer's end. `None`: none yet, and a call has been made for more.
    fn received(&mut self, socket: &mut (impl Read + Write), buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0.reader().read(buffer) {
            Ok(n) => Ok(Some(n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.flush(socket)?;
                self.more(socket)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn complete(&mut self, socket: &mut (impl Read + Write)) -> io::Result<()> {
        self.reach_end(socket)?;
        self.flush(socket)
    }

    /// Goes on with the handshake until this end has only its last flight to send.
    fn reach_end(&mut self, socket: &mut (impl Read + Write)) -> io::Result<()> {
        let mut unsent = usize::MAX;
        while self.0.is_handshaking() {
            // By itself this record would hold the next one back (Nagle's algorithm) where a long chain arrives in pieces.
            if unsent > CHANGE_CIPHER_SPEC {
                self.flush(socket)?;
            }
            unsent = self.more(socket)?;
        }
        Ok(())
    }

    fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.0.wants_write() {
            self.0.write_tls(socket)?;
        }
        Ok(())
    }

    /// Receives and processes what has come. Returns the bytes that are to be sent.
    fn more(&mut self, socket: &mut (impl Read + Write)) -> io::Result<usize> {
        if self.0.read_tls(socket)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match self.0.process_new_packets() {
            Ok(state) => Ok(state.tls_bytes_to_write()),
            Err(error) => {
                // The alert says why. It fails if the peer has gone.
                let _ = self.flush(socket);
                Err(broken(tls::because(&error)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        sync::Arc,
        thread,
        time::Duration,
    };

    use super::*;
    use crate::{
        spec::{Pattern, Session, TestSpec, TlsOptions, Transport},
        transport::{
            Deadline,
            tls::{Identity, Part, secure},
        },
    };

    /// A socket that counts what is written.
    struct Counted(TcpStream, usize);

    impl Read for Counted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Counted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 += bytes.len();
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    fn sockets() -> (TcpStream, Counted) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, Counted(listener.accept().unwrap().0, 0))
    }

    /// Both ends of a flow, before its first connection.
    fn flow(session: Session) -> [Arc<Link>; 2] {
        let mut spec = TestSpec::new(Pattern::ConnectRequestResponse, Transport::Tls);
        spec.tls = Some(TlsOptions { session: Some(session), ..TlsOptions::default() });
        spec.sizes.request_bytes = 3000;
        let identity = Identity::of(&spec, None).unwrap().unwrap();
        let deadline = Deadline::after(Duration::from_secs(10), &|| false);
        [Part::Near(identity.fingerprint), Part::Far(&identity)].map(|part| {
            let link = [Arc::new(Link::of_socket(0, sockets().0.into()))];
            secure(&link, &spec, part, &deadline).unwrap();
            link[0].clone()
        })
    }

    /// One connection. Returns the handshake's kind, and the bytes that the far end had sent when it had the request.
    fn connection([near, far]: &[Arc<Link>; 2]) -> (usize, usize) {
        let (mut here, mut there) = sockets();
        let far = far.clone();
        let far = thread::spawn(move || {
            let mut tls = Secured::begin(&far).unwrap().unwrap();
            let mut request = [0; 3000];
            tls.receive_all(&mut there, &mut request).unwrap();
            assert!(request == [7; 3000]);
            let sent = there.1;
            tls.send_all(&mut there, &vec![9; 50_000]).unwrap();
            tls.end(&mut there).unwrap();
            sent
        });
        let mut tls = Secured::begin(near).unwrap().unwrap();
        let (kind, taken) = tls.shake_hands(&mut here, &[7; 3000]).unwrap();
        tls.send_all(&mut here, &[7; 3000][taken..]).unwrap();
        let mut response = vec![0; 50_000];
        tls.receive_all(&mut here, &mut response).unwrap();
        assert!(response.iter().all(|byte| *byte == 9));
        assert_eq!(tls.peer_end(&mut here).unwrap(), 0);
        (kind, far.join().unwrap())
    }

    #[test]
    fn an_early_request_is_there_before_the_far_end_has_sent_anything() {
        let of = |session| {
            let flow = flow(session);
            [0; 4].map(|_| connection(&flow))
        };
        let (full, resumed, early) = (of(Session::Full), of(Session::Resumed), of(Session::Early));
        assert_eq!([full, resumed, early].map(|each| each.map(|(kind, _)| kind)), [[0; 4], [0, 1, 1, 1], [0, 2, 2, 2]]);
        assert!(full.iter().chain(&resumed).chain(&early[..1]).all(|(_, sent)| *sent > 100));
        assert!(early[1..].iter().all(|(_, sent)| *sent == 0));
    }

    #[test]
    fn an_end_that_was_cut_off_is_an_error() {
        let [near, far] = flow(Session::Full);
        let (mut here, mut there) = sockets();
        let far = thread::spawn(move || {
            let mut tls = Secured::begin(&far).unwrap().unwrap();
            tls.complete(&mut there).unwrap();
        });
        let mut tls = Secured::begin(&near).unwrap().unwrap();
        tls.shake_hands(&mut here, &[]).unwrap();
        far.join().unwrap();
        assert_eq!(tls.peer_end(&mut here).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn another_certificate_and_other_bytes_are_refused() {
        let ([near, _], [_, far]) = (flow(Session::Full), flow(Session::Full));
        let (mut here, mut there) = sockets();
        let far = thread::spawn(move || {
            let mut tls = Secured::begin(&far).unwrap().unwrap();
            tls.complete(&mut there).unwrap_err().to_string()
        });
        let mut tls = Secured::begin(&near).unwrap().unwrap();
        let error = tls.shake_hands(&mut here, &[]).unwrap_err().to_string();
        assert!(error.starts_with("the certificate is not the one that the far end announced"), "{error}");
        assert!(far.join().unwrap().contains("the other end refused it"));

        let (mut here, mut there) = sockets();
        here.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let [_, far] = flow(Session::Full);
        let mut tls = Secured::begin(&far).unwrap().unwrap();
        assert_eq!(tls.receive_all(&mut there, &mut [0]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
