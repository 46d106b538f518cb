//! `vramlab guide`: the guide's pages on the terminal.

use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

use clap::Args;
use color_eyre::eyre::Result;

use super::spec::themes;
use super::{Status, Usage, config};
use crate::drawing::theme::{ColorTier, Theme, Token};
use crate::guide::{self, Line, Role, plain};

/// Characters of a line without a terminal, and the most on one.
const WIDTH: usize = 100;
/// The narrowest width that a page is laid out for.
const NARROWEST: usize = 40;

/// Arguments of `vramlab guide`.
#[derive(Debug, Args)]
pub(super) struct GuideArgs {
    /// The page, such as switches or amp [default: the list of all pages].
    #[arg(value_name = "PAGE")]
    page: Option<String>,
    /// List the names of all pages, one per line.
    #[arg(long, conflicts_with = "page")]
    list: bool,
}

/// Prints a page; on a terminal that is too short for it, through a pager.
pub(super) fn run(args: &GuideArgs) -> Result<Status> {
    if args.list {
        return list();
    }
    let page = guide::page(args.page.as_deref().unwrap_or(guide::CONTENTS)).map_err(Usage)?;
    let (columns, rows) = crossterm::terminal::size().unwrap_or((80, 24));
    if !io::stdout().is_terminal() {
        let text = plain(&guide::lines(page.text, WIDTH));
        io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(Status::DONE);
    }
    let lines = guide::lines(page.text, usize::from(columns).clamp(NARROWEST, WIDTH));
    let text = theme().map_or_else(|| plain(&lines), |theme| dressed(&lines, &theme));
    if lines.len() < usize::from(rows) || !paged(&text) {
        io::stdout().lock().write_all(text.as_bytes())?;
    }
    Ok(Status::DONE)
}

fn list() -> Result<Status> {
    let mut out = io::stdout().lock();
    let widest = guide::pages().iter().map(|page| page.name.len()).max().unwrap_or(0);
    for page in guide::pages() {
        writeln!(out, "{:widest$}  {}", page.name, page.title())?;
    }
    Ok(Status::DONE)
}

/// The theme of the settings; else the theme of the terminal's own colours, which are readable on any background.
fn theme() -> Option<Theme> {
    let settings = config::settings().config;
    let variable = |name: &str| std::env::var(name).ok();
    let tier = settings.color.and_then(config::ColorArg::tier).unwrap_or_else(|| ColorTier::detect(variable));
    let themes = themes();
    let own = settings.theme.filter(|name| name != "auto").and_then(|name| themes.load(&name, tier).ok());
    own.or_else(|| themes.load("terminal", tier).ok()).map(|(theme, _)| theme)
}

fn dressed(lines: &[Line], theme: &Theme) -> String {
    let mut out = String::new();
    for line in lines {
        for (role, text) in line {
            match token(*role) {
                Some(token) => out.push_str(&crate::drawing::wire::dressed(text, theme.style(token))),
                None => out.push_str(text),
            }
        }
        out.push('\n');
    }
    out
}

/// The style of a part of a page; ordinary text keeps the terminal's.
const fn token(role: Role) -> Option<Token> {
    match role {
        Role::Text => None,
        Role::Heading => Some(Token::Title),
        Role::Strong => Some(Token::Strong),
        Role::Code => Some(Token::Key),
        Role::Link => Some(Token::Accent),
        Role::Rule => Some(Token::Border),
    }
}

/// Passes the text to the environment's pager, else to `less`; false if there is none.
fn paged(text: &str) -> bool {
    let pager = std::env::var("PAGER").ok().filter(|pager| !pager.trim().is_empty());
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(pager.as_deref().unwrap_or("less")).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // `less` passes colours, exits at once on a short page, and leaves the page on screen.
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut pipe) = child.stdin.take() {
        // The reader may leave the pager early.
        let _ = pipe.write_all(text.as_bytes());
    }
    // The shell's code for a program that does not exist.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dressed_reads_as_it_is() {
        let lines = guide::lines("# A\n\nb `c`\n", 40);
        let (theme, _) = themes().load("terminal", ColorTier::Ansi).unwrap();
        let text = dressed(&lines, &theme);
        assert!(text.contains("\x1b[") && text.ends_with("\x1b[m\n"), "{text:?}");
        let mut terminal = vt100::Parser::new(5, 40, 0);
        terminal.process(text.replace('\n', "\r\n").as_bytes());
        assert_eq!(terminal.screen().contents().trim_end(), plain(&lines).trim_end());
    }
}
