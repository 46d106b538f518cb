//! The graphs of a process.

use std::collections::BTreeMap;

/// The first handle of graphs and of executable graphs.
const FIRST: u64 = 0x5200_0000_0000;

/// Captured graphs, and executable graphs made from them.
#[derive(Debug, Default)]
pub struct Graphs {
    /// The number of launches by handle.
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

    /// The number of a graph's launches.
    pub fn launches(&self, graph: u64) -> Option<u64> {
        self.known.get(&graph).copied()
    }

    /// Removes a graph; false if it does not exist.
    pub fn remove(&mut self, graph: u64) -> bool {
        self.known.remove(&graph).is_some()
    }

    /// Adds launches that were captured.
    pub fn recorded(&mut self, graph: u64, launches: u64) {
        self.known.insert(graph, launches);
    }
}
