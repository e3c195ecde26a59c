//! A daemon for other programs' clients.

use std::thread::JoinHandle;

use netcore::{
    control::stop::StopFlag,
    daemon::{Config, Daemon},
    peers::Program,
};

/// A daemon in a thread, stopped at once when it is dropped.
pub struct Serving {
    /// Of the program's clients.
    pub address: String,
    stop: StopFlag,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    pub fn also(program: Program, config: Config) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        let config = Config { listen: vec![any], also: vec![(program, vec![any])], ..config };
        let daemon = Daemon::bind(config).unwrap();
        let address = daemon.listening(Some(program)).next().unwrap().to_string();
        let stop = never_stopped();
        let flag = stop.clone();
        let thread = std::thread::spawn(move || daemon.run(&flag).unwrap());
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.request();
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

pub fn never_stopped() -> StopFlag {
    StopFlag::new().unwrap()
}
