//! Decodes a terminal's bytes into keys, mouse events and pastes.
//!
//! Sequences are delimited as in ECMA-48, known or not, and unknown ones are dropped as a whole. An unfinished sequence
//! is dropped after [`Decoder::patience`], or at once by a byte that can't belong to it, so that `q` and Ctrl-C always
//! get through.

use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

/// How long the rest of a sequence may take: longer than on a slow link, shorter than between a person's keys.
const SEQUENCE: Duration = Duration::from_millis(100);
/// How long after `Esc` a key may come and still form one key with it: terminals send both at once, people do not.
const ALONE: Duration = Duration::from_millis(50);
/// How long a paste may pause.
const PASTE: Duration = Duration::from_millis(400);
/// The longest sequence, including strings such as a terminal's answers. No meaningful one is longer.
const LONGEST_SEQUENCE: usize = 1024;
/// How many bytes of a paste are kept.
const LONGEST_PASTE: usize = 64 * 1024;
const PASTE_ENDS: &[u8] = b"\x1b[201~";
const ESCAPE: u8 = 0x1b;

/// The bytes that don't form an event yet.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// The paste in progress.
    paste: Option<Vec<u8>>,
}

/// The meaning of the first bytes.
enum DecodedKeys {
    /// This many bytes form an event, or mean nothing.
    Done(usize, Option<Event>),
    /// This many bytes begin a paste.
    Paste(usize),
    /// The beginning of a sequence.
    Partial,
}

impl Decoder {
    /// Takes bytes, and returns the events that they complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.bytes.extend_from_slice(bytes);
        let mut events = Vec::new();
        let mut used = 0;
        while let Some(left) = self.bytes.get(used..).filter(|left| !left.is_empty()) {
            if let Some(paste) = &mut self.paste {
                let (taken, ended) = take_paste(left, paste);
                used += taken;
                if !ended {
                    break;
                }
                events.extend(self.end_paste());
                continue;
            }
            match step(left) {
                DecodedKeys::Done(n, event) => {
                    used += n;
                    events.extend(event);
                }
                DecodedKeys::Paste(n) => {
                    used += n;
                    self.paste = Some(Vec::new());
                }
                DecodedKeys::Partial if left.len() > LONGEST_SEQUENCE => used = self.bytes.len(),
                DecodedKeys::Partial => break,
            }
        }
        self.bytes.drain(..used);
        events
    }

    /// How long to wait for the rest of an unfinished sequence, if there is one.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        match (&self.paste, self.bytes.is_empty()) {
            (Some(_), _) => Some(PASTE),
            (None, false) if self.bytes == [ESCAPE] => Some(ALONE),
            (None, false) => Some(SEQUENCE),
            (None, true) => None,
        }
    }

    /// Decodes an unfinished sequence as far as possible, and starts again.
    pub fn settle(&mut self) -> Option<Event> {
        let bytes = std::mem::take(&mut self.bytes);
        if self.paste.is_some() {
            return self.end_paste();
        }
        match *bytes {
            [ESCAPE] => Some(key(KeyCode::Esc, KeyModifiers::NONE)),
            // Alt with `[`, which also begins sequences.
            [ESCAPE, symbol @ 0x20..=0x7e] => Some(character(char::from(symbol), KeyModifiers::ALT)),
            _ => None,
        }
    }

    fn end_paste(&mut self) -> Option<Event> {
        self.paste.take().map(|text| Event::Paste(String::from_utf8_lossy(&text).into_owned()))
    }
}

/// Moves the text before the end of a paste. Returns how many bytes were used, and whether the end was found.
fn take_paste(bytes: &[u8], paste: &mut Vec<u8>) -> (usize, bool) {
    let end = bytes.windows(PASTE_ENDS.len()).position(|window| window == PASTE_ENDS);
    let begins_end = |from: &usize| PASTE_ENDS.starts_with(&bytes[*from..]);
    let text = end.unwrap_or_else(|| {
        let last = bytes.len().saturating_sub(PASTE_ENDS.len() - 1);
        (last..bytes.len()).find(begins_end).unwrap_or(bytes.len())
    });
    let room = LONGEST_PASTE.saturating_sub(paste.len());
    paste.extend_from_slice(&bytes[..text.min(room)]);
    (if end.is_some() { text + PASTE_ENDS.len() } else { text }, end.is_some())
}

