//! Finds a Python with PyTorch, if there is one.

use std::process::Command;

/// A Python that can import PyTorch for CUDA: `VRAMLAB_TEST_PYTHON`, else `python3`. Prints a message if there is none.
pub fn python() -> Option<String> {
    let python = std::env::var("VRAMLAB_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let asked = Command::new(&python).args(["-c", "import torch; print(torch.version.cuda)"]).output();
    let version = asked.ok().filter(|asked| asked.status.success());
    let version = version.map(|asked| String::from_utf8_lossy(&asked.stdout).trim().to_owned());
    if version.as_deref().is_none_or(|version| version == "None") {
        eprintln!("SKIPPED: {python} has no PyTorch for CUDA; name one that has in VRAMLAB_TEST_PYTHON");
        return None;
    }
    Some(python)
}

/// A Python whose PyTorch has torchrun: `VRAMLAB_TEST_PYTHON`, else `python3`. Prints a message if there is none.
pub fn torchrun() -> Option<String> {
    let python = std::env::var("VRAMLAB_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", "import torch.distributed.run"]).output();
    if found.is_ok_and(|found| found.status.success()) {
        return Some(python);
    }
    eprintln!("SKIPPED: {python} has no torchrun; name a Python with PyTorch in VRAMLAB_TEST_PYTHON");
    None
}
