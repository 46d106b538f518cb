//! The messages of a watched program: a JSON head and, if the message is about memory, a part of a snapshot.

use std::io::{self, BufReader, Read};

use serde::Deserialize;

use super::error::WatchError;
use vramlab_snapshot::Snapshot;

/// The first bytes of every message.
const MAGIC: [u8; 4] = *b"VRW1";
/// The longest head. A head contains a command line and the times of steps.
const LONGEST_HEAD: u32 = 4 << 20;
/// The longest body. A ring of events with their stacks takes a few MiB.
const LONGEST_BODY: u32 = 1 << 30;

/// One message.
#[derive(Debug)]
pub enum Message {
    /// The first message, in which the program identifies itself.
    Hello(Hello),
    /// Its allocator's activity since the last message.
    Part(SnapshotPart, Box<Snapshot>),
    /// The program ends, with sentences to report.
    End(Vec<String>),
}

/// The identity of a watched program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Hello {
    /// Its process.
    pub pid: u32,
    /// Its command line.
    pub argv: Vec<String>,
    /// Its rank, if there are several.
    pub rank: Option<u32>,
    /// The number of ranks.
    pub world: Option<u32>,
    /// Its rank among those on this machine: by convention the number of its GPU.
    pub local_rank: Option<usize>,
    /// PyTorch's version (`2.11.0+cu130`).
    pub torch: String,
    /// The names of its GPUs.
    pub device_names: Vec<String>,
    /// The memory of each GPU in bytes.
    pub device_bytes: Vec<u64>,
    /// True if the GPUs don't exist and a stand-in answers for them.
    pub absent: bool,
}

/// The information that accompanies a part of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SnapshotPart {
    /// True if the part contains the segments.
    pub whole: bool,
    /// Unix times at which steps ended, in microseconds.
    pub steps: Vec<u64>,
    /// The share of its memory that each device may use.
    pub limits: Vec<f64>,
    /// The uses of blocks that are alive at the part's end: a device, an address, a use.
    pub labels: Vec<(usize, u64, Use)>,
    /// The GPUs on which the process has a context, by the process's own numbering.
    pub contexts: Vec<usize>,
    /// Microseconds that exchanges with other ranks took in a recent step, including waiting; `None` if unknown.
    pub exchange: Option<u64>,
}

/// A block's use, as the program reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Use {
    /// A parameter of an optimizer.
    #[serde(rename = "p")]
    Parameter,
    /// Its gradient.
    #[serde(rename = "g")]
    Gradient,
    /// The optimizer's state for it.
    #[serde(rename = "o")]
    OptimizerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MessageHead {
    hello: Option<Hello>,
    part: Option<SnapshotPart>,
    end: bool,
    notices: Vec<String>,
}

impl Message {
    /// Reads the next message; `None` at the end.
    ///
    /// # Errors
    /// [`WatchError`] if the stream breaks off or contains something else.
    pub fn read(source: &mut impl Read) -> Result<Option<Self>, WatchError> {
        let mut lengths = [0; 12];
        if !read_or_end(source, &mut lengths)? {
            return Ok(None);
        }
        let [a, b, c, d, e, f, g, h, i, j, k, l] = lengths;
        let (head, body) = (u32::from_le_bytes([e, f, g, h]), u32::from_le_bytes([i, j, k, l]));
        if [a, b, c, d] != MAGIC || head > LONGEST_HEAD || body > LONGEST_BODY {
            return Err(WatchError::Unknown("no message of its kind".to_owned()));
        }
        let mut text = Vec::new();
        source.by_ref().take(u64::from(head)).read_to_end(&mut text).map_err(WatchError::Broken)?;
        if text.len() != head as usize {
            return Err(WatchError::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
        let head: MessageHead =
            serde_json::from_slice(&text).map_err(|error| WatchError::Unknown(error.to_string()))?;
        let mut rest = source.by_ref().take(u64::from(body));
        let message = match head {
            MessageHead { hello: Some(hello), .. } => Some(Self::Hello(hello)),
            MessageHead { part: Some(part), .. } => {
                let snapshot = Snapshot::read(BufReader::new(&mut rest))?;
                Some(Self::Part(part, Box::new(snapshot)))
            }
            MessageHead { end: true, notices, .. } => Some(Self::End(notices)),
            // A message of a later version.
            _ => None,
        };
        // The rest of the body belongs to this message.
        io::copy(&mut rest, &mut io::sink()).map_err(WatchError::Broken)?;
        match message {
            Some(message) => Ok(Some(message)),
            None => Self::read(source),
        }
    }
}

/// Fills `buffer`; false if the stream ends before its first byte.
fn read_or_end(source: &mut impl Read, buffer: &mut [u8]) -> Result<bool, WatchError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(WatchError::Broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(WatchError::Broken(error)),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(head: &str, body: &[u8]) -> Vec<u8> {
        let length = |bytes: usize| u32::try_from(bytes).unwrap().to_le_bytes();
        [&MAGIC[..], &length(head.len()), &length(body.len()), head.as_bytes(), body].concat()
    }

    #[test]
    fn what_a_later_version_says_is_passed_over() {
        let bytes = [
            message(r#"{"hello": {"pid": 7, "rank": 1, "new": 1}}"#, b""),
            message(r#"{"what": 1}"#, b"more of it"),
            message(r#"{"end": true, "notices": ["it read"]}"#, b""),
        ]
        .concat();
        let mut source = &bytes[..];
        assert!(matches!(
            Message::read(&mut source).unwrap(),
            Some(Message::Hello(Hello { pid: 7, rank: Some(1), .. }))
        ));
        assert!(matches!(Message::read(&mut source).unwrap(), Some(Message::End(said)) if said == ["it read"]));
        assert!(Message::read(&mut source).unwrap().is_none());
    }

    #[test]
    fn a_part_is_a_snapshot() {
        // {"device_traces": [[]]}
        let pickle = b"\x80\x04}\x8c\x0ddevice_traces]]as.";
        let bytes = message(
            r#"{"part": {"whole": false, "steps": [5, 9], "limits": [0.5], "labels": [[1, 4096, "g"]], "contexts": [0, 1], "exchange": 7}}"#,
            pickle,
        );
        match Message::read(&mut &bytes[..]).unwrap() {
            Some(Message::Part(part, snapshot)) => {
                let labels = vec![(1, 4096, Use::Gradient)];
                let (steps, contexts, exchange) = (vec![5, 9], vec![0, 1], Some(7));
                let told = SnapshotPart { whole: false, steps, limits: vec![0.5], labels, contexts, exchange };
                assert_eq!(part, told);
                assert_eq!(snapshot.device_count(), 1);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_cut_off_or_no_message_is_an_error() {
        let bytes = message(r#"{"end": true}"#, b"body");
        for length in 1..bytes.len() - 4 {
            assert!(Message::read(&mut &bytes[..length]).is_err(), "{length}");
        }
        assert!(Message::read(&mut &b"VRW1\xff\xff\xff\xff\0\0\0\0"[..]).is_err(), "no head is so long");
        assert!(Message::read(&mut &b"GET / HTTP/1.1\r\n"[..]).is_err());
        assert!(Message::read(&mut &message("nothing", b"")[..]).is_err());
        assert!(Message::read(&mut &message(r#"{"part": {}}"#, b"no pickle")[..]).is_err());
    }
}
