//! Compiles the .proto files without `protoc`: protox parses, tonic-prost-build generates.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "common", "status", "plan", "explain", "admin", "watch", "agent", "raft",
    ]
    .map(|name| format!("annulus/v1/{name}.proto"));
    println!("cargo::rerun-if-changed=annulus");
    let descriptors = protox::compile(files, ["."])?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
