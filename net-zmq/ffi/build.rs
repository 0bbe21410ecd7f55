//! Finds libzmq: the system's by pkg-config, or else one built from source with libsodium.
//!
//! `SPOTMESH_ZMQ=system` and `SPOTMESH_ZMQ=vendored` force one of them.

/// Oldest system libzmq that has every option used here.
const OLDEST: &str = "4.3.4";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=SPOTMESH_ZMQ");
    let choice = std::env::var("SPOTMESH_ZMQ").unwrap_or_default();
    match choice.as_str() {
        "" | "auto" => {
            if let Err(reason) = system() {
                vendored(&reason);
            }
        }
        "system" => {
            if let Err(reason) = system() {
                panic!("SPOTMESH_ZMQ=system: {reason}");
            }
        }
        "vendored" => vendored("SPOTMESH_ZMQ=vendored"),
        other => panic!("SPOTMESH_ZMQ: expected auto, system or vendored, found {other:?}"),
    }
}

/// Links the system's libzmq where it is new enough and was built with libsodium, hence with CURVE.
fn system() -> Result<(), String> {
    let quiet = pkg_config::Config::new()
        .atleast_version(OLDEST)
        .statik(true)
        .cargo_metadata(false)
        .probe("libzmq")
        .map_err(|e| format!("no system libzmq >= {OLDEST}: {e}"))?;
    if !quiet.libs.iter().any(|lib| lib == "sodium") {
        return Err(format!("the system's libzmq {} was built without libsodium", quiet.version));
    }
    pkg_config::Config::new()
        .atleast_version(OLDEST)
        .probe("libzmq")
        .map(drop)
        .map_err(|e| format!("no system libzmq >= {OLDEST}: {e}"))
}

#[cfg(feature = "vendored")]
fn vendored(_reason: &str) {
    println!("cargo:rustc-cfg=zmq_vendored");
    // zeromq-src writes an empty platform.hpp, so what configure would find out is said here: without it
    // signalling falls back to socket pairs, keep-alive options do nothing and descriptors leak on exec.
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let mut defines = vec![
        "ZMQ_HAVE_SO_KEEPALIVE",
        "ZMQ_HAVE_TCP_KEEPCNT",
        "ZMQ_HAVE_TCP_KEEPINTVL",
        "ZMQ_HAVE_IFADDRS",
        "HAVE_FORK",
    ];
    if os == "linux" || os == "android" {
        defines.extend([
            "ZMQ_HAVE_EVENTFD",
            "ZMQ_HAVE_EVENTFD_CLOEXEC",
            "ZMQ_HAVE_SOCK_CLOEXEC",
            "ZMQ_HAVE_O_CLOEXEC",
            "HAVE_ACCEPT4",
            "ZMQ_HAVE_TCP_KEEPIDLE",
            "ZMQ_HAVE_SO_BINDTODEVICE",
        ]);
    }
    let flags = defines.iter().map(|name| format!("-D{name}=1")).collect::<Vec<_>>().join(" ");
    let target = std::env::var("TARGET").unwrap_or_default();
    // The most specific variable cc reads, so that a user's own CXXFLAGS stay in force beside it.
    let name = format!("CXXFLAGS_{}", target.replace('-', "_"));
    let before = std::env::var(&name).or_else(|_| std::env::var("CXXFLAGS")).unwrap_or_default();
    // SAFETY: this build script has one thread.
    unsafe { std::env::set_var(&name, format!("{before} {flags}")) };

    let (lib, include) = match (std::env::var("DEP_SODIUM_LIB"), std::env::var("DEP_SODIUM_INCLUDE")) {
        (Ok(lib), Ok(include)) => (lib, include),
        (lib, include) => panic!(
            "expected library and include folder of libsodium from libsodium-sys-stable, found {lib:?} and {include:?}"
        ),
    };
    zeromq_src::Build::new().with_libsodium(Some(zeromq_src::LibLocation::new(lib, include))).build();
}

#[cfg(not(feature = "vendored"))]
fn vendored(reason: &str) {
    panic!(
        "no libzmq to link: {reason}. Install libzmq >= {OLDEST} with CURVE (and pkg-config), \
         or build with the feature `vendored`"
    );
}
