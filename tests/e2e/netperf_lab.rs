//! netperf and our program under its name, in a network namespace with a netserver.

use std::{
    os::unix::fs::symlink,
    process::{Child, Command, Stdio},
};

use crate::{
    needs::has_program,
    netns::Namespace,
    program::{Folder, Ran, until},
};

/// A namespace with a netserver, and our program under the name `netperf`.
pub struct Lab {
    pub namespace: Namespace,
    server: Child,
    pub folder: Folder,
}

impl Lab {
    pub fn new() -> Option<Self> {
        if !has_program("netperf", "netperf") || !has_program("netserver", "netperf") {
            return None;
        }
        let namespace = Namespace::new()?;
        // The resolver gives an address only where a host has more than loopback.
        namespace.read("ip", &["addr", "add", "10.77.0.1/32", "dev", "lo"]);
        namespace.read("ip", &["-6", "addr", "add", "fd77::1/128", "dev", "lo", "nodad"]);
        let mut server = namespace.command("netserver");
        let server = server.args(["-D"]).stdin(Stdio::null()).stdout(Stdio::null()).spawn().ok()?;
        let folder = Folder::new();
        symlink(env!("CARGO_BIN_EXE_plumb"), folder.path("netperf")).unwrap();
        let lab = Self { namespace, server, folder };
        until("netserver listens", || lab.namespace.read("ss", &["-tlnH"]).contains(":12865"));
        Some(lab)
    }

    pub fn command(&self, program: &str, line: &str) -> Command {
        let mut command = self.namespace.command(program);
        command.args(line.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn ours(&self, line: &str) -> Ran {
        self.command(&self.folder.name("netperf"), line).output().expect("it starts").into()
    }

    pub fn theirs(&self, line: &str) -> Ran {
        self.command("netperf", line).output().expect("it starts").into()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