fn step(bytes: &[u8]) -> DecodedKeys {
    match *bytes {
        [ESCAPE] => DecodedKeys::Partial,
        [ESCAPE, b'[', ref rest @ ..] => control_sequence(rest),
        [ESCAPE, b'O'] => DecodedKeys::Partial,
        [ESCAPE, b'O', last, ..] => DecodedKeys::Done(3, cursor_key(last).map(|code| key(code, KeyModifiers::NONE))),
        [ESCAPE, kind @ (b']' | b'P' | b'X' | b'^' | b'_'), ref rest @ ..] => string(kind, rest),
        [ESCAPE, ESCAPE, ..] => DecodedKeys::Done(1, Some(key(KeyCode::Esc, KeyModifiers::NONE))),
        [ESCAPE, ref rest @ ..] => match plain(rest) {
            DecodedKeys::Done(n, event) => DecodedKeys::Done(n + 1, event.map(with_alt)),
            other => other,
        },
        _ => plain(bytes),
    }
}

/// Decodes a character, or a key that sends a control character.
fn plain(bytes: &[u8]) -> DecodedKeys {
    let Some(&first) = bytes.first() else { return DecodedKeys::Partial };
    let done = |event| DecodedKeys::Done(1, Some(event));
    match first {
        b'\r' => done(key(KeyCode::Enter, KeyModifiers::NONE)),
        b'\t' => done(key(KeyCode::Tab, KeyModifiers::NONE)),
        0x7f => done(key(KeyCode::Backspace, KeyModifiers::NONE)),
        0 => done(key(KeyCode::Char(' '), KeyModifiers::CONTROL)),
        0x01..=0x1a => done(key(KeyCode::Char(char::from(first - 1 + b'a')), KeyModifiers::CONTROL)),
        0x1b..=0x1f => done(key(KeyCode::Char(char::from(first - 0x1c + b'4')), KeyModifiers::CONTROL)),
        _ => match std::str::from_utf8(&bytes[..bytes.len().min(4)]) {
            Ok(text) => first_of(text),
            Err(error) if error.valid_up_to() > 0 => {
                first_of(std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default())
            }
            Err(error) => error.error_len().map_or(DecodedKeys::Partial, |wrong| DecodedKeys::Done(wrong, None)),
        },
    }
}

fn first_of(text: &str) -> DecodedKeys {
    text.chars().next().map_or(DecodedKeys::Partial, |symbol| {
        DecodedKeys::Done(symbol.len_utf8(), Some(character(symbol, KeyModifiers::NONE)))
    })
}

/// Decodes a sequence; `rest` follows `ESC [`.
fn control_sequence(rest: &[u8]) -> DecodedKeys {
    const INTRODUCER: usize = 2;
    match *rest {
        // A mouse report in three bytes, which was not requested.
        [b'M', ..] => {
            return if rest.len() < 4 { DecodedKeys::Partial } else { DecodedKeys::Done(INTRODUCER + 4, None) };
        }
        // Function keys of the Linux console.
        [b'['] => return DecodedKeys::Partial,
        [b'[', last, ..] => {
            let function = (b'A'..=b'E').contains(&last).then(|| KeyCode::F(last - b'A' + 1));
            return DecodedKeys::Done(INTRODUCER + 2, function.map(|code| key(code, KeyModifiers::NONE)));
        }
        _ => {}
    }
    let Some(end) = rest.iter().position(|byte| !(0x20..=0x3f).contains(byte)) else { return DecodedKeys::Partial };
    let last = rest[end];
    if !(0x40..=0x7e).contains(&last) {
        // No sequence continues like this, so the byte has a meaning of its own.
        return DecodedKeys::Done(INTRODUCER + end, None);
    }
    let parameters = std::str::from_utf8(&rest[..end]).unwrap_or_default();
    let length = INTRODUCER + end + 1;
    if (parameters, last) == ("200", b'~') {
        return DecodedKeys::Paste(length);
    }
    let event = match parameters.strip_prefix('<') {
        Some(mouse) => mouse_event(mouse, last),
        None => key_event(parameters, last),
    };
    DecodedKeys::Done(length, event)
}

