# Shortcuts for the commands that are hard to remember. `just --list` shows them.

# Run a plan over loopback (the README's run command).
run *ARGS='plans/quick.yaml':
    cargo run --release -- run {{ARGS}}

# Run all tests (the README's test command).
test:
    cargo test --workspace

# Run the tests of drawn inputs with inputs that no run had before, some times.
properties TIMES='10':
    for seed in $(shuf -i 1-1000000000 -n {{TIMES}}); do echo "seed $seed"; PROPTEST_RNG_SEED=$seed cargo test --workspace --lib --quiet || exit 1; done

# Run the tests that need a quiet machine: rates, shares and statistical decisions about real paths (as root).
lab *ARGS:
    tests/lab/run {{ARGS}}

# Check formatting, clippy, rustdoc and the crates that are used, as CI does.
lint:
    cargo fmt --all --check && cargo clippy --workspace --all-targets -- -D warnings && cargo clippy --workspace --test lab -- -D warnings && RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps && .ci/deny

# Measure the hot loops with criterion, then compare with the installed peers.
bench:
    cargo bench --workspace && tests/bench/compare

# Make what a release ships, in target/packages: docs/start/install.md says what.
dist:
    deploy/dist/build

# Make a book of the README and docs, with a search, in target/book.
book:
    deploy/book/build

# Install what `just dist` made in a fresh Debian, and use it (as root).
test-dist:
    tests/dist/run

# Run the unit tests of arm64 under qemu.
test-arm64 *ARGS:
    tests/arm64/run {{ARGS}}

# Regenerate the published schemas and the data dictionary from the types.
schemas:
    cargo run -p runner --example plan_schema && cargo run -p schemas --example dictionary

# Test protocols that this kernel may lack (SCTP, DCCP, vsock) in a virtual machine.
test-vm:
    tests/vm/run

# Run the systemd units in a virtual machine: limits, clocks that jump, and the watchdog.
test-units *ARGS:
    tests/vm/units {{ARGS}}

# Start far ends in pods of a real Kubernetes cluster on this machine ($BIN: its programs; --help says how they are built).
test-kubernetes *ARGS:
    tests/kubernetes/run {{ARGS}}

# Count the production lines of each room, beside those of the commit in .ci/weight.base or of another one.
weight *COMMIT:
    .ci/weight {{COMMIT}}
