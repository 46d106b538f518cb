//! PyTorch's allocator, in a process of its own for each program: it is one to a process.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::random::Program;

/// What PyTorch says of settings that it does not take.
const REFUSED: &str = "the allocator refused: CachingAllocator option";

/// A program that puts a released `libc10_cuda.so` on a driver which hands out addresses and keeps no memory, in a folder that is
/// called as the version (`2.13.0/runner`).
///
/// It is given the driver's capacity and the device's memory in bytes, the limit in bytes or `-`, how addresses are chosen, a seed,
/// and how long events take; the settings in `PYTORCH_ALLOC_CONF`; the script on its standard input. It prints facts and, behind
/// them, `end`. Scripts and facts stand in `tests/judge/mod.rs`.
pub struct Runner {
    path: PathBuf,
    torch: String,
    minor: u32,
}

impl Runner {
    pub fn at(path: &Path) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{} is no runner: it must lie in a folder that is called as the version of PyTorch, 2.13.0/runner",
                path.display()
            )
        };
        let folder = path.parent().and_then(Path::file_name).ok_or_else(wrong)?;
        let torch = folder.to_str().ok_or_else(wrong)?.to_owned();
        let minor = torch.split('.').nth(1).and_then(|minor| minor.parse().ok()).ok_or_else(wrong)?;
        Ok(Self { path: path.to_owned(), torch, minor })
    }

    pub fn torch(&self) -> &str {
        &self.torch
    }

    /// 13 of 2.13.0.
    pub const fn minor(&self) -> u32 {
        self.minor
    }

    /// The program with what PyTorch's allocator did; `None` if it does not take the settings.
    pub fn run(&self, program: &Program) -> Result<Option<String>, String> {
        let script = program.script.join("\n") + "\n";
        let told = |error: std::io::Error| format!("{}: {error}", self.path.display());
        let limit = program.limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
        let mut child = Command::new(&self.path)
            .args([program.capacity, program.device_bytes].map(|bytes| bytes.to_string()))
            .arg(limit)
            .args([program.addresses, program.seed, program.delay].map(|number| number.to_string()))
            .env_remove("PYTORCH_CUDA_ALLOC_CONF")
            .env("PYTORCH_ALLOC_CONF", &program.conf)
            .env("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(told)?;
        // It reads all before it says anything, or ends early.
        if let Some(mut input) = child.stdin.take() {
            let _ = input.write_all(script.as_bytes());
        }
        let output = child.wait_with_output().map_err(told)?;
        let error = String::from_utf8_lossy(&output.stderr);
        if error.contains(REFUSED) {
            return Ok(None);
        }
        let facts = String::from_utf8_lossy(&output.stdout);
        let Some(facts) = facts.strip_suffix("end\n").filter(|_| output.status.success()) else {
            return Err(format!("the runner ended early ({}): {}", output.status, error.trim()));
        };
        let Program { conf, device_bytes, capacity, delay, .. } = program;
        let limit = program.limit.map_or_else(String::new, |limit| format!("limit {limit}\n"));
        Ok(Some(format!(
            "torch {}\nconf {conf}\ndevice_bytes {device_bytes}\ncapacity {capacity}\ndelay {delay}\n{limit}script\n{script}facts\n{facts}",
            self.torch
        )))
    }
}
