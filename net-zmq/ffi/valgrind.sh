#!/bin/sh
# Runs the tests of this crate under valgrind: no invalid access and no definite leak.
# Usage: net-zmq/ffi/valgrind.sh [cargo test options, such as --no-default-features]
set -eu
cd "$(dirname "$0")"
command -v valgrind >/dev/null || { echo "valgrind.sh: expected valgrind to be installed" >&2; exit 1; }
# Doc tests are left out: they run in the compiler's process.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --quiet --error-exitcode=9 --leak-check=full \
--show-leak-kinds=definite --errors-for-leak-kinds=definite --fair-sched=yes"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER"
cargo test -p spotmesh-zmq-ffi --lib --tests "$@" -- --test-threads=2
