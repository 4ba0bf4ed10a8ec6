//! Tells the library how it is optimised: there is no `cfg` for it, and debug assertions say something else.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=UNPADDED_OPT_LEVEL={}", std::env::var("OPT_LEVEL").unwrap_or_default());
}
