//! The command `spotmesh-sim`; everything is in the library.

fn main() -> std::process::ExitCode {
    spotmesh_sim::cli::main()
}
