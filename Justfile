# One line each: what a person would otherwise have to remember. `just --list` shows them.

# The README's run command: the main job, over loopback.
run *ARGS='plans/quick.yaml':
    cargo run --release -- run {{ARGS}}

# The README's test command.
test:
    cargo test --workspace

# What CI refuses: formatting, clippy, rustdoc.
lint:
    cargo fmt --all --check && cargo clippy --workspace --all-targets -- -D warnings && RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps

# The hot loops by criterion, then the comparison with the peers that are installed.
bench:
    cargo bench --workspace && tests/bench/compare

# Write the published schemas anew from the types.
schemas:
    cargo run --release -- schema plan > schemas/plan.schema.json && cargo run --release -- schema results > schemas/results.schema.json && cargo run -p schemas --example dictionary

# Protocols that this kernel may lack (SCTP, DCCP, vsock), in a virtual machine.
test-vm:
    tests/vm/run
