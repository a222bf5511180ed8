//! Exported rules in C, on this computer and on an emulated Cortex-M4: they decide
//! as the heart does, to the bit.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use common::{haltwise, ran};
use haltwise::{Outputs, Reason, Rule, State};
use haltwise_io::{Columns, read_rule};
use tempfile::TempDir;

/// The rules of the demo, by the methods' names.
const RULES: [&str; 3] = ["marginal", "conditional", "adaptive"];

/// The folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The demo's folder: PenDigits, scored by a model, and rules.
fn demo() -> &'static Path {
    static DEMO: OnceLock<TempDir> = OnceLock::new();
    let folder = DEMO.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let demo = ran(haltwise().args(["demo", "-o"]).arg(folder.path()));
        assert_eq!(demo.code, 0, "{}", demo.stderr);
        folder
    });
    folder.path()
}

fn rule(name: &str) -> Rule {
    read_rule(&demo().join(format!("{name}.json"))).unwrap()
}

/// What the model said about all strokes that it was not trained on.
fn outputs() -> Outputs {
    let parts = ["screening", "certifying", "test"];
    let files = parts.map(|part| demo().join(format!("{part}.parquet")));
    haltwise_io::read_outputs(&files, &Columns::default(), &mut |_, _| {}).unwrap()
}

/// Writes the files that the example in C reads.
fn write_inputs(folder: &Path, rule: &Rule, outputs: &Outputs) {
    let words = rule.live().words().unwrap();
    let table: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    std::fs::write(folder.join("rule.bin"), table).unwrap();
    let (mut traces, mut classes) = (Vec::new(), 0);
    for i in 0..outputs.len() {
        let steps: Vec<_> = outputs.steps(i).collect();
        traces.extend((steps.len() as u32).to_le_bytes());
        for step in steps {
            traces.extend(step.score.unwrap_or(f32::NAN).to_le_bytes());
            let prediction = step.prediction.map_or(-1, |class| class as i32);
            traces.extend(prediction.to_le_bytes());
            let probs = step.probs.unwrap_or_default();
            traces.extend(probs.iter().flat_map(|p| p.to_le_bytes()));
            classes = probs.len() as u32;
        }
    }
    let head = [outputs.len() as u32, classes];
    let head: Vec<u8> = head.iter().flat_map(|n| n.to_le_bytes()).collect();
    std::fs::write(folder.join("traces.bin"), [head, traces].concat()).unwrap();
}

/// What the example should write, as the heart decides.
fn expected(rule: &Rule, outputs: &Outputs) -> Vec<u8> {
    let mut decisions = Vec::new();
    for i in 0..outputs.len() {
        let mut state = State::new();
        let mut memory = serde_json::Value::Null;
        for step in outputs.steps(i) {
            if state.halted() {
                break;
            }
            // A stream forgets its memory when it halts: look before.
            let live = rule.live();
            if let haltwise_stream::ScoreKind::Gap(score) = live.source() {
                let mut kept = remembered(&memory, live.room());
                score
                    .observe(&step, state.steps() as usize, &mut kept)
                    .unwrap();
                memory = serde_json::to_value(&kept).unwrap();
            }
            rule.observe(&mut state, &step).unwrap();
        }
        let reason: i32 = match state.end() {
            Reason::Threshold => 1,
            Reason::LastStep => 2,
            Reason::End => 3,
        };
        decisions.extend(state.steps().to_le_bytes());
        decisions.extend(reason.to_le_bytes());
        for field in ["smoothed", "highest", "drift"] {
            decisions.extend(memory[field].as_f64().unwrap_or(0.0).to_le_bytes());
        }
    }
    decisions
}

fn remembered(memory: &serde_json::Value, room: usize) -> haltwise_stream::Memory<Vec<f32>> {
    match memory.is_null() {
        true => haltwise_stream::Memory::new(vec![0.0; room]),
        false => serde_json::from_value(memory.clone()).unwrap(),
    }
}

fn done(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (&output.stdout, &output.stderr);
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    );
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

fn example(file: &str) -> PathBuf {
    root().join("crates/haltwise-c/example").join(file)
}

