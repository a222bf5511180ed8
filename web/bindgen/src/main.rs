//! Makes the JavaScript beside a WebAssembly module: `bindgen MODULE FOLDER NAME`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, folder, name] = &arguments[..] else {
        eprintln!("usage: bindgen MODULE FOLDER NAME");
        return ExitCode::from(2);
    };
    let mut bindgen = wasm_bindgen_cli_support::Bindgen::new();
    let made = bindgen
        .input_path(module)
        .out_name(name)
        .typescript(true)
        .web(true);
    let made = made.map(|made| {
        made.remove_name_section(true)
            .remove_producers_section(true)
    });
    match made.and_then(|made| made.generate(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{module}: {error:?}");
            ExitCode::FAILURE
        }
    }
}