/// Skips a string from the terminal up to its end; none was requested.
fn string(kind: u8, rest: &[u8]) -> DecodedKeys {
    const INTRODUCER: usize = 2;
    for (i, byte) in rest.iter().enumerate() {
        match byte {
            0x07 if kind == b']' => return DecodedKeys::Done(INTRODUCER + i + 1, None),
            &ESCAPE => match rest.get(i + 1) {
                Some(b'\\') => return DecodedKeys::Done(INTRODUCER + i + 2, None),
                Some(_) => return DecodedKeys::Done(INTRODUCER + i, None),
                None => return DecodedKeys::Partial,
            },
            0x00..=0x1f => return DecodedKeys::Done(INTRODUCER + i, None),
            _ => {}
        }
    }
    DecodedKeys::Partial
}

/// Decodes a key that sends `ESC [ parameters last`: which key, modifiers, and whether it was pressed, repeated or released.
fn key_event(parameters: &str, last: u8) -> Option<Event> {
    let mut fields = parameters.split(';');
    let which = fields.next().and_then(|field| field.split(':').next()).unwrap_or_default();
    let mut how = fields.next().unwrap_or_default().split(':').map(|field| field.parse::<u8>().unwrap_or(1));
    let modifiers = modifiers(how.next().unwrap_or(1));
    if how.next() == Some(3) {
        return None;
    }
    let code = match last {
        b'Z' => return Some(key(KeyCode::BackTab, modifiers | KeyModifiers::SHIFT)),
        b'~' => numbered_key(which.parse().ok()?)?,
        b'u' => match char::from_u32(which.parse().ok()?)? {
            '\x1b' => KeyCode::Esc,
            '\r' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x7f' => KeyCode::Backspace,
            // Keys without a character are reported from the private use area.
            symbol if symbol.is_control() || ('\u{e000}'..='\u{f8ff}').contains(&symbol) => return None,
            symbol => return Some(character(symbol, modifiers)),
        },
        // A terminal's report of the cursor position ends in the same way.
        b'R' if !matches!(which, "" | "1") => return None,
        _ => cursor_key(last)?,
    };
    Some(key(code, modifiers))
}

const fn cursor_key(last: u8) -> Option<KeyCode> {
    Some(match last {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'F' => KeyCode::End,
        b'H' => KeyCode::Home,
        b'P'..=b'S' => KeyCode::F(last - b'P' + 1),
        _ => return None,
    })
}

const fn numbered_key(number: u8) -> Option<KeyCode> {
    Some(match number {
        1 | 7 => KeyCode::Home,
        2 => KeyCode::Insert,
        3 => KeyCode::Delete,
        4 | 8 => KeyCode::End,
        5 => KeyCode::PageUp,
        6 => KeyCode::PageDown,
        11..=15 => KeyCode::F(number - 10),
        17..=21 => KeyCode::F(number - 11),
        23..=26 => KeyCode::F(number - 12),
        28 | 29 => KeyCode::F(number - 15),
        31..=34 => KeyCode::F(number - 17),
        _ => return None,
    })
}

/// Decodes modifiers: one plus a bit for each key that is held down.
fn modifiers(mask: u8) -> KeyModifiers {
    let bits = mask.saturating_sub(1);
    [KeyModifiers::SHIFT, KeyModifiers::ALT, KeyModifiers::CONTROL, KeyModifiers::SUPER]
        .into_iter()
        .enumerate()
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .map(|(_, modifier)| modifier)
        .collect()
}

/// Decodes `button ; column ; row`, counted from 1; a release ends in `m`.
fn mouse_event(parameters: &str, last: u8) -> Option<Event> {
    let mut numbers = parameters.split(';').map(|number| number.parse::<u16>().ok());
    let [code, column, row] = [numbers.next()??, numbers.next()??, numbers.next()??];
    let button = match code & 0b11 {
        0 => Some(MouseButton::Left),
        1 => Some(MouseButton::Middle),
        2 => Some(MouseButton::Right),
        _ => None,
    };
    let kind = match (code >> 6, code & 0b10_0000 != 0, button, last) {
        (0, false, Some(button), b'M') => MouseEventKind::Down(button),
        (0, true, Some(button), b'M') => MouseEventKind::Drag(button),
        (0, _, Some(button), b'm') => MouseEventKind::Up(button),
        (0, true, None, _) => MouseEventKind::Moved,
        (1, _, Some(MouseButton::Left), b'M') => MouseEventKind::ScrollUp,
        (1, _, Some(MouseButton::Middle), b'M') => MouseEventKind::ScrollDown,
        _ => return None,
    };
    let held = [(4, KeyModifiers::SHIFT), (8, KeyModifiers::ALT), (16, KeyModifiers::CONTROL)];
    let modifiers = held.into_iter().filter(|(bit, _)| code & bit != 0).map(|(_, modifier)| modifier).collect();
    let [column, row] = [column.saturating_sub(1), row.saturating_sub(1)];
    Some(Event::Mouse(MouseEvent { kind, column, row, modifiers }))
}

const fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
    Event::Key(KeyEvent::new(code, modifiers))
}

fn character(symbol: char, modifiers: KeyModifiers) -> Event {
    let shift = if symbol.is_uppercase() { KeyModifiers::SHIFT } else { KeyModifiers::NONE };
    key(KeyCode::Char(symbol), modifiers | shift)
}

fn with_alt(event: Event) -> Event {
    match event {
        Event::Key(pressed) => key(pressed.code, pressed.modifiers | KeyModifiers::ALT),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(bytes: &[u8]) -> Vec<Event> {
        Decoder::default().feed(bytes)
    }

    fn pressed(code: KeyCode) -> Event {
        key(code, KeyModifiers::NONE)
    }

    fn q() -> Event {
        pressed(KeyCode::Char('q'))
    }

    #[test]
    fn keys_are_what_terminals_send() {
        let with = |code, modifiers| key(code, modifiers);
        for (bytes, event) in [
            ("q", q()),
            ("T", with(KeyCode::Char('T'), KeyModifiers::SHIFT)),
            ("é", pressed(KeyCode::Char('é'))),
            ("\r", pressed(KeyCode::Enter)),
            ("\t", pressed(KeyCode::Tab)),
            ("\x7f", pressed(KeyCode::Backspace)),
            ("\x03", with(KeyCode::Char('c'), KeyModifiers::CONTROL)),
            ("\x1a", with(KeyCode::Char('z'), KeyModifiers::CONTROL)),
            ("\x1c", with(KeyCode::Char('4'), KeyModifiers::CONTROL)),
            ("\0", with(KeyCode::Char(' '), KeyModifiers::CONTROL)),
            ("\x1bq", with(KeyCode::Char('q'), KeyModifiers::ALT)),
            ("\x1b[A", pressed(KeyCode::Up)),
            ("\x1bOB", pressed(KeyCode::Down)),
            ("\x1bOP", pressed(KeyCode::F(1))),
            ("\x1b[[B", pressed(KeyCode::F(2))),
            ("\x1b[15~", pressed(KeyCode::F(5))),
            ("\x1b[1;5C", with(KeyCode::Right, KeyModifiers::CONTROL)),
            ("\x1b[1;2R", with(KeyCode::F(3), KeyModifiers::SHIFT)),
            ("\x1b[6~", pressed(KeyCode::PageDown)),
            ("\x1b[5;3~", with(KeyCode::PageUp, KeyModifiers::ALT)),
            ("\x1b[Z", with(KeyCode::BackTab, KeyModifiers::SHIFT)),
            ("\x1b[113u", q()),
            ("\x1b[99;5u", with(KeyCode::Char('c'), KeyModifiers::CONTROL)),
            ("\x1b[27;1:1u", pressed(KeyCode::Esc)),
        ] {
            assert_eq!(events(bytes.as_bytes()), [event], "{bytes:?}");
        }
    }

    #[test]
    fn the_mouse_is_read_from_its_first_cell_on() {
        let mouse = |bytes: &str| match &*events(bytes.as_bytes()) {
            [Event::Mouse(MouseEvent { kind, column, row, modifiers })] => Some((*kind, *column, *row, *modifiers)),
            _ => None,
        };
        let (left, none) = (MouseButton::Left, KeyModifiers::NONE);
        assert_eq!(mouse("\x1b[<0;91;7M"), Some((MouseEventKind::Down(left), 90, 6, none)));
        assert_eq!(mouse("\x1b[<0;91;7m"), Some((MouseEventKind::Up(left), 90, 6, none)));
        assert_eq!(mouse("\x1b[<32;1;1M"), Some((MouseEventKind::Drag(left), 0, 0, none)));
        assert_eq!(mouse("\x1b[<65;2;3M"), Some((MouseEventKind::ScrollDown, 1, 2, none)));
        assert_eq!(mouse("\x1b[<68;2;3M"), Some((MouseEventKind::ScrollUp, 1, 2, KeyModifiers::SHIFT)));
        assert_eq!(mouse("\x1b[<0;0;0M"), Some((MouseEventKind::Down(left), 0, 0, none)));
        assert_eq!(mouse("\x1b[<0;99999;7M"), None);
    }

    #[test]
    fn what_means_nothing_is_dropped_whole() {
        for bytes in
            ["\x1b[I", "\x1b[?64;1c", "\x1b[24;80R", "\x1b]11;rgb:00/00/00\x07", "\x1bP1$r0m\x1b\\", "\x1b[99;1:3u"]
        {
            assert_eq!(events(format!("{bytes}q").as_bytes()), [q()], "{bytes:?}");
        }
        assert_eq!(events(b"\xff\xfeq\xc3q"), [q(), q()]);
        assert_eq!(events(b"\x1b[M !!q"), [q()]);
    }

    #[test]
    fn no_beginning_of_a_sequence_keeps_quitting_from_coming_through() {
        let beginnings: [&[u8]; 12] = [
            b"\x1b",
            b"\x1b[",
            b"\x1b[<",
            b"\x1b[?",
            b"\x1b[<0;1",
            b"\x1b[200",
            b"\x1b[200~",
            b"\x1bO",
            b"\x1b]0;x",
            b"\x1bPx\x1b",
            b"\x1b[M",
            b"\xc3",
        ];
        for beginning in beginnings {
            let mut decoder = Decoder::default();
            decoder.feed(beginning);
            assert!(decoder.patience().is_some(), "{beginning:?}");
            decoder.settle();
            assert_eq!(decoder.patience(), None);
            assert_eq!(decoder.feed(b"q"), [q()], "{beginning:?}");
        }
        // Ctrl-C never belongs to a sequence.
        for beginning in [&b"\x1b[<"[..], b"\x1b[?1", b"\x1b]0;x", b"\xc3"] {
            let ctrl_c = key(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert_eq!(events(&[beginning, b"\x03"].concat()), [ctrl_c], "{beginning:?}");
        }
        assert_eq!(events(&[&b"\x1b["[..], &[b'0'; 2 * LONGEST_SEQUENCE]].concat()), []);
    }

    #[test]
    fn escape_by_itself_is_a_key_when_nothing_follows() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.feed(b"\x1b"), []);
        assert_eq!(decoder.settle(), Some(pressed(KeyCode::Esc)));
        assert_eq!(decoder.feed(b"\x1b["), []);
        assert_eq!(decoder.settle(), Some(key(KeyCode::Char('['), KeyModifiers::ALT)));
    }

    #[test]
    fn a_paste_is_one_text_however_it_comes() {
        let whole = b"\x1b[200~50%\x1b[A\n\x1b[201~q";
        let expected = [Event::Paste("50%\x1b[A\n".to_owned()), q()];
        assert_eq!(events(whole), expected);
        let mut decoder = Decoder::default();
        let by_bytes: Vec<Event> = whole.iter().flat_map(|byte| decoder.feed(&[*byte])).collect();
        assert_eq!(by_bytes, expected);
        let mut unclosed = Decoder::default();
        assert_eq!(unclosed.feed(b"\x1b[200~8GiB"), []);
        assert_eq!(unclosed.settle(), Some(Event::Paste("8GiB".to_owned())));
        let long = [&b"\x1b[200~"[..], &vec![b'x'; 3 * LONGEST_PASTE], b"\x1b[201~"].concat();
        assert!(matches!(&*events(&long), [Event::Paste(text)] if text.len() == LONGEST_PASTE));
    }

    proptest! {
        /// The meaning of bytes does not depend on how they are cut into pieces.
        #[test]
        fn pieces_do_not_matter(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"\x1b[<?;0129~MmOqu]".to_vec())], 0..80),
            cuts in prop::collection::vec(1usize..9, 1..20),
        ) {
            let mut decoder = Decoder::default();
            let (mut left, mut pieced) = (&bytes[..], Vec::new());
            for cut in cuts.iter().cycle() {
                if left.is_empty() {
                    break;
                }
                let (piece, rest) = left.split_at((*cut).min(left.len()));
                pieced.extend(decoder.feed(piece));
                left = rest;
            }
            prop_assert_eq!(pieced, events(&bytes));
        }
    }
}