fn include() -> PathBuf {
    root().join("crates/haltwise-c/include")
}

/// Whether the programs are here; skips the test by name where they need not be.
fn here(test: &str, programs: &[&str], require: &str) -> bool {
    let found = |name: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).exists())
    };
    let Some(missing) = programs.iter().find(|name| !found(name)) else {
        return true;
    };
    assert!(std::env::var_os(require).is_none(), "there is no {missing}");
    // Past the test runner, which keeps what passing tests print to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: there is no {missing}");
    false
}

/// The library for this computer, and the example.
fn on_this_computer(folder: &Path) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut build = Command::new(cargo);
    done(
        build
            .current_dir(root())
            .args(["build", "-q", "-p", "haltwise-c"]),
    );
    let binary = Path::new(env!("CARGO_BIN_EXE_haltwise"));
    let library = binary.with_file_name("libhaltwise_c.a");
    let program = folder.join("decide");
    done(
        Command::new("cc")
            .args(["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(include())
            .args([example("decide.c"), example("computer.c"), library])
            .args(["-lpthread", "-ldl", "-lm", "-o"])
            .arg(&program),
    );
    program
}

#[test]
fn the_example_in_c_decides_as_the_heart_does_and_touches_no_wrong_memory() {
    if !here(
        "the example in C",
        &["cc", "valgrind"],
        "HALTWISE_REQUIRE_C",
    ) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (folder, outputs) = (folder.path(), outputs());
    let program = on_this_computer(folder);
    let run = |rule: &str| {
        let mut command = Command::new("valgrind");
        command
            .args(["-q", "--error-exitcode=99", "--leak-check=full"])
            .arg(&program)
            .args([rule, "traces.bin", "decisions.bin"])
            .current_dir(folder);
        command
    };
    for name in RULES {
        let rule = rule(name);
        write_inputs(folder, &rule, &outputs);
        done(&mut run("rule.bin"));
        let decisions = std::fs::read(folder.join("decisions.bin")).unwrap();
        assert_eq!(decisions.len(), 32 * outputs.len());
        assert!(decisions == expected(&rule, &outputs), "{name}");

        // A damaged rule is refused, whatever byte it is.
        let mut table = std::fs::read(folder.join("rule.bin")).unwrap();
        for place in [0, 9, 17, 21, 25, 33, 50, table.len() - 1] {
            table[place] ^= 0x40;
            std::fs::write(folder.join("damaged.bin"), &table).unwrap();
            let refused = run("damaged.bin").output().unwrap();
            assert_eq!(refused.status.code(), Some(11), "byte {place}");
            table[place] ^= 0x40;
        }
        std::fs::write(folder.join("damaged.bin"), &table[..table.len() - 8]).unwrap();
        assert_eq!(run("damaged.bin").output().unwrap().status.code(), Some(11));
    }
}

#[test]
fn an_exported_rule_compiles_and_loads() {
    if !here("an exported rule", &["cc"], "HALTWISE_REQUIRE_C") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    on_this_computer(folder);
    let program = "#include \"haltwise.h\"\n#include \"rule.h\"\n\
        int main(void) {\n\
            haltwise_rule loaded;\n\
            int error = haltwise_rule_load(&loaded, pen, sizeof pen);\n\
            return error != 0 ? 1 : (int)haltwise_rule_steps(&loaded);\n\
        }\n";
    std::fs::write(folder.join("main.c"), program).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_haltwise"));
    for name in RULES {
        let path = demo().join(format!("{name}.json"));
        let mut export = haltwise();
        export
            .arg("export")
            .arg(path)
            .args(["--to", "c", "--name", "pen", "-o"]);
        let exported = ran(export.arg(folder.join("rule.h")));
        assert_eq!(exported.code, 0, "{}", exported.stderr);
        done(
            Command::new("cc")
                .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
                .arg(include())
                .arg(folder.join("main.c"))
                .arg(binary.with_file_name("libhaltwise_c.a"))
                .args(["-lpthread", "-ldl", "-lm", "-o"])
                .arg(folder.join("main")),
        );
        let status = Command::new(folder.join("main")).status().unwrap();
        assert_eq!(status.code(), Some(rule(name).t_max() as i32), "{name}");
    }
    let refused = ran(haltwise().args(["export", "no.json", "--to", "c"]));
    assert_eq!(refused.code, 1);
}

/// How many bytes of flash a program takes.
fn size(program: &Path) -> u64 {
    let sizes = done(Command::new("arm-none-eabi-size").arg(program)).stdout;
    let sizes = String::from_utf8(sizes).unwrap();
    let line = sizes.lines().nth(1).unwrap();
    let sizes: Vec<u64> = line
        .split_whitespace()
        .take(2)
        .map(|n| n.parse().unwrap())
        .collect();
    sizes.iter().sum()
}

#[test]
fn a_cortex_m4_decides_as_the_heart_does_in_little_room() {
    let programs = ["qemu-system-arm", "arm-none-eabi-gcc"];
    if !here(
        "an emulated Cortex-M4",
        &programs,
        "HALTWISE_REQUIRE_EMBEDDED",
    ) {
        return;
    }
    // `make embedded` builds it.
    let library = root().join("target/thumbv7em-none-eabihf/embedded/libhaltwise_c.a");
    if !library.exists() {
        assert!(
            std::env::var_os("HALTWISE_REQUIRE_EMBEDDED").is_none(),
            "run make embedded"
        );
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED an emulated Cortex-M4: run make embedded"
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (folder, outputs) = (folder.path(), outputs());
    let link = |options: &[&str], name: &str| {
        let program = folder.join(name);
        done(
            Command::new("arm-none-eabi-gcc")
                .args([
                    "-mcpu=cortex-m4",
                    "-mthumb",
                    "-mfloat-abi=hard",
                    "-mfpu=fpv4-sp-d16",
                ])
                .args([
                    "-std=gnu11",
                    "-Os",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-ffreestanding",
                ])
                .args([
                    "-nostdlib",
                    "-ffunction-sections",
                    "-fdata-sections",
                    "-Wl,--gc-sections",
                ])
                .args(options)
                .arg("-I")
                .arg(include())
                .arg(format!("-T{}", example("device.ld").display()))
                .args([example("decide.c"), example("device.c"), library.clone()])
                .args(["-lgcc", "-o"])
                .arg(&program),
        );
        let symbols = done(Command::new("arm-none-eabi-nm").arg(&program)).stdout;
        let symbols = String::from_utf8(symbols).unwrap();
        assert!(!symbols.contains("panic"), "it can panic: {symbols}");
        program
    };
    let plain = link(&["-DONLY_THRESHOLDS"], "plain.elf");
    let all = link(&[], "all.elf");
    // Example and all: the library alone is smaller.
    let (plain_size, all_size) = (size(&plain), size(&all));
    assert!(plain_size <= 16 << 10, "{plain_size} bytes for thresholds");
    assert!(
        all_size <= 32 << 10,
        "{all_size} bytes with the learned score"
    );
    println!("{plain_size} bytes for thresholds, {all_size} with the learned score");
    assert!(size_of::<haltwise_stream::State>() <= 64);

    for name in RULES {
        let rule = rule(name);
        write_inputs(folder, &rule, &outputs);
        let learned = rule.live().room() > 0;
        for program in if learned {
            vec![&all]
        } else {
            vec![&all, &plain]
        } {
            let said = done(
                Command::new("qemu-system-arm")
                    .args(["-M", "mps2-an386", "-nographic", "-monitor", "none"])
                    .args(["-serial", "none", "-icount", "shift=0"])
                    .args(["-semihosting-config", "enable=on,target=native", "-kernel"])
                    .arg(program)
                    .current_dir(folder),
            );
            let decisions = std::fs::read(folder.join("decisions.bin")).unwrap();
            assert!(decisions == expected(&rule, &outputs), "{name}");
            let (out, err) = (&said.stdout, &said.stderr);
            println!(
                "{name}: {}{}",
                String::from_utf8_lossy(out),
                String::from_utf8_lossy(err)
            );
        }
    }
}
