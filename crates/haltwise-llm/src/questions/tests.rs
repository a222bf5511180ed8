use serde_json::json;

use super::read::parse;
use super::*;

fn read(text: &str) -> Parsed<Vec<Question>> {
    parse_questions(text, None)
}

#[test]
fn every_release_of_quality_is_read() {
    // The first release: no names for questions. The test split: no labels.
    let text = r#"{"article_id": "1", "set_unique_id": "1_A", "batch_num": "2", "writer_id": "9", "source": "G", "title": "T", "year": 1950, "author": "x", "topic": "y", "url": "u", "license": "l", "article": " Once. ", "questions": [{"question": "Who? ", "options": ["a", "b", "c", "d"], "gold_label": 4, "writer_label": 4, "validation": [], "speed_validation": [], "difficult": 1}, {"question": "Why?", "options": ["a", "b", "c", "d"]}]}
{"article_id": "1", "set_unique_id": "1_B", "article": "Once.", "questions": [{"question": "When?", "question_unique_id": "1_B_7", "options": ["a", "b", "c", "d"], "gold_label": 1, "difficult": 0}]}
{"article_id": 1, "article": "Once.", "question": "How?", "question_unique_id": "1_C_1", "options": ["a", "b", "c", "d"], "gold_label": 2}"#;
    let questions = read(text).unwrap();
    let ids: Vec<&str> = questions.iter().map(|q| q.id.as_str()).collect();
    assert_eq!(ids, ["1_A_1", "1_A_2", "1_B_7", "1_C_1"]);
    let labels: Vec<_> = questions.iter().map(|q| q.label).collect();
    assert_eq!(labels, [Some(3), None, Some(0), Some(1)]);
    assert_eq!(
        (&*questions[0].document, questions[0].question.as_str()),
        ("Once.", "Who?")
    );
    assert!(Arc::ptr_eq(&questions[0].document, &questions[3].document));
}

#[test]
fn l_evals_options_are_taken_out_of_the_instruction() {
    let text = r#"{"instructions": ["Who is\nA. Smith?\n\n (A) A man. \n (B) (C) or\nnot \n (C) No", "Why?\nA. a\nB. b"], "outputs": ["(B) (C) or not", "A"], "input": "Once.", "source": "quality", "evaluation": "exam"}"#;
    let questions = read(text).unwrap();
    assert_eq!(questions[0].question, "Who is\nA. Smith?");
    assert_eq!(questions[0].options, ["A man.", "(C) or\nnot", "No"]);
    assert_eq!(questions[1].options, ["a", "b"]);
    assert_eq!(questions[1].label, Some(0));
    assert_eq!(questions[0].id, "1_1");
    assert_eq!(questions[0].label, Some(1));
}

#[test]
fn our_labels_are_positions_or_texts() {
    let text = r#"{"id": "x", "document": "d", "question": "q", "options": ["no", "yes"], "label": "yes"}
{"id": 7, "document": "d", "question": "q", "options": ["no", "yes"], "label": 0}

{"document": "d", "question": "q", "options": ["no", "yes"]}"#;
    let questions = read(text).unwrap();
    let found: Vec<_> = questions.iter().map(|q| (q.id.as_str(), q.label)).collect();
    assert_eq!(found, [("x", Some(1)), ("7", Some(0)), ("4", None)]);
}

#[test]
fn documents_may_be_files_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), "The text.\n").unwrap();
    let path = folder.path().join("q.jsonl");
    let line =
        |name: &str| format!(r#"{{"document": "{name}", "question": "q", "options": ["a", "b"]}}"#);
    fs::write(&path, line("a.txt")).unwrap();
    let questions = read_questions(&path, Some(folder.path())).unwrap();
    assert_eq!(&*questions[0].document, "The text.");
    fs::write(&path, line("b.txt")).unwrap();
    let error = read_questions(&path, Some(folder.path())).unwrap_err();
    assert!(error.to_string().contains("line 1: cannot read"), "{error}");
}

#[test]
fn names_that_lead_out_of_the_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(folder.path().join("out.txt"), "secret").unwrap();
    fs::write(inner.join("a.txt"), "The text.").unwrap();
    let path = folder.path().join("q.jsonl");
    let read = |name: &str| {
        let line = json!({"document": name, "question": "q", "options": ["a", "b"]});
        fs::write(&path, line.to_string()).unwrap();
        read_questions(&path, Some(&inner)).map_err(|e| e.to_string())
    };
    assert!(read("./a.txt").is_ok());
    let absolute = folder.path().join("out.txt");
    for name in ["../out.txt", "x/../../out.txt", absolute.to_str().unwrap()] {
        let error = read(name).unwrap_err();
        assert!(error.contains("q.jsonl: line 1: "), "{error}");
        assert!(error.contains("leads out of the folder"), "{error}");
    }
}

