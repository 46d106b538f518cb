use proptest::prelude::*;

use super::expression::{Function, Operation, Relation, Term, Test};
use super::*;
use crate::units::Bytes;

const SCOPE: Scope<'static> = Scope { marks: &["before", "start"], now: true };

fn figures(known: &[(&str, f64)]) -> Figures {
    let mut figures = Figures::default();
    for (name, value) in known {
        figures.set(Figure::named(name).unwrap(), *value);
    }
    figures
}

const MIB: f64 = 1048576.0;

/// Moments in which half as much is reserved as before.
fn moments() -> Moments {
    let now =
        [("reserved", 512.0 * MIB), ("allocated", 300.0 * MIB), ("step_ms", 20.0), ("steps", 8.0), ("batch", 4.0)];
    let mut moments = Moments::new(figures(&[&now[..], &[("fragmentation", 0.25), ("copy_gbps", 10e9)]].concat()));
    moments.mark("before", figures(&[("reserved", 1024.0 * MIB), ("step_ms", 10.0), ("pending", 0.0)]));
    moments
}

fn holds(text: &str) -> bool {
    Condition::parse(text, &SCOPE).unwrap().holds(&moments()).unwrap()
}

fn measured(text: &str) -> String {
    Quantity::parse(text, &SCOPE).unwrap().measure(&moments()).unwrap().to_string()
}

#[test]
fn what_a_condition_bounds_from_above_is_told_and_nothing_else() {
    let most = |text: &str| -> Vec<(String, f64)> {
        let condition = Condition::parse(text, &SCOPE).unwrap();
        condition.most(&moments()).into_iter().map(|(figure, most)| (figure.name().to_owned(), most.value)).collect()
    };
    assert_eq!(most("reserved < 400 MiB"), [("reserved".to_owned(), 400.0 * MIB)]);
    // Bounds on current figures that hold whatever else is true; times are in their own unit.
    let both = [("allocated".to_owned(), 512.0 * MIB), ("step_ms".to_owned(), 10.0)];
    assert_eq!(most("allocated < before.reserved / 2 and step_ms <= before.step_ms"), both);
    for text in ["reserved > 4 MiB", "before.reserved < 4 MiB", "reserved < 4 MiB or steps < 3", "not reserved < 4 MiB"]
    {
        assert_eq!(most(text), [], "{text}");
    }
}

fn refused(text: &str) -> (usize, String) {
    let condition = Condition::parse(text, &SCOPE);
    let misread = match condition {
        Err(misread) => misread,
        Ok(condition) => panic!("{text} was read as {condition}"),
    };
    (misread.offset, misread.reason)
}

#[test]
fn conditions_hold_or_do_not() {
    for text in [
        "reserved < before.reserved",
        "reserved == before.reserved / 2",
        "reserved == 0.5GiB and not reserved != 512 MiB",
        "reserved <= 50 % * before.reserved",
        "step_ms == 20 ms and step_ms > 0.019 s and step_ms <= 20000 us",
        "step_ms within 5 % of 2 * before.step_ms",
        "step_ms within 1 ms of 19.5 ms",
        "not (step_ms within 1 ms of 25 ms)",
        "fragmentation within 0.01 of 25 %",
        "reserved within 0.6 of before.reserved",
        "batch == 4 or loss > 1",
        "abs(reserved - before.reserved) == 512 MiB",
        "min(reserved, before.reserved, 1 MiB) == 1 MiB and max(1, 2) == 2",
        "-reserved < 0 B",
        "reserved / step_ms > 20 GB/s",
        "copy_gbps * 1 s == copy_gbps * 1000 ms",
        "1 + 2 * 3 == 7 and (1 + 2) * 3 == 9 and 8 - 2 - 1 == 5 and 8 / 2 / 2 == 2",
        "steps / step_ms == 400/s",
    ] {
        if text.contains("loss") {
            assert!(Condition::parse(text, &SCOPE).unwrap().holds(&moments()).is_err(), "{text}");
        } else {
            assert!(holds(text), "{text}");
        }
    }
}

