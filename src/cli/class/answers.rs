//! What a class answered, question by question.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::model::{LessonAnswer, LessonNote};

/// An answer, and how many learners gave it.
#[derive(Default)]
struct AnswerCount {
    halves: Option<u32>,
    count: usize,
}

/// One question of a lesson.
#[derive(Default)]
struct QuestionTally {
    title: String,
    said: BTreeMap<String, AnswerCount>,
}

/// All answered questions, by lesson and step.
#[derive(Default)]
pub(super) struct Answers(BTreeMap<(String, u32), QuestionTally>);

impl Answers {
    /// Counts the answers of these learners.
    pub fn of<'a>(notes: impl Iterator<Item = &'a LessonNote>) -> Self {
        let mut answers = Self::default();
        for note in notes {
            for answer in &note.answers {
                answers.count(&note.title, answer);
            }
        }
        answers
    }

    fn count(&mut self, lesson: &str, answer: &LessonAnswer) {
        let asked = self.0.entry((lesson.to_owned(), answer.step)).or_default();
        asked.title = answer.title.to_string();
        let given = asked.said.entry(answer.said.to_string()).or_default();
        given.count += 1;
        given.halves = given.halves.max(answer.halves);
    }

    /// As text: for each question how many gave which answer, the most frequent first.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for ((lesson, step), asked) in &self.0 {
            lines.push(String::new());
            lines.push(format!("{lesson} · {step}. {}", asked.title));
            let mut said: Vec<_> = asked.said.iter().collect();
            said.sort_by_key(|(_, given)| std::cmp::Reverse(given.count));
            for (text, given) in said {
                let verdict = match given.halves {
                    Some(2..) => " · right",
                    Some(1) => " · near",
                    _ => "",
                };
                lines.push(format!("  {:>3}  {text}{verdict}", given.count));
            }
        }
        lines
    }

    /// The same counts as JSON, for other programs.
    pub fn json(&self) -> Value {
        let answer = |(text, given): (&String, &AnswerCount)| json!({ "said": text, "count": given.count, "points": given.halves.map(|halves| f64::from(halves) / 2.0) });
        let question = |((lesson, step), asked): (&(String, u32), &QuestionTally)| {
            let said: Vec<Value> = asked.said.iter().map(answer).collect();
            json!({ "lesson": lesson, "step": step, "title": asked.title, "answers": said })
        };
        self.0.iter().map(question).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LessonPart;

    fn note(said: &str, halves: u32) -> LessonNote {
        let answer = LessonAnswer { step: 2, title: "The next step".into(), said: said.into(), halves: Some(halves) };
        LessonNote {
            learner: "".into(),
            lesson: "empty-cache".into(),
            title: "What empty_cache does".into(),
            step: 3,
            steps: 6,
            doing: LessonPart::Reading,
            halves,
            answered: 1,
            questions: 5,
            answers: vec![answer],
            seconds: 0,
        }
    }

    #[test]
    fn the_most_frequent_answer_stands_first_and_the_right_one_says_so() {
        let notes = [note("A. It stays", 0), note("C. What it was", 2), note("A. It stays", 0)];
        let lines = Answers::of(notes.iter()).lines();
        let expected =
            ["", "What empty_cache does · 2. The next step", "    2  A. It stays", "    1  C. What it was · right"];
        assert_eq!(lines, expected);
        assert_eq!(Answers::of(notes.iter()).json()[0]["answers"][0]["count"], 2);
    }
}
