//! Builds the stand-in GPU's libraries, which the crate embeds: see `src/standin`.
//!
//! They are Rust without crates, so the compiler that builds the crate can build them, too.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[path = "src/standin/table.rs"]
#[allow(dead_code, reason = "the crate uses the rest")]
mod table;

use table::EntryTable;

const FOLDER: &str = "src/standin/library";
/// The library in which cuDNN finds cuBLASLt, for each version of CUDA.
const LT: [&str; 2] = ["libcublasLt.so.12", "libcublasLt.so.13"];

fn main() {
    for path in [FOLDER, "src/standin/lt", "src/standin/table.rs", "build.rs"] {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    println!("cargo:rustc-check-cfg=cfg(standin)");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let linux = variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    let known = ["x86_64", "aarch64"].contains(&&*variable("CARGO_CFG_TARGET_ARCH"));
    if !linux || !known {
        return;
    }
    match build(Path::new(&variable("OUT_DIR"))) {
        Ok(()) => println!("cargo:rustc-cfg=standin"),
        Err(reason) => {
            for line in reason.lines() {
                println!("cargo:warning={line}");
            }
            println!("cargo:warning=the stand-in GPU was not built: `--device sim:NAME` of `watch` says so");
        }
    }
}

fn build(out: &Path) -> Result<(), String> {
    let tables = tables()?;
    let (stubs, names) = (out.join("stubs.rs"), out.join("names.rs"));
    write(&stubs, &stubs_of(&tables))?;
    write(&out.join("real.rs"), &real_of(&tables))?;
    let said = "/// The generated entry points, in the order of their counts.\npub const NAMES: &[&str]";
    write(&names, &format!("{said} = {};\n", list(&tables)))?;
    compile(
        Path::new(FOLDER).join("lib.rs"),
        &out.join("libstandin.so"),
        &stubs,
        &[
            "--crate-type=cdylib".to_owned(),
            format!("-Copt-level={}", env::var("OPT_LEVEL").unwrap_or_else(|_| "2".to_owned())),
            "-Clink-arg=-Wl,-soname,libcuda.so.1".to_owned(),
        ],
    )?;
    let forwards = out.join("forwards.rs");
    let lt = tables
        .iter()
        .find(|(library, _)| library == "cublaslt")
        .map(|(_, table)| table)
        .ok_or("no table of cublasLt")?;
    write(&forwards, &forwards_of(lt))?;
    for name in LT {
        let versions = out.join(format!("{name}.map"));
        write(&versions, &format!("{name} {{ global: cublasLt*; local: *; }};\n"))?;
        compile(
            PathBuf::from("src/standin/lt/main.rs"),
            &out.join(name),
            &forwards,
            &[
                "--crate-type=bin".to_owned(),
                // Without optimisation it would need symbols that only a program has.
                "-Copt-level=2".to_owned(),
                "-Crelocation-model=pic".to_owned(),
                "-Clink-arg=-nostartfiles".to_owned(),
                "-Clink-arg=-shared".to_owned(),
                format!("-Clink-arg=-Wl,-soname,{name}"),
                format!("-Clink-arg=-Wl,--version-script={}", versions.display()),
            ],
        )?;
    }
    Ok(())
}

/// The tables by library.
fn tables() -> Result<Vec<(String, EntryTable)>, String> {
    let folder = Path::new(FOLDER).join("entries");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let table = EntryTable::read(&text).map_err(|wrong| format!("{}: {wrong}", path.display()))?;
        let library = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Ok((library, table))
    };
    paths.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "txt")).map(read).collect()
}

fn list(tables: &[(String, EntryTable)]) -> String {
    let names = tables.iter().flat_map(|(_, table)| &table.entries).filter(|(_, answer)| answer.is_generated());
    format!("&[{}]", names.map(|(name, _)| format!("{name:?}")).collect::<Vec<_>>().join(", "))
}

fn real_of(tables: &[(String, EntryTable)]) -> String {
    let mut real: Vec<&str> = tables
        .iter()
        .flat_map(|(_, table)| &table.entries)
        .filter(|(_, answer)| *answer == table::Implementation::Real)
        .map(|(name, _)| &**name)
        .collect();
    real.sort_unstable();
    format!("/// What is left to NVIDIA's own libraries, in order.\nconst REAL: &[&str] = &{real:?};\n")
}

fn stubs_of(tables: &[(String, EntryTable)]) -> String {
    let mut text = String::new();
    let mut entry = 0;
    for (_, table) in tables {
        for (name, answer) in &table.entries {
            if let Some(stub) = answer.stub(name, entry, table.refusal) {
                text.push_str(&stub);
                entry += 1;
            }
        }
    }
    text
}

/// Makes each name jump to the address in its slot.
fn forwards_of(lt: &EntryTable) -> String {
    let names: Vec<&str> = lt.entries.iter().map(|(name, _)| &**name).collect();
    let names_with_ends: Vec<String> = names.iter().map(|name| format!("c{name:?}")).collect();
    let mut text = format!(
        "const COUNT: usize = {};\nstatic NAMES: [&CStr; COUNT] = [{}];\ncore::arch::global_asm!(\n",
        names.len(),
        names_with_ends.join(", ")
    );
    for (slot, name) in names.iter().enumerate() {
        let jump = if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
            format!("jmp *SLOTS+{}(%rip)", slot * 8)
        } else {
            let at = slot * 8;
            format!("adrp x16, SLOTS+{at}\\nldr x16, [x16, :lo12:SLOTS+{at}]\\nbr x16")
        };
        text.push_str(&format!(
            "\".globl {name}\\n.type {name},%function\\n{name}: {jump}\\n.size {name}, .-{name}\\n\",\n"
        ));
    }
    let options =
        if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") { "options(att_syntax)" } else { "" };
    text.push_str(&format!("{options});\n"));
    text
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs the compiler once.
fn compile(source: PathBuf, to: &Path, generated: &Path, arguments: &[String]) -> Result<(), String> {
    let variable = |name: &str| env::var_os(name).unwrap_or_default();
    let variable_path = |file: &str| Path::new(&variable("OUT_DIR")).join(file);
    let mut command = Command::new(variable("RUSTC"));
    command
        .arg(source)
        .arg("--edition=2024")
        .arg("--crate-name=standin")
        .arg("--target")
        .arg(variable("TARGET"))
        .args(["-Cpanic=abort", "-Cstrip=symbols", "-Ccodegen-units=4", "--cap-lints=warn"])
        .args(arguments)
        .arg("-o")
        .arg(to)
        .env("VRAMLAB_STUBS", generated)
        .env("VRAMLAB_NAMES", variable_path("names.rs"))
        .env("VRAMLAB_REAL", variable_path("real.rs"));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut given = std::ffi::OsString::from("-Clinker=");
        given.push(linker);
        command.arg(given);
    }
    let output = command.output().map_err(|error| format!("the compiler is not started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}
