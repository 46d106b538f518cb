//! Parses expressions, and rejects those whose units make no sense.

use super::algebra;
use super::expression::{Condition, Function, Operation, Quantity, Relation, Term, Test};
use super::table::Figure;
use super::token::{KEYWORDS, Misread, Token, tokens};
use super::unit::FigureUnit;
use crate::user_input::hint;

/// The longest expression, in bytes: no person writes a longer one.
const LONGEST: usize = 2000;
/// The deepest nesting of parentheses and signs.
const DEEPEST: usize = 64;

/// The moments that an expression may name.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The known marks: `before` in `before.reserved`.
    pub marks: &'a [&'a str],
    /// Whether a name without a mark means the current figure; if not, every name needs a mark.
    pub now: bool,
}

impl Scope<'_> {
    /// The current figures only.
    pub const NOW: Self = Self { marks: &[], now: true };
}

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// What is wrong, with its place.
    pub fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Misread> {
        match read(text, scope)? {
            ParsedPart::Test(test) => Ok(Self(test)),
            ParsedPart::Term(..) => {
                Err(Misread::new(0, "a condition is wanted, and this is a quantity; compare it with another: <, >, =="))
            }
        }
    }
}

impl Quantity {
    /// Parses a quantity.
    ///
    /// # Errors
    /// What is wrong, with its place.
    pub fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Misread> {
        match read(text, scope)? {
            ParsedPart::Term(term, unit) => Ok(Self { term, unit }),
            ParsedPart::Test(_) => {
                Err(Misread::new(0, "a quantity is wanted, and this is a condition; leave the comparison out"))
            }
        }
    }
}

/// A parsed expression, or a part of one.
enum ParsedPart {
    Term(Term, FigureUnit),
    Test(Test),
}

fn read(text: &str, scope: &Scope<'_>) -> Result<ParsedPart, Misread> {
    if text.len() > LONGEST {
        return Err(Misread::new(0, format!("an expression of more than {LONGEST} bytes; shorten it")));
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0, end: text.len(), depth: 0, scope };
    let whole = parser.or()?;
    match parser.peek() {
        None => Ok(whole),
        Some(Token::Sign("=")) => Err(parser.here("equality is written ==")),
        Some(Token::Sign("<" | "<=" | ">" | ">=" | "==" | "!=")) => {
            Err(parser.here("a comparison has two sides; join two comparisons with `and`"))
        }
        Some(token) => Err(parser.here(format!("nothing can follow here, and {} does", shown(token)))),
    }
}

