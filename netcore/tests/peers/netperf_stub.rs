//! This client against far ends that break netperf's protocol: a clean error, soon.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use netcore::{
    peers::netperf::{
        messages,
        wire::{MESSAGE_BYTES, Message},
    },
    spec::{Direction, Pattern, Stop, TestSpec, Transport},
};

use crate::netperf::{run, spec};

/// A far end that runs this with its control connection, once.
fn stub(behave: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Ends with the client's connection.
    thread::spawn(move || behave(listener.accept().unwrap().0));
    address
}

fn receive(control: &mut TcpStream) -> Message {
    let mut bytes = [0; MESSAGE_BYTES];
    control.read_exact(&mut bytes).unwrap();
    Message(bytes)
}

/// Answers the request; returns the listener of the data.
fn respond(control: &mut TcpStream) -> TcpListener {
    assert_eq!(receive(control).kind(), 97);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut message = Message::new(98, 0);
    let data_port = listener.local_addr().unwrap().port().into();
    messages::OmniResponse { data_port, ..messages::OmniResponse::default() }.write(&mut message);
    control.write_all(&message.0).unwrap();
    listener
}

fn stream(stop: Stop) -> TestSpec {
    spec(Pattern::Stream, Transport::Tcp, stop)
}

/// Runs a test that the far end spoils; returns the error.
#[track_caller]
fn spoiled(spec: &TestSpec, behave: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let began = Instant::now();
    let said = run(&stub(behave), spec).unwrap_err().to_string();
    // Far less than the client's own patience with a far end that is silent.
    assert!(began.elapsed() < Duration::from_mins(1), "{said}");
    assert!(said.starts_with("host `old` (127.0.0.1:"), "{said}");
    said
}

#[test]
fn results_of_any_type_are_taken() {
    let address = stub(|mut control| {
        let listener = respond(&mut control);
        let bytes_received = std::io::copy(&mut listener.accept().unwrap().0, &mut std::io::sink()).unwrap();
        let mut message = Message::new(0x6200_0000, 0);
        messages::OmniResults { bytes_received, receives: 7, retransmits: -1, ..messages::OmniResults::default() }
            .write(&mut message);
        control.write_all(&message.0).unwrap();
        // The client says that it is done.
        assert_eq!(control.read(&mut [0]).unwrap(), 0);
    });
    let mut spec = stream(Stop::AfterBytes(1_000_000));
    spec.collect.cpu = false;
    let outcome = run(&address, &spec).unwrap();
    let far = outcome.far.unwrap();
    assert_eq!((far.totals[0].counts.bytes_received, far.totals[0].counts.receives), (1_000_000, 7));
    assert!(far.phases[0].cpu.is_none() && far.totals[0].retransmits.is_none());
    let buffer = far.options.iter().find(|granted| granted.option == "send_buffer").unwrap();
    assert_eq!((&buffer.at_start, &buffer.at_end), (&None, &None), "it told none");
}

#[test]
fn a_far_end_that_refuses_leaves_or_lies_is_an_error_that_says_so() {
    let second = Stop::AfterNs(1_000_000_000);
    let spec = stream(second);
    for (number, words) in [
        (98, "refused the test: Address already in use"),
        (998, "built without such a test"),
        (403, "another passphrase"),
        (u32::MAX, "error 4294967295"),
    ] {
        let said = spoiled(&spec, move |mut control| {
            receive(&mut control);
            control.write_all(&Message::new(98, number).0).unwrap();
        });
        assert!(said.contains(words), "{number}: {said}");
    }
    let said = spoiled(&spec, |mut control| assert_eq!(receive(&mut control).kind(), 97));
    assert!(said.contains("closed its control connection in place of an answer"), "{said}");
    let said = spoiled(&spec, |mut control| {
        receive(&mut control);
        control.write_all(&Message::new(98, 0).0).unwrap();
        let _ = control.read(&mut [0]);
    });
    assert!(said.contains("names data port 0"), "{said}");
    // It leaves after the response, and while it is sent to.
    let said = spoiled(&spec, |mut control| drop(respond(&mut control)));
    assert!(said.contains("closed") || said.contains("data connection"), "{said}");
    let said = spoiled(&spec, |mut control| {
        let listener = respond(&mut control);
        let _data = listener.accept().unwrap();
        drop(control);
        thread::sleep(Duration::from_secs(2));
    });
    assert!(said.contains("closed its control connection before the results"), "{said}");
    // It gives the test up in the middle.
    let said = spoiled(&spec, |mut control| {
        let listener = respond(&mut control);
        let _data = listener.accept().unwrap();
        control.write_all(&Message::new(99, 12).0).unwrap();
        let _ = control.read(&mut [0]);
    });
    assert!(said.contains("gave the test up: Cannot allocate memory"), "{said}");
    // It received more than was sent.
    let said = spoiled(&stream(Stop::AfterBytes(1000)), |mut control| {
        let listener = respond(&mut control);
        drop(std::io::copy(&mut listener.accept().unwrap().0, &mut std::io::sink()));
        let mut message = Message::new(99, 0);
        messages::OmniResults { bytes_received: u64::MAX, ..messages::OmniResults::default() }.write(&mut message);
        control.write_all(&message.0).unwrap();
        let _ = control.read(&mut [0]);
    });
    assert!(said.contains("cannot be true"), "{said}");
}

#[test]
fn what_a_netserver_cannot_run_is_refused_before_it_is_asked() {
    let mut spec = stream(Stop::AfterNs(1_000_000_000));
    (spec.direction, spec.streams) = (Direction::Bidirectional, 1);
    let said = spoiled(&spec, |mut control| assert_eq!(control.read(&mut [0]).unwrap(), 0));
    assert!(said.contains("one way"), "{said}");
}