#[test]
fn quantities_print_with_their_units() {
    for (text, printed) in [
        ("reserved", "512.00 MiB"),
        ("reserved - before.reserved", "−512.00 MiB"),
        ("before.reserved / reserved", "2.00"),
        ("fragmentation", "25 %"),
        ("fragmentation / 10", "2.5 %"),
        ("step_ms", "20.00 ms"),
        ("step_ms / 100", "0.200 ms"),
        ("batch * steps", "32"),
        ("30 % * batch", "1.2"),
        ("reserved / batch", "128.00 MiB"),
        ("copy_gbps", "10.0 GB/s"),
        ("copy_gbps / 1000", "10.0 MB/s"),
        ("reserved / copy_gbps", "53.69 ms"),
        ("batch / step_ms", "200/s"),
        ("loss - loss", ""),
    ] {
        if printed.is_empty() {
            let unknown = Quantity::parse(text, &SCOPE).unwrap().measure(&moments()).unwrap_err();
            assert_eq!(unknown.to_string(), "loss is not known here");
        } else {
            assert_eq!(measured(text), printed, "{text}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_where_it_stands() {
    for (text, offset, part) in [
        ("reserved + step_ms > 1", 9, "bytes and milliseconds can't be added"),
        ("reserved > 3", 9, "give the number a unit"),
        ("reserved * reserved > 1 B", 9, "bytes * bytes means nothing"),
        ("step_ms / reserved > 1", 8, "milliseconds / bytes"),
        ("reserve > 1 B", 0, "no figure 'reserve' (did you mean \"reserved\"?)"),
        ("befor.reserved > 1 B", 0, "nothing is marked as 'befor' before this (did you mean \"before\"?)"),
        ("before.reservd > 1 B", 7, "did you mean \"reserved\"?"),
        ("before. > 1 B", 8, "a figure is missing behind 'before.'"),
        ("reserved > 2 GB", 13, "did you mean \"GiB\"?"),
        ("reserved > 2 apples", 13, "'apples' is no unit"),
        ("1 < batch < 3", 10, "join two comparisons with `and`"),
        ("batch = 3", 6, "equality is written =="),
        ("reserved", 0, "this is a quantity"),
        ("batch and batch > 1", 0, "this is a quantity"),
        ("(batch > 1) + 2 > 3", 0, "this is true or false"),
        ("batch >", 7, "missing at the end"),
        ("batch > and", 8, "missing before `and`"),
        ("(batch > 1", 10, "')' is missing at the end"),
        ("batch > 1)", 9, "nothing can follow here"),
        ("batch > 1 1", 10, "nothing can follow here"),
        ("abs(batch, 1) > 1", 0, "abs takes one quantity"),
        ("min(batch) > 1", 0, "min takes two"),
        ("min(batch, 1 MiB) > 1", 11, "can't be compared"),
        ("batch within 5 % 3", 17, "`of` is missing"),
        ("batch > 1 $", 10, "'$' has no meaning"),
        ("batch > 1.2.3", 8, "is no number"),
        ("", 0, "missing at the end"),
        ("reserved within 1 ms of before.reserved", 9, "can't be compared"),
    ] {
        let (at, reason) = refused(text);
        assert!(reason.contains(part), "{text}: {reason}");
        assert_eq!(at, offset, "{text}: {reason}");
    }
    let deep = format!("{}batch{} > 1", "(".repeat(100), ")".repeat(100));
    assert!(refused(&deep).1.contains("in one another"));
    assert!(refused(&"-".repeat(1900)).1.contains("in one another"));
    assert!(refused(&"not ".repeat(400)).1.contains("in one another"));
    assert!(refused(&"batch + ".repeat(400)).1.contains("shorten"));
    let sides = Scope { marks: &["with"], now: false };
    let bare = Condition::parse("with.steps > steps", &sides).unwrap_err();
    assert_eq!((bare.offset, bare.reason.as_str()), (13, "whose steps? write with.steps"));
}

#[test]
fn what_is_not_known_is_neither_true_nor_false() {
    let unknown = |text: &str| Condition::parse(text, &SCOPE).unwrap().holds(&moments()).unwrap_err().to_string();
    assert_eq!(unknown("loss > 1"), "loss is not known here");
    assert_eq!(unknown("before.loss > 1"), "before.loss is not known here");
    assert_eq!(unknown("batch == 4 or start.batch == 4"), "nothing was marked as start yet");
    assert_eq!(
        unknown("reserved / before.pending > 1"),
        "reserved / before.pending has no value: what it is divided by is 0"
    );
}

#[test]
fn figures_stand_in_text() {
    let text = "From {before.reserved} to {reserved}: {reserved / before.reserved:%} {{x}}.";
    let template = Template::parse(text, &SCOPE).unwrap();
    assert_eq!(template.fill(&moments()).unwrap(), "From 1.00 GiB to 512.00 MiB: 50 % {x}.");
    assert_eq!(template.unfilled(), "From ‹before.reserved› to ‹reserved›: ‹reserved / before.reserved› {x}.");
    for (text, offset) in [("é {reservd}", 4), ("{reserved", 0), ("a } b", 2), ("{reserved:%}", 9), ("{batch:x}", 6)] {
        assert_eq!(Template::parse(text, &SCOPE).unwrap_err().offset, offset, "{text}");
    }
    let misread = Template::parse("a\né {reservd}", &SCOPE).unwrap_err();
    assert_eq!(misread.place("a\né {reservd}"), (2, 4));
}

#[test]
fn every_figure_has_a_name_of_its_own_and_a_sentence() {
    let names: Vec<&str> = Figure::all().map(Figure::name).collect();
    for figure in Figure::all() {
        assert_eq!(names.iter().filter(|name| **name == figure.name()).count(), 1, "{figure:?}");
        assert!(figure.says().ends_with('.'), "{figure:?}");
        assert!(!token::KEYWORDS.contains(&figure.name()));
    }
    assert_eq!(Amount { value: 1.5 * 1024.0, unit: FigureUnit::Bytes }.to_string(), Bytes(1536).to_string());
    for (value, unit, text) in [
        (-0.0001, FigureUnit::Share, "0.0 %"),
        (-0.051, FigureUnit::Share, "−5.1 %"),
        (-0.0001, FigureUnit::Number, "−0.0001"),
        (-0.004, FigureUnit::PerSecond, "0.0/s"),
    ] {
        assert_eq!(Amount { value, unit }.to_string(), text);
    }
}

#[test]
fn nothing_is_known_of_a_view_before_its_first_step_but_memory() {
    let figures = Figures::of_view(&crate::model::View::default());
    let known: Vec<&str> = figures.iter().map(|(figure, _)| figure.name()).collect();
    for absent in ["loss", "step_ms", "step_peak_allocated", "peak_activations", "after_forward", "limit"] {
        assert!(!known.contains(&absent), "{absent}");
    }
    for there in ["allocated", "reserved", "steps", "ooms", "retries", "peak_requested", "inactive_split"] {
        assert!(known.contains(&there), "{there}");
    }
}

/// A random term of bytes, of any depth: its units are always valid.
fn term() -> impl Strategy<Value = Term> {
    let figure = prop_oneof![Just("reserved"), Just("allocated"), Just("stranded")];
    let mark = prop_oneof![Just(None), Just(Some("before")), Just(Some("start"))];
    let leaf = prop_oneof![
        (mark, figure).prop_map(|(mark, name)| Term::Figure(mark.map(Into::into), Figure::named(name).unwrap())),
        (0.0..1e9_f64, prop_oneof![Just("B"), Just("MiB"), Just("GiB")])
            .prop_map(|(number, word)| Term::Literal(number, Scale::named(word).unwrap())),
    ];
    leaf.prop_recursive(5, 24, 3, |inner| {
        let bare = (0.0..100.0_f64).prop_map(|number| Box::new(Term::Literal(number, Scale::ONE)));
        let function = prop_oneof![Just(Function::Min), Just(Function::Max)];
        let sum = prop_oneof![Just(Operation::Plus), Just(Operation::Minus)];
        let scaled = prop_oneof![Just(Operation::Times), Just(Operation::Over)];
        prop_oneof![
            inner.clone().prop_map(|term| Term::Negative(Box::new(term))),
            inner.clone().prop_map(|term| Term::Call(Function::Abs, vec![term])),
            (function, prop::collection::vec(inner.clone(), 2..4)).prop_map(|(f, terms)| Term::Call(f, terms)),
            (sum, inner.clone(), inner.clone()).prop_map(|(o, a, b)| Term::Binary(o, Box::new(a), Box::new(b))),
            (scaled, inner.clone(), bare).prop_map(|(o, a, b)| Term::Binary(o, Box::new(a), b)),
        ]
    })
}

fn test() -> impl Strategy<Value = Test> {
    let relation = prop::sample::select(Relation::ALL.to_vec());
    let leaf = prop_oneof![
        (relation, term(), term()).prop_map(|(relation, a, b)| Test::Compare(relation, a, b)),
        (term(), term(), term()).prop_map(|(measured, tolerance, of)| Test::Within {
            measured,
            tolerance,
            of,
            relative: false
        }),
    ];
    leaf.prop_recursive(4, 12, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|test| Test::Not(Box::new(test))),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| Test::And(Box::new(a), Box::new(b))),
            (inner.clone(), inner).prop_map(|(a, b)| Test::Or(Box::new(a), Box::new(b))),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_printed_is_read_as_the_same(test in test()) {
        let condition = Condition(test);
        let printed = condition.to_string();
        if printed.len() < 2000 {
            prop_assert_eq!(Condition::parse(&printed, &SCOPE), Ok(condition), "{}", printed);
        }
    }

    #[test]
    fn nothing_that_is_read_panics(text in "[a-z_.0-9 ()+*/<>=!%{}:,-]{0,60}", any in any::<String>()) {
        for text in [&text, &any] {
            let condition = Condition::parse(text, &SCOPE);
            if let Ok(condition) = &condition {
                let _ = condition.holds(&moments());
            }
            let _ = Quantity::parse(text, &SCOPE);
            if let Err(misread) = Template::parse(text, &SCOPE) {
                prop_assert!(misread.offset <= text.len());
                let _ = misread.place(text);
            }
        }
    }

    #[test]
    fn words_in_any_order_are_read_or_refused(words in prop::collection::vec(
        prop::sample::select(vec![
            "reserved", "before.", "before.steps", "2 GiB", "30 %", "1.5", "ms", "and", "or", "not", "within", "of", "(", ")",
            "abs(", "min(", ",", "+", "-", "*", "/", "<", ">=", "==", ".", "5/s", "loss",
        ]),
        0..16,
    )) {
        let text = words.join(" ");
        match Condition::parse(&text, &SCOPE) {
            Ok(condition) => {
                prop_assert_eq!(Condition::parse(&condition.to_string(), &SCOPE), Ok(condition.clone()));
                let _ = condition.holds(&moments());
            }
            Err(misread) => prop_assert!(misread.offset <= text.len()),
        }
    }
}