struct Parser<'a, 's> {
    tokens: Vec<(usize, Token<'a>)>,
    next: usize,
    /// The end of the text.
    end: usize,
    depth: usize,
    scope: &'s Scope<'s>,
}

impl<'a> Parser<'a, '_> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.next).map(|(_, token)| *token)
    }

    fn offset(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(offset, _)| *offset)
    }

    fn here(&self, reason: impl Into<String>) -> Misread {
        Misread::new(self.offset(), reason)
    }

    /// Consumes the next token if it is this one.
    fn takes(&mut self, token: Token<'_>) -> bool {
        let is = self.peek() == Some(token);
        self.next += usize::from(is);
        is
    }

    fn wants(&mut self, sign: &'static str) -> Result<(), Misread> {
        if self.takes(Token::Sign(sign)) {
            return Ok(());
        }
        Err(match self.peek() {
            Some(token) => self.here(format!("'{sign}' is missing before {}", shown(token))),
            None => self.here(format!("'{sign}' is missing at the end")),
        })
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Misread>) -> Result<T, Misread> {
        if self.depth == DEEPEST {
            return Err(self.here(format!("more than {DEEPEST} parentheses and signs in one another; simplify")));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn or(&mut self) -> Result<ParsedPart, Misread> {
        let start = self.offset();
        let mut left = self.and()?;
        while self.takes(Token::Word("or")) {
            let at = self.offset();
            let right = self.and()?;
            left = ParsedPart::Test(Test::Or(Box::new(test(left, start)?), Box::new(test(right, at)?)));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<ParsedPart, Misread> {
        let start = self.offset();
        let mut left = self.not()?;
        while self.takes(Token::Word("and")) {
            let at = self.offset();
            let right = self.not()?;
            left = ParsedPart::Test(Test::And(Box::new(test(left, start)?), Box::new(test(right, at)?)));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<ParsedPart, Misread> {
        if !self.takes(Token::Word("not")) {
            return self.comparison();
        }
        let at = self.offset();
        let inner = self.deeper(Self::not)?;
        Ok(ParsedPart::Test(Test::Not(Box::new(test(inner, at)?))))
    }

    fn comparison(&mut self) -> Result<ParsedPart, Misread> {
        let start = self.offset();
        let left = self.sum()?;
        let at = self.offset();
        if self.takes(Token::Word("within")) {
            let (measured, unit) = term(left, start)?;
            let from = self.offset();
            let (tolerance, allowed) = self.sum().and_then(|read| term(read, from))?;
            if !self.takes(Token::Word("of")) {
                return Err(self.here("`of` is missing: write a within 5 % of b"));
            }
            let from = self.offset();
            let (of, other) = self.sum().and_then(|read| term(read, from))?;
            same(unit, other, at, "compared")?;
            let relative = allowed == FigureUnit::Share || (!unit.is_bare() && allowed.is_bare());
            if !relative {
                same(unit, allowed, at, "compared")?;
            }
            return Ok(ParsedPart::Test(Test::Within { measured, tolerance, of, relative }));
        }
        let relation = Relation::ALL.into_iter().find(|relation| self.takes(Token::Sign(relation.sign())));
        let Some(relation) = relation else { return Ok(left) };
        let (left, unit) = term(left, start)?;
        let from = self.offset();
        let (right, other) = self.sum().and_then(|read| term(read, from))?;
        same(unit, other, at, "compared")?;
        Ok(ParsedPart::Test(Test::Compare(relation, left, right)))
    }

    fn sum(&mut self) -> Result<ParsedPart, Misread> {
        let start = self.offset();
        let mut left = self.product()?;
        loop {
            let at = self.offset();
            let operation = match self.peek() {
                Some(Token::Sign("+")) => Operation::Plus,
                Some(Token::Sign("-")) => Operation::Minus,
                _ => return Ok(left),
            };
            self.next += 1;
            let (a, unit) = term(left, start)?;
            let from = self.offset();
            let (b, other) = self.product().and_then(|read| term(read, from))?;
            let unit = same(unit, other, at, if operation == Operation::Plus { "added" } else { "subtracted" })?;
            left = ParsedPart::Term(Term::Binary(operation, Box::new(a), Box::new(b)), unit);
        }
    }

    fn product(&mut self) -> Result<ParsedPart, Misread> {
        let start = self.offset();
        let mut left = self.unary()?;
        loop {
            let at = self.offset();
            let (operation, units): (_, fn(FigureUnit, FigureUnit) -> Option<FigureUnit>) = match self.peek() {
                Some(Token::Sign("*")) => (Operation::Times, algebra::product),
                Some(Token::Sign("/")) => (Operation::Over, algebra::quotient),
                _ => return Ok(left),
            };
            self.next += 1;
            let (a, unit) = term(left, start)?;
            let from = self.offset();
            let (b, other) = self.unary().and_then(|read| term(read, from))?;
            let Some(unit) = units(unit, other) else {
                let (a, b, sign) = (unit.label(), other.label(), operation.sign());
                return Err(Misread::new(at, format!("{a} {sign} {b} means nothing here")));
            };
            left = ParsedPart::Term(Term::Binary(operation, Box::new(a), Box::new(b)), unit);
        }
    }

    fn unary(&mut self) -> Result<ParsedPart, Misread> {
        if !self.takes(Token::Sign("-")) {
            return self.primary();
        }
        let at = self.offset();
        let (inner, unit) = self.deeper(Self::unary).and_then(|read| term(read, at))?;
        Ok(ParsedPart::Term(Term::Negative(Box::new(inner)), unit))
    }

    fn primary(&mut self) -> Result<ParsedPart, Misread> {
        let token = self.peek();
        match token {
            Some(Token::Number(number, scale)) => {
                self.next += 1;
                Ok(ParsedPart::Term(Term::Literal(number, scale), scale.unit()))
            }
            Some(Token::Sign("(")) => {
                self.next += 1;
                let inner = self.deeper(Self::or)?;
                self.wants(")")?;
                Ok(inner)
            }
            Some(Token::Word(word)) => match Function::named(word) {
                Some(function) => self.call(function),
                None if KEYWORDS.contains(&word) => {
                    Err(self.here(format!("a figure or a number is missing before `{word}`")))
                }
                None => self.name(word),
            },
            Some(token) => Err(self.here(format!("a figure or a number is missing before {}", shown(token)))),
            None => Err(self.here("a figure or a number is missing at the end")),
        }
    }

    fn call(&mut self, function: Function) -> Result<ParsedPart, Misread> {
        let start = self.offset();
        self.next += 1;
        self.wants("(")?;
        let mut arguments = Vec::new();
        let mut unit = None;
        loop {
            let at = self.offset();
            let (argument, own) = self.deeper(Self::sum).and_then(|read| term(read, at))?;
            unit = Some(unit.map_or(Ok(own), |unit| same(unit, own, at, "compared"))?);
            arguments.push(argument);
            if !self.takes(Token::Sign(",")) {
                break;
            }
        }
        self.wants(")")?;
        let right = if function == Function::Abs { arguments.len() == 1 } else { arguments.len() >= 2 };
        match unit.filter(|_| right) {
            Some(unit) => Ok(ParsedPart::Term(Term::Call(function, arguments), unit)),
            None if function == Function::Abs => Err(Misread::new(start, "abs takes one quantity")),
            None => Err(Misread::new(start, format!("{} takes two quantities or more", function.word()))),
        }
    }

    /// A figure, with or without a mark.
    fn name(&mut self, first: &'a str) -> Result<ParsedPart, Misread> {
        let start = self.offset();
        self.next += 1;
        let mark = if self.takes(Token::Sign(".")) {
            if !self.scope.marks.contains(&first) {
                let meant = hint(first, self.scope.marks.iter().copied());
                return Err(Misread::new(start, format!("nothing is marked as '{first}' before this{meant}")));
            }
            Some(first)
        } else {
            None
        };
        let at = if mark.is_some() { self.offset() } else { start };
        let word = match (mark, self.peek()) {
            (None, _) => first,
            (Some(_), Some(Token::Word(word))) => {
                self.next += 1;
                word
            }
            (Some(mark), _) => return Err(self.here(format!("a figure is missing behind '{mark}.'"))),
        };
        let Some(figure) = Figure::named(word) else {
            let meant = hint(word, Figure::all().map(Figure::name));
            return Err(Misread::new(at, format!("there is no figure '{word}'{meant}")));
        };
        if mark.is_none() && !self.scope.now {
            let example = self.scope.marks.first().copied().unwrap_or_default();
            return Err(Misread::new(start, format!("whose {word}? write {example}.{word}")));
        }
        Ok(ParsedPart::Term(Term::Figure(mark.map(Into::into), figure), figure.unit()))
    }
}

fn term(read: ParsedPart, at: usize) -> Result<(Term, FigureUnit), Misread> {
    match read {
        ParsedPart::Term(term, unit) => Ok((term, unit)),
        ParsedPart::Test(_) => Err(Misread::new(at, "this is true or false, and a quantity is wanted here")),
    }
}

fn test(read: ParsedPart, at: usize) -> Result<Test, Misread> {
    match read {
        ParsedPart::Test(test) => Ok(test),
        ParsedPart::Term(..) => Err(Misread::new(at, "this is a quantity, and something true or false is wanted here")),
    }
}

fn same(a: FigureUnit, b: FigureUnit, at: usize, what: &str) -> Result<FigureUnit, Misread> {
    algebra::sum(a, b).ok_or_else(|| {
        let hint = if b == FigureUnit::Number || a == FigureUnit::Number { "; give the number a unit" } else { "" };
        Misread::new(at, format!("{} and {} can't be {what}{hint}", a.label(), b.label()))
    })
}

fn shown(token: Token<'_>) -> String {
    match token {
        Token::Number(number, scale) => format!("'{number}{scale}'"),
        Token::Word(word) => format!("'{word}'"),
        Token::Sign(sign) => format!("'{sign}'"),
    }
}