#[test]
fn names_of_files_are_not_taken_for_texts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.jsonl");
    fs::write(folder.path().join("my lease"), "The text.").unwrap();
    let read = |document: &str| {
        let line = json!({"document": document, "question": "q", "options": ["a", "b"]});
        fs::write(&path, format!("\n{line}")).unwrap();
        read_questions(&path, None).map_err(|e| e.to_string())
    };
    for name in ["l1.txt", "leases/l1.PDF", "my lease"] {
        let error = read(name).unwrap_err();
        assert!(error.contains("q.jsonl: line 2: "), "{error}");
        assert!(error.contains(&format!("{name:?}")), "{error}");
        assert!(error.contains("with --documents FOLDER"), "{error}");
    }
    let long = format!("{}.txt", "x".repeat(300));
    for text in ["Once.", "3.14", "See l1.txt", "my other lease", &long] {
        assert!(read(text).is_ok(), "{text}");
    }
}

#[test]
fn mistakes_are_named_with_their_line() {
    let good = r#"{"id": 1, "document": "d", "question": "q", "options": ["a", "b"], "label": 0}"#;
    for (line, expected) in [
        ("{", "line 2: it is no JSON object"),
        ("{}", "neither \"document\""),
        (good, "line 2: the id 1 occurs twice"),
        (
            r#"{"document": " ", "question": "q", "options": ["a", "b"]}"#,
            "is empty",
        ),
        (
            r#"{"document": "d", "question": "q", "options": ["a"]}"#,
            "1 options; 2 to 26",
        ),
        (
            r#"{"document": "d", "question": "q", "options": ["a", "b"], "label": 2}"#,
            "is 2, of 2",
        ),
        (
            r#"{"document": "d", "question": "q", "options": ["a", "b"], "label": "c"}"#,
            "none of the options",
        ),
        (
            r#"{"document": "d", "question": "q", "options": ["a", "b"], "lable": 1}"#,
            "unknown field `lable`",
        ),
        (
            r#"{"article": "d", "questions": [{"question": "q", "options": ["a", "b"], "gold_label": 0}]}"#,
            "counts from 1",
        ),
        (
            r#"{"input": "d", "instructions": ["q\n(A) a\n(B) b"], "outputs": ["yes"]}"#,
            "does not begin with the letter",
        ),
    ] {
        let error = read(&format!("{good}\n{line}")).unwrap_err();
        assert!(error.contains(expected), "{expected:?} is not in {error}");
    }
    assert!(read("\n").unwrap_err().contains("no question"));
}

#[test]
fn free_questions_need_neither_documents_nor_options() {
    let read = |text: &str| parse(text, None, None, true);
    let text = r#"{"id": "a", "question": " How many? ", "label": "1,000"}
{"question": "How many?", "label": 7.5}
{"question": "Which?", "options": ["red", "blue"], "label": "blue"}
{"question": "Which?", "options": ["red", "blue"], "label": 0}
{"document": "d", "question": "Which?", "options": ["red", "blue"]}
{"document": "d", "question": "Why?"}"#;
    let questions = read(text).unwrap();
    let told: Vec<_> = questions
        .iter()
        .map(|q| (q.id.as_str(), q.label, q.answer.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            ("a", None, Some("1,000")),
            ("2", None, Some("7.5")),
            ("3", Some(1), None),
            ("4", Some(0), None),
            ("5", None, None),
            ("6", None, None),
        ]
    );
    assert_eq!(questions[0].question, "How many?");
    for (line, expected) in [
        (r#"{"label": 1}"#, "line 1: it has no \"question\""),
        (r#"{"question": " "}"#, "is empty"),
        (r#"{"question": "q", "lable": 1}"#, "unknown field `lable`"),
        (
            r#"{"question": "q", "label": [1]}"#,
            "a label is the right answer",
        ),
        (
            r#"{"question": "q", "options": ["a", "b"], "label": "c"}"#,
            "none of the options",
        ),
        (
            r#"{"question": "q", "options": ["a", "b"], "label": 2}"#,
            "is 2, of 2",
        ),
        (
            r#"{"question": "q", "options": ["a"]}"#,
            "1 options; 2 to 26",
        ),
    ] {
        let error = read(line).unwrap_err();
        assert!(error.contains(expected), "{expected:?} is not in {error}");
    }
    assert!(
        read("{\"id\": 1, \"question\": \"q\"}\n{\"id\": 1, \"question\": \"r\"}")
            .unwrap_err()
            .contains("occurs twice")
    );
}

#[test]
fn text_that_is_no_utf_8_is_called_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.jsonl");
    std::fs::write(&path, [0xff]).unwrap();
    let error = read_questions(&path, None).unwrap_err().to_string();
    let expected = "q.jsonl: cannot read it: it is not UTF-8 text; save it as UTF-8";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn shuffling_moves_the_label_with_its_option_and_is_drawn_from_the_seed() {
    let line = |i: usize| {
        format!(
            r#"{{"id": {i}, "document": "d", "question": "q", "options": ["right", "wrong"], "label": 0}}"#
        )
    };
    let text: Vec<String> = (0..200).map(line).collect();
    let questions = read(&text.join("\n")).unwrap();
    let shuffled = |seed| {
        let mut shuffled = questions.clone();
        shuffle_options(&mut shuffled, seed);
        shuffled
    };
    let once = shuffled(1);
    assert!(once.iter().all(|q| q.options[q.label.unwrap()] == "right"));
    let first = once.iter().filter(|q| q.label == Some(0)).count();
    assert!((70..=130).contains(&first), "{first} of 200 come first");
    assert_eq!(once, shuffled(1));
    assert_ne!(once, shuffled(2));
}
