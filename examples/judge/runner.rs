//! PyTorch's allocator, in a process of its own for each program, because a process has only one.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::random::Program;

/// PyTorch's message about settings that it refuses.
const REFUSED: &str = "the allocator refused: CachingAllocator option";

/// A program that runs a released `libc10_cuda.so` on a driver which hands out addresses and keeps no memory. It lies
/// in a folder that is named after the version (`2.13.0/runner`).
///
/// Its arguments are the driver's capacity and the device's memory in bytes, the limit in bytes or `-`, how addresses
/// are chosen, a seed, and how long events take. It gets the settings in `PYTORCH_ALLOC_CONF`, and the script on
/// standard input. It prints facts and, after them, `end`. `tests/judge/mod.rs` describes scripts and facts.
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

    /// 13 for version 2.13.0.
    pub const fn minor(&self) -> u32 {
        self.minor
    }

    /// Runs a program, and returns it with what PyTorch's allocator did; `None` if PyTorch refuses the settings.
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
        // The runner reads the whole script before it prints anything, or ends early.
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
