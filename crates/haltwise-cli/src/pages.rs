//! Shell completions and manual pages.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Cli, show};

/// Print the completions for a shell
///
/// For bash: haltwise completions bash > ~/.local/share/bash-completion/completions/haltwise
#[derive(clap::Args)]
pub(crate) struct CompletionArgs {
    /// The shell to complete for
    shell: Shell,
}

pub(crate) fn completions(args: CompletionArgs) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "haltwise", &mut text);
    show::print_as_is(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Print the manual page, or write one page per verb into a folder
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The folder to write haltwise.1, haltwise-calibrate.1, … into; it is made if need be
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

pub(crate) fn man(args: ManArgs) -> anyhow::Result<ExitCode> {
    match args.output {
        Some(folder) => std::fs::create_dir_all(&folder)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), &folder))
            .with_context(|| format!("{}: cannot write the pages", folder.display()))?,
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut text)?;
            show::print_as_is(&String::from_utf8_lossy(&text))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
