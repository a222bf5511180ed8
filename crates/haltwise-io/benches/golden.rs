//! Both methods on one split of the paper's ElectricDevices traces. The authors' Python
//! needs 46 s for it (34 screening, 12 certifying).
//!
//! Needs the golden files next to the folder that `HALTWISE_DATA` names.

#![allow(clippy::expect_used)]

use std::hint::black_box;
use std::path::PathBuf;

use criterion::{Criterion, criterion_group, criterion_main};
use haltwise::{Ask, Inputs, Method, Plan};
use haltwise_io::{read_integers, read_traces};

fn electric_devices(c: &mut Criterion) {
    let golden =
        std::env::var_os("HALTWISE_DATA").map(|data| PathBuf::from(data).join("../golden"));
    let Some(golden) = golden.filter(|golden| golden.is_dir()) else {
        eprintln!("SKIPPED electric_devices: no golden files; set HALTWISE_DATA");
        return;
    };
    let file = |name: &str| golden.join(format!("ElectricDevices.{name}.npz"));
    let all = read_traces(&[file("traces")], &mut |_, _| {}).expect("golden traces");
    let order = read_integers(&file("splits"), "order").expect("golden splits");
    let n_test = read_integers(&file("splits"), "n_test")
        .expect("golden splits")
        .values[0];
    let first = order.values[..order.shape[1]].iter().map(|&i| i as usize);
    let calibration: Vec<usize> = first.skip(n_test as usize).collect();
    let (screen, certify) = calibration.split_at(calibration.len() / 2);
    let part = |positions: &[usize]| all.select(positions.iter().copied());
    let (screening, certifying) = (part(screen), part(certify));
    let both = part(&calibration);

    let mut group = c.benchmark_group("ElectricDevices, one split");
    group.bench_function("conditional", |b| {
        let plan = Plan::new(Ask {
            method: Some(Method::Conditional),
            screen: true,
            ..Ask::default()
        });
        let plan = plan.expect("sound");
        b.iter(|| plan.calibrate(Inputs::one(&certifying).screen(black_box(&screening))))
    });
    group.bench_function("marginal", |b| {
        let plan = Plan::of(Method::Marginal);
        b.iter(|| plan.calibrate(Inputs::one(black_box(&both))))
    });
    group.bench_function("read the file", |b| {
        b.iter(|| read_traces(&[file("traces")], &mut |_, _| {}))
    });
    group.finish();
}

criterion_group!(benches, electric_devices);
criterion_main!(benches);
