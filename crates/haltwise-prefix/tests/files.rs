//! Models on disk.
#![allow(clippy::unwrap_used)]

mod common;

use common::Waves;
use haltwise_prefix::Model;
use proptest::prelude::*;
use std::sync::OnceLock;

fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        let mut waves = Waves::new(60, 12, 2, 1);
        // Equal series of different classes give trees mixed leaves.
        waves.values.copy_within(0..24, 24);
        waves.fit().model
    })
}

fn bytes() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| model().to_bytes().unwrap())
}

#[test]
fn a_model_survives_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    model().save(&path).unwrap();
    let again = Model::load(&path).unwrap();
    assert!(again == *model());
    let waves = Waves::new(20, 12, 2, 2);
    let answers = |model: &Model| model.answers(&waves.series()).unwrap();
    assert_eq!(answers(&again), answers(model()));
    model().save(&path).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(again.to_bytes().unwrap() == bytes());
}

#[test]
fn a_model_is_recognised_by_its_first_bytes() {
    assert!(Model::recognises(bytes()));
    assert!(!Model::recognises(b"nonsense"));
}

/// The file with a part of its header replaced by another of the same length.
fn changed(from: &str, to: &str) -> String {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes().to_vec();
    let at = bytes
        .windows(from.len())
        .position(|w| w == from.as_bytes())
        .unwrap();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    Model::from_bytes(&bytes).unwrap_err().to_string()
}

#[test]
fn damage_is_named() {
    let newer = changed(r#"\"version\":1"#, r#"\"version\":9"#);
    assert!(newer.contains("update haltwise"), "{newer}");
    let missing = changed("checkpoint.3.cuts", "checkpoint.3.cuds");
    assert!(
        missing.contains("checkpoint.3.cuts is missing"),
        "{missing}"
    );
    let falling = changed(r#"\"checkpoints\":[2,4"#, r#"\"checkpoints\":[5,4"#);
    assert!(falling.contains("do not rise"), "{falling}");
    let dilation = changed(r#"\"dilation\":1"#, r#"\"dilation\":0"#);
    assert!(dilation.contains("dilation"), "{dilation}");
    let other = changed("haltwise-prefix", "haltwise-suffix");
    assert!(other.contains("not a prefix model"), "{other}");
}

#[test]
fn an_error_names_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.safetensors");
    std::fs::write(&path, b"nonsense").unwrap();
    let error = Model::load(&path).unwrap_err().to_string();
    assert!(error.contains("broken.safetensors"), "{error}");
    let error = Model::load(folder.path().join("absent")).unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
}

#[test]
fn a_truncated_file_is_refused() {
    for end in (0..bytes().len()).step_by(997) {
        assert!(Model::from_bytes(&bytes()[..end]).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Damage is refused, or gives a model that answers all the same.
    #[test]
    fn no_damage_makes_it_panic(places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), early: bool) {
        let mut bytes = bytes().to_vec();
        let range = if early { 4000 } else { bytes.len() };
        for (place, byte) in places {
            bytes[place.index(range)] = byte;
        }
        if let Ok(model) = Model::from_bytes(&bytes) {
            let point = vec![0.5; model.channels()];
            let mut stream = model.stream();
            for _ in 0..model.checkpoints()[model.checkpoints().len() - 1].min(100) {
                stream.observe(&point).unwrap();
            }
        }
    }
}
