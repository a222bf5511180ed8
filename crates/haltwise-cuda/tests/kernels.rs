//! The kernels that are shipped are those of the source.

/// FNV-1a, as `kernels/build.py` computes it.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[test]
fn the_ptx_was_built_from_the_source() {
    let source = include_str!("../kernels/lstm.cu");
    let ptx = include_str!("../kernels/lstm.ptx");
    let first = format!("// built from lstm.cu, fnv1a {:016x}", hash(source));
    assert_eq!(
        ptx.lines().next(),
        Some(first.as_str()),
        "kernels/lstm.cu has changed since: run `make kernels`"
    );
    assert!(ptx.contains("\n.version 7.8\n") && ptx.contains("\n.target sm_80\n"));
}

#[test]
fn every_kernel_that_is_launched_is_there() {
    let ptx = include_str!("../kernels/lstm.ptx");
    let launches = include_str!("../src/launch.rs");
    let plain = launches.split("self.launch(\"").skip(1);
    let mut names: Vec<String> = plain
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
        .collect();
    assert!(names.len() >= 10, "{names:?}");
    for depth in [4, 8, 16] {
        for eights in [1, 2, 4, 8] {
            for way in ["forward", "backward"] {
                names.push(format!("{way}_{depth}_{eights}"));
            }
        }
    }
    names.extend([1, 2, 4, 8].map(|eights| format!("wave_{eights}")));
    names.extend([2, 3, 4, 6, 9].map(|eights| format!("many_{eights}")));
    for name in names {
        assert!(ptx.contains(&format!(".entry {name}(")), "{name}");
    }
}
