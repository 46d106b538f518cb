//! The `vramlab` binary: see [`vramlab::cli`].

use std::thread;

/// The main thread's stack is as small as `ulimit -s` says, so the program runs on a thread of its own.
const STACK: usize = 8 << 20;

fn main() -> ! {
    vramlab::device::spare_addresses();
    let program = thread::Builder::new().name("vramlab".to_owned()).stack_size(STACK);
    match program.spawn(|| -> () { vramlab::cli::main() }) {
        // It ends the process.
        Ok(program) => drop(program.join()),
        Err(error) => eprintln!("error: the system gives no thread ({error}); end other programs and try again"),
    }
    vramlab::device::process::exit(1)
}
