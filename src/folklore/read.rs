//! Parses claims from TOML; errors name line and column.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::claim::{Claim, ClaimMetric, Need, NotHere, Ruling, Side, Verdict, Work};
use super::formula::Formulas;
use super::program::{self, ProgramLine};
use super::steps::{self, ClaimAction, DataWord, InferenceWord, ModelsWord, Training};
use crate::figures::{Condition, Misread, Quantity, Scope, Template};
use crate::session::Parallel;
use crate::train::Config;
use crate::user_input::{TomlError, TomlText, hint};
use crate::workload::{Catalog, Sizes};

/// A file of claims.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimFile {
    #[serde(default)]
    claim: Vec<RawClaim>,
    #[serde(default)]
    not_here: Vec<RawNotHere>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNotHere {
    name: Spanned<String>,
    claim: String,
    needs: String,
    verdict: Option<Verdict>,
    found: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClaim {
    name: Spanned<String>,
    claim: String,
    said_by: String,
    side: Vec<RawSide>,
    #[serde(default)]
    fixed: bool,
    #[serde(default)]
    figures: Vec<RawFigure>,
    measured: Spanned<String>,
    #[serde(default)]
    needs: Vec<RawNeed>,
    #[serde(default)]
    verdicts: Vec<RawVerdict>,
    otherwise: Verdict,
    reason: Spanned<String>,
    holds: Spanned<String>,
    fails: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFigure {
    name: Spanned<String>,
    is: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNeed {
    when: Spanned<String>,
    otherwise: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVerdict {
    is: Verdict,
    when: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSide {
    name: Spanned<String>,
    /// An earlier side, from which this one differs only in the keys given here.
    like: Option<Spanned<String>>,
    workload: Option<Spanned<String>>,
    data: Option<DataWord>,
    #[serde(default)]
    sizes: Sizes,
    inference: Option<InferenceWord>,
    half: Option<bool>,
    models: Option<ModelsWord>,
    #[serde(default)]
    settings: BTreeMap<String, Spanned<SwitchValue>>,
    #[serde(rename = "do")]
    actions: Option<Vec<Spanned<String>>>,
    parallel: Option<Spanned<String>>,
    ranks: Option<usize>,
    rank: Option<usize>,
    may_run_out: Option<bool>,
    program: Option<Vec<Spanned<String>>>,
}

/// A switch's value.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SwitchValue {
    Text(String),
    Number(u64),
}

/// The claims of a text.
#[derive(Debug)]
pub(super) struct Claims {
    /// Claims that can be run.
    pub claims: Vec<Claim>,
    /// Claims that can't be run here.
    pub not_here: Vec<NotHere>,
}

/// Parses all claims of a text.
///
/// # Errors
/// What is wrong, with line and column.
pub(super) fn read(text: &TomlText, workloads: &Catalog, users_own: bool) -> Result<Claims, TomlError> {
    let file: ClaimFile = text.parse()?;
    let reader = ClaimReader { text, workloads, users_own };
    let mut claims: Vec<Claim> = Vec::new();
    for raw in file.claim {
        if claims.iter().any(|known| known.name == *raw.name.get_ref()) {
            return Err(reader.wrong(&raw.name, 0, format!("there is a claim '{}' already", raw.name.get_ref())));
        }
        claims.push(reader.claim(raw)?);
    }
    let mut not_here: Vec<NotHere> = Vec::new();
    for raw in file.not_here {
        let name = reader.name(&raw.name, &['-'])?;
        if claims.iter().any(|known| known.name == name) || not_here.iter().any(|known| known.name == name) {
            return Err(reader.wrong(&raw.name, 0, format!("there is a claim '{name}' already")));
        }
        let RawNotHere { claim, needs, verdict, found, .. } = raw;
        not_here.push(NotHere { name, claim, needs, verdict, found });
    }
    Ok(Claims { claims, not_here })
}

struct ClaimReader<'a> {
    text: &'a TomlText,
    workloads: &'a Catalog,
    users_own: bool,
}

impl ClaimReader<'_> {
    fn wrong<T>(&self, at: &Spanned<T>, within: usize, reason: impl Into<String>) -> TomlError {
        self.text.malformed(at.span(), within, reason)
    }

    fn claim(&self, raw: RawClaim) -> Result<Claim, TomlError> {
        let name = self.name(&raw.name, &['-'])?;
        let mut sides: Vec<Side> = Vec::new();
        let mut marks: Vec<String> = Vec::new();
        if raw.side.is_empty() {
            return Err(self.wrong(&raw.name, 0, "a claim needs a side at least: what is run"));
        }
        for raw in raw.side {
            let at = raw.name.span();
            let side = self.side(raw, &sides)?;
            for mark in side.marks() {
                if marks.iter().any(|known| known == mark) {
                    return Err(self.text.malformed(at, 0, format!("'{mark}' is the name of something before")));
                }
                marks.push(mark.to_owned());
            }
            sides.push(side);
        }
        let marks: Vec<&str> = marks.iter().map(String::as_str).collect();
        let mut formulas = Formulas::default();
        let scope = Scope { marks: &marks, now: false };
        let mut figures = Vec::new();
        for RawFigure { name, is } in raw.figures {
            let own = self.name(&name, &[])?;
            if formulas.has(&own) {
                return Err(self.wrong(&name, 0, format!("there is a figure '{own}' already")));
            }
            let quantity = self.expression(&is, &formulas, |text| Quantity::parse(text, &scope))?;
            formulas.add(&own, quantity.to_string());
            figures.push(ClaimMetric { name: own, quantity });
        }
        let condition =
            |when: &Spanned<String>| self.expression(when, &formulas, |text| Condition::parse(text, &scope));
        let need = |need: RawNeed| Ok(Need { when: condition(&need.when)?, otherwise: need.otherwise });
        let ruling = |verdict: RawVerdict| {
            let when = condition(&verdict.when)?;
            Ok(Ruling { is: verdict.is, when })
        };
        let template = |text: &Spanned<String>| self.expression(text, &formulas, |text| Template::parse(text, &scope));
        Ok(Claim {
            name,
            claim: raw.claim,
            said_by: raw.said_by,
            figures,
            measured: template(&raw.measured)?,
            needs: raw.needs.into_iter().map(need).collect::<Result<_, TomlError>>()?,
            verdicts: raw.verdicts.into_iter().map(ruling).collect::<Result<_, TomlError>>()?,
            otherwise: raw.otherwise,
            reason: template(&raw.reason)?,
            holds: template(&raw.holds)?,
            fails: template(&raw.fails)?,
            sides,
            fixed: raw.fixed,
            users_own: self.users_own,
        })
    }

    /// Checks a name: letters, digits, underscores and the characters in `also`, with a letter first.
    fn name(&self, given: &Spanned<String>, also: &[char]) -> Result<String, TomlError> {
        let name = given.get_ref();
        let right = name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || also.contains(&c));
        if right {
            return Ok(name.clone());
        }
        let more = if also.is_empty() { "" } else { " or hyphens" };
        let reason = format!("'{name}' is no name; use small letters, digits and underscores{more}, a letter first");
        Err(self.wrong(given, 0, reason))
    }

    /// Parses an expression, or a text with figures.
    fn expression<T>(
        &self,
        given: &Spanned<String>,
        formulas: &Formulas,
        parse: impl FnOnce(&str) -> Result<T, Misread>,
    ) -> Result<T, TomlError> {
        let misread = |misread: Misread| self.wrong(given, misread.offset, misread.reason);
        let expanded = formulas.expand(given.get_ref()).map_err(misread)?;
        parse(&expanded.text).map_err(|misread| self.wrong(given, expanded.origin(misread.offset), misread.reason))
    }

    fn side(&self, raw: RawSide, before: &[Side]) -> Result<Side, TomlError> {
        let name = self.name(&raw.name, &[])?;
        let trains = raw.workload.is_some() || raw.like.is_some();
        let work = match (&raw.program, trains) {
            (Some(_), true) => {
                return Err(self.wrong(&raw.name, 0, "a side trains a workload or runs a program; give one of them"));
            }
            (Some(lines), false) => Work::Program(self.program(lines)?),
            (None, true) => Work::Training(Box::new(self.training(&raw, before)?)),
            (None, false) => {
                return Err(self.wrong(&raw.name, 0, "a side needs a workload, a side that it is like, or a program"));
            }
        };
        Ok(Side { name, work })
    }

    fn program(&self, lines: &[Spanned<String>]) -> Result<Vec<ProgramLine>, TomlError> {
        let read = |line: &Spanned<String>| {
            let request = ProgramLine::parse(line.get_ref()).map_err(|reason| self.wrong(line, 0, reason))?;
            self.mark(request.mark(), line.span())?;
            Ok(request)
        };
        let requests = lines.iter().map(read).collect::<Result<Vec<_>, TomlError>>()?;
        program::check(&requests).map_err(|(index, reason)| self.wrong(&lines[index], 0, reason))?;
        Ok(requests)
    }

    /// Checks that expressions can name a mark.
    fn mark(&self, mark: Option<&str>, at: Range<usize>) -> Result<(), TomlError> {
        let wrong = |c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_';
        match mark {
            Some(mark) if mark.contains(wrong) || !mark.starts_with(|c: char| c.is_ascii_lowercase()) => Err(self
                .text
                .malformed(at, 0, format!("'{mark}' is no name; use small letters, digits and underscores"))),
            _ => Ok(()),
        }
    }

    fn training(&self, raw: &RawSide, before: &[Side]) -> Result<Training, TomlError> {
        let like = raw.like.as_ref().map(|like| self.like(like, before)).transpose()?;
        let workload = match (&raw.workload, like) {
            (Some(workload), _) => self.workload(workload)?,
            (None, Some(like)) => like.workload.clone(),
            (None, None) => return Err(self.wrong(&raw.name, 0, "a side needs a workload")),
        };
        let actions = match (&raw.actions, like) {
            (Some(actions), _) => self.actions(actions)?,
            // Marks are not copied from the other side: each can be set only once.
            (None, Some(like)) => {
                like.actions.iter().filter(|action| !matches!(action, ClaimAction::Mark(_))).cloned().collect()
            }
            (None, None) => return Err(self.wrong(&raw.name, 0, "`do` is missing: such as do = [\"steps 6\"]")),
        };
        let mut settings = like.map(|like| like.settings.clone()).unwrap_or_default();
        for (word, value) in &raw.settings {
            let switch = steps::switch(word).map_err(|reason| self.wrong(value, 0, reason))?;
            let text = match value.get_ref() {
                SwitchValue::Text(text) => text.clone(),
                SwitchValue::Number(number) => number.to_string(),
            };
            steps::check(switch, &text, &Config::new(1)).map_err(|reason| self.wrong(value, 0, reason))?;
            settings.retain(|(known, _)| *known != switch);
            settings.push((switch, text));
        }
        let way =
            raw.parallel.as_ref().map(|way| way.get_ref().parse().map_err(|reason: String| self.wrong(way, 0, reason)));
        let of_like = like.and_then(|like| like.parallel);
        let ranks = raw.ranks.or(of_like.map(|like| like.ranks)).unwrap_or(2);
        let parallelism = way.transpose()?.or(of_like.map(|like| like.parallelism));
        Ok(Training {
            parallel: parallelism.map(|parallelism| Parallel { parallelism, ranks }),
            rank: raw.rank.or_else(|| Some(like?.rank)).unwrap_or_default(),
            workload,
            data: raw.data.or_else(|| like?.data),
            sizes: like.map_or(raw.sizes, |like| raw.sizes.or(like.sizes)),
            inference: raw.inference.or_else(|| like?.inference),
            half: raw.half.or_else(|| Some(like?.half)).unwrap_or(false),
            models: raw.models.or_else(|| Some(like?.models)).unwrap_or_default(),
            settings,
            actions,
            may_run_out: raw.may_run_out.or_else(|| Some(like?.may_run_out)).unwrap_or(false),
        })
    }

    fn like<'s>(&self, like: &Spanned<String>, before: &'s [Side]) -> Result<&'s Training, TomlError> {
        let name = like.get_ref();
        let found = before.iter().find(|side| side.name == *name).map(|side| &side.work);
        match found {
            Some(Work::Training(training)) => Ok(training),
            Some(Work::Program(_)) => Err(self.wrong(like, 0, format!("'{name}' trains nothing"))),
            None => {
                let meant = hint(name, before.iter().map(|side| side.name.as_str()));
                Err(self.wrong(like, 0, format!("no side before this one is called '{name}'{meant}")))
            }
        }
    }

    fn workload(&self, given: &Spanned<String>) -> Result<String, TomlError> {
        let name = given.get_ref();
        if self.workloads.names().any(|known| known == name) {
            return Ok(name.clone());
        }
        let meant = hint(name, self.workloads.names());
        Err(self.wrong(given, 0, format!("there is no workload '{name}'{meant}; `vramlab list` has them")))
    }

    fn actions(&self, given: &[Spanned<String>]) -> Result<Vec<ClaimAction>, TomlError> {
        let read = |text: &Spanned<String>| {
            let action = ClaimAction::parse(text.get_ref()).map_err(|reason| self.wrong(text, 0, reason))?;
            if let ClaimAction::Mark(mark) = &action {
                self.mark(Some(mark), text.span())?;
            }
            Ok(action)
        };
        given.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "[[claim]]\nname = 'a-b'\nclaim = 'c'\nsaid_by = 's'\notherwise = 'false'\nreason = ''\nholds = ''\nfails = ''\n";

    fn read_text(text: &str) -> Result<Vec<Claim>, TomlError> {
        let text = TomlText::built_in(text.to_owned().into());
        read(&text, &Catalog::with_user_workloads(None), false).map(|read| read.claims)
    }

    fn with(rest: &str) -> Result<Vec<Claim>, TomlError> {
        read_text(&format!("{HEAD}{rest}"))
    }

    #[test]
    fn a_claim_is_read_and_a_side_may_be_like_another() {
        let claims = with(
            "measured = '{$saved:%}'\nfigures = [{ name = 'saved', is = '1 - b.peak_allocated / a.peak_allocated' }]\n\
             verdicts = [{ is = 'true', when = '$saved > 10 %' }]\n\
             side = [{ name = 'a', workload = 'gpt-mini', settings = { batch = 8 }, do = ['steps 2', 'mark m'] },\n\
             { name = 'b', like = 'a', settings = { amp = 'fp16' } }]",
        )
        .unwrap();
        let Work::Training(b) = &claims[0].sides[1].work else { panic!("it trains") };
        assert_eq!(b.settings.len(), 2);
        assert_eq!(b.actions, [ClaimAction::Steps(2)]);
        assert_eq!(claims[0].sides[0].marks().collect::<Vec<_>>(), ["m", "a"]);
        let run = "vramlab run gpt-mini --device sim:h200 --batch 8 --amp fp16 --steps 2";
        assert_eq!(claims[0].sides[1].commands("sim:h200")[0], run);
        assert_eq!(claims[0].verdicts[0].when.to_string(), "1 - b.peak_allocated / a.peak_allocated > 10 %");
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_column_and_what_was_meant() {
        let side = "side = [{ name = 'a', workload = 'gpt-mini', do = ['steps 2'] }]\n";
        for (text, line, column, words) in [
            ("measured = 'x {a.reservd}'\n", 10, 18, "did you mean \"reserved\""),
            ("measured = ''\nfigures = [{ name = 'x', is = 'b.reserved' }]\n", 11, 32, "nothing is marked as 'b'"),
            ("measured = ''\nverdicts = [{ is = 'true', when = '1 < $y' }]\n", 11, 40, "no figure 'y'"),
            ("measured = ''\nverdicts = [{ is = 'maybe', when = '1 < 2' }]\n", 11, 20, "unknown variant"),
        ] {
            let wrong = with(&format!("{side}{text}")).unwrap_err();
            assert_eq!((wrong.line(), wrong.column()), (line, column), "{wrong}");
            assert!(wrong.reason().contains(words), "{wrong}");
        }
        for (side, words) in [
            ("{ name = 'a', workload = 'gpt-minni', do = ['steps 2'] }", "did you mean \"gpt-mini\""),
            ("{ name = 'a', workload = 'gpt-mini', do = ['step 2'] }", "no action"),
            ("{ name = 'a', workload = 'gpt-mini' }", "`do` is missing"),
            ("{ name = 'a', workload = 'gpt-mini', settings = { ampp = 'fp16' }, do = [] }", "did you mean \"amp\""),
            ("{ name = 'a', workload = 'gpt-mini', settings = { amp = 'fp8' }, do = [] }", "none of them"),
            ("{ name = 'a', like = 'b' }", "no side before"),
            ("{ name = 'a', program = ['free x'] }", "nothing is called x"),
            ("{ name = 'a', program = ['grow x'] }", "no request"),
            ("{ name = 'a', program = ['mark A b'] }", "no request"),
            ("{ name = 'a', program = ['mark A'] }", "no name"),
            ("{ name = 'a' }", "needs a workload"),
            ("{ name = 'A', program = [] }", "no name"),
            ("{ name = 'a', program = ['mark a'] }", "the name of something before"),
        ] {
            let wrong = with(&format!("measured = ''\nside = [{side}]\n")).unwrap_err();
            assert!(wrong.reason().contains(words), "{side}: {wrong}");
            assert_eq!(wrong.line(), 10, "{side}: {wrong}");
        }
        assert!(with("measured = ''\nside = []\n").unwrap_err().reason().contains("a side at least"));
    }
}
