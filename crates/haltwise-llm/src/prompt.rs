//! Prompts: the text that the model is asked to go on from.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, UndefinedBehavior, context};

use crate::error::Error;
use crate::letters::Letters;
use crate::questions::Question;

/// The paper's wording. The document comes first, so that a server that keeps
/// what it has read need not read it again for the next part or question.
const PAPER: &str = "{{ context }}\n\nQuestion: {{ question }}\n\
    {% for option in options %}{{ option.letter }}. {{ option.text }}\n{% endfor %}\
    The answer is:\n\n";

/// The place of the prompt in a chat format.
const PROMPT: &str = "{{ prompt }}";

/// How common families of chat models mark who speaks, for a server's plain
/// completions. Tokens that begin a text are left to the server.
pub const CHAT_FORMATS: [(&str, &str); 8] = [
    (
        "chatml",
        "<|im_start|>user\n{{ prompt }}<|im_end|>\n<|im_start|>assistant\n",
    ),
    (
        "llama3",
        "<|start_header_id|>user<|end_header_id|>\n\n{{ prompt }}<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    ("llama2", "[INST] {{ prompt }} [/INST]"),
    ("mistral", "[INST] {{ prompt }}[/INST]"),
    ("vicuna", "USER: {{ prompt }} ASSISTANT:"),
    (
        "gemma",
        "<start_of_turn>user\n{{ prompt }}<end_of_turn>\n<start_of_turn>model\n",
    ),
    ("phi3", "<|user|>\n{{ prompt }}<|end|>\n<|assistant|>\n"),
    ("zephyr", "<|user|>\n{{ prompt }}</s>\n<|assistant|>\n"),
];

/// A prompt with places for what has been read (`context`), the `question` and
/// the `options`, each with a `letter` and a `text`; in Jinja's language.
#[derive(Debug)]
pub struct Template {
    source: String,
    environment: Environment<'static>,
    needs: Needs,
}

/// What a template must have a place for, beside the question.
#[derive(Debug, Clone, Copy)]
struct Needs {
    context: bool,
    options: bool,
}

impl Needs {
    const ALL: Self = Self {
        context: true,
        options: true,
    };
}

const NAME: &str = "prompt";

/// The most steps that filling in a template may take: a rule brings its own,
/// which may loop for ever. A prompt takes some ten for each option.
const MOST_STEPS: u64 = 1_000_000;

/// The most bytes of a prompt, more than any model reads.
const LONGEST_PROMPT: usize = 64 << 20;

impl Default for Template {
    /// The paper's wording.
    fn default() -> Self {
        Self {
            source: PAPER.to_owned(),
            environment: environment(PAPER).unwrap_or_default(),
            needs: Needs::ALL,
        }
    }
}

fn environment(source: &str) -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    // A prompt may end in line breaks, and the paper's does.
    let syntax = SyntaxConfig::builder()
        .keep_trailing_newline(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_fuel(Some(MOST_STEPS));
    environment.add_template_owned(NAME, source.to_owned())?;
    Ok(environment)
}

impl Template {
    /// A template, checked by filling it in once.
    pub fn new(source: &str) -> crate::Result<Self> {
        Self::checked(source, Needs::ALL)
    }

    /// A template for questions of which some have documents or options, or none
    /// has: only what there is needs a place.
    pub fn for_questions(source: &str, questions: &[Question]) -> crate::Result<Self> {
        let needs = Needs {
            context: questions.iter().any(|q| !q.document.is_empty()),
            options: questions.iter().any(|q| !q.options.is_empty()),
        };
        Self::checked(source, needs)
    }

    fn checked(source: &str, needs: Needs) -> crate::Result<Self> {
        let template = Self {
            source: source.to_owned(),
            environment: environment(source).map_err(wrong)?,
            needs,
        };
        template.check()?;
        Ok(template)
    }

    /// The same prompt as a user's turn, in one of [`CHAT_FORMATS`].
    pub fn in_chat(&self, format: &str) -> crate::Result<Self> {
        let known = CHAT_FORMATS.iter().find(|(name, _)| *name == format);
        let Some((_, frame)) = known else {
            let names: Vec<&str> = CHAT_FORMATS.iter().map(|(name, _)| *name).collect();
            return Err(Error::input(format_args!(
                "{format} is no chat format; known are {}",
                names.join(", ")
            )));
        };
        Self::checked(&frame.replace(PROMPT, &self.source), self.needs)
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether nothing that changes with the question comes before the
    /// document, so that a server's prefix cache can be used.
    pub fn reads_document_first(&self) -> bool {
        let (a, b) = (sample("a"), sample("b"));
        let filled = |q| self.fill("DOCUMENT", q, &Letters::default());
        match (filled(&a), filled(&b)) {
            (Ok(a), Ok(b)) => {
                let differ = a.bytes().zip(b.bytes()).position(|(a, b)| a != b);
                a.find("DOCUMENT") < differ
            }
            _ => false,
        }
    }

    /// The prompt for a question after so much of its document.
    pub(crate) fn fill(
        &self,
        read: &str,
        question: &Question,
        letters: &Letters,
    ) -> crate::Result<String> {
        let letters = letters.first(question.options.len())?;
        let options: Vec<_> = std::iter::zip(letters, &question.options)
            .map(|(letter, text)| context! { letter => letter.to_string(), text })
            .collect();
        let mut prompt = Bounded(Vec::new());
        let filled = self.environment.get_template(NAME).and_then(|template| {
            let values = context! { context => read, question => &question.question, options };
            template.render_captured_to(values, &mut prompt).map(drop)
        });
        filled.map_err(wrong)?;
        String::from_utf8(prompt.0).map_err(|_| Error::input("the prompt is not UTF-8 text"))
    }

    /// Refuses a template that leaves out what the model needs to know.
    fn check(&self) -> crate::Result<()> {
        let filled = self.fill("THE DOCUMENT", &sample("THE QUESTION"), &Letters::default())?;
        for (name, text, needed) in [
            ("context", "THE DOCUMENT", self.needs.context),
            ("question", "THE QUESTION", true),
            ("options", "SECOND OPTION", self.needs.options),
        ] {
            if needed && !filled.contains(text) {
                return Err(Error::input(format_args!(
                    "the template has no place for the {name}; it needs {{{{ context }}}}, \
                     {{{{ question }}}} and a loop over options with option.letter and option.text"
                )));
            }
        }
        Ok(())
    }
}

fn sample(question: &str) -> Question {
    Question {
        id: String::new(),
        document: "".into(),
        question: question.into(),
        options: vec!["FIRST OPTION".into(), "SECOND OPTION".into()],
        label: None,
        answer: None,
        request: None,
    }
}

/// A prompt that grows to [`LONGEST_PROMPT`] at the most.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LONGEST_PROMPT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn wrong(error: minijinja::Error) -> Error {
    let line = error
        .line()
        .map_or(String::new(), |n| format!(", line {n}"));
    match error.kind() {
        ErrorKind::OutOfFuel => Error::input(format_args!(
            "the template{line}: it takes more than {MOST_STEPS} steps to fill in; does it loop?"
        )),
        // Nothing else can fail in writing to memory.
        ErrorKind::WriteFailure => Error::input(format_args!(
            "the template{line}: the prompt has more than {} MiB",
            LONGEST_PROMPT >> 20
        )),
        _ => Error::input(format_args!("the template{line}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(template: &Template) -> String {
        let question = Question {
            question: "Who?".into(),
            options: vec!["<A & B>".into(), "{{ no }}".into(), "C".into()],
            ..sample("")
        };
        let letters = Letters::default();
        template
            .fill("Once upon a time.", &question, &letters)
            .unwrap()
    }

    #[test]
    fn the_papers_wording_puts_the_document_first_and_asks_for_a_letter() {
        let template = Template::default();
        assert_eq!(
            fill(&template),
            "Once upon a time.\n\nQuestion: Who?\nA. <A & B>\nB. {{ no }}\nC. C\n\
             The answer is:\n\n"
        );
        assert!(template.reads_document_first());
        assert_eq!(Template::new(template.source()).unwrap().source(), PAPER);
    }

    #[test]
    fn every_chat_format_holds_the_prompt_and_opens_the_answer() {
        for (name, _) in CHAT_FORMATS {
            let template = Template::default().in_chat(name).unwrap();
            let text = fill(&template);
            assert!(text.contains(fill(&Template::default()).as_str()), "{name}");
            assert!(!text.contains("prompt"), "{name}");
            assert!(template.reads_document_first(), "{name}");
        }
        let error = Template::default().in_chat("irc").unwrap_err();
        assert!(error.to_string().contains("known are chatml"));
    }

    #[test]
    fn a_template_that_leaves_something_out_is_refused() {
        for (source, expected) in [
            ("{{ context }} {{ question }}", "no place for the options"),
            (
                "{{ question }}{% for o in options %}{{ o.text }}{% endfor %}",
                "for the context",
            ),
            ("{{ contxt }}", "undefined"),
            ("a\n{% for %}", "line 2"),
        ] {
            let error = Template::new(source).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_template_without_end_is_refused() {
        let each = "{% for a in range(10000) %}";
        let loops = format!("{each}{each}{{% endfor %}}{{% endfor %}}");
        let grows = format!("{each}{{{{ '{}' }}}}{{% endfor %}}", "a".repeat(10_000));
        let repeats = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
        for (source, expected) in [
            (&loops[..], "takes more than 1000000 steps"),
            (&grows, "the prompt has more than 64 MiB"),
            ("{{ 'a' * 90000000 }}", "the prompt has more than 64 MiB"),
            (repeats, "the template, line 1: "),
        ] {
            let error = Template::new(source).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn only_what_questions_have_needs_a_place() {
        let free = Question {
            options: Vec::new(),
            ..sample("Who?")
        };
        let plain = Template::for_questions("{{ question }}!", &[free]).unwrap();
        let chat = plain.in_chat("llama2").unwrap();
        assert_eq!(chat.source(), "[INST] {{ question }}! [/INST]");
        let error = Template::for_questions("{{ question }}!", &[sample("Who?")]).unwrap_err();
        assert!(
            error.to_string().contains("no place for the options"),
            "{error}"
        );
        assert!(Template::for_questions("x", &[]).is_err());
    }

    #[test]
    fn a_long_document_fills_its_place() {
        let (long, question) = ("word ".repeat(2 << 20), sample("Who?"));
        let filled = Template::default().fill(&long, &question, &Letters::default());
        assert!(filled.unwrap().starts_with(&long));
    }

    #[test]
    fn a_question_before_the_document_is_noticed() {
        let late = "{{ question }} {{ context }}{% for o in options %}{{ o.text }}{% endfor %}";
        assert!(!Template::new(late).unwrap().reads_document_first());
    }
}
