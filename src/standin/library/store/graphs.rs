//! The graphs of a process.

use std::collections::BTreeMap;

/// Handles of graphs and of what is made of them.
const FIRST: u64 = 0x5200_0000_0000;

/// What was recorded or made of it.
#[derive(Debug, Default)]
pub struct Graphs {
    /// Launches by handle, of graphs and executable ones.
    known: BTreeMap<u64, u64>,
    count: u64,
}

impl Graphs {
    /// An empty graph.
    pub fn make(&mut self) -> u64 {
        self.count += 1;
        let handle = FIRST + self.count * 256;
        self.known.insert(handle, 0);
        handle
    }

    /// The launches that a graph stands for.
    pub fn launches(&self, graph: u64) -> Option<u64> {
        self.known.get(&graph).copied()
    }

    /// Takes one away; false where there is none.
    pub fn remove(&mut self, graph: u64) -> bool {
        self.known.remove(&graph).is_some()
    }

    /// So many launches were recorded.
    pub fn recorded(&mut self, graph: u64, launches: u64) {
        self.known.insert(graph, launches);
    }
}
