//! The instrument by itself: `bench stream --protocol tcp-cubic --rate 1000`.

use clap::Parser;

#[derive(Parser)]
#[command(name = "bench")]
struct Arguments {
    #[command(flatten)]
    bench: polyrail_bench::BenchArgs,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let code = match args.split_first() {
        Some((first, rest)) if first == polyrail_bench::AGENT_COMMAND => polyrail_bench::agent_main(rest),
        _ => match Arguments::try_parse() {
            Ok(arguments) => polyrail_bench::run(arguments.bench),
            Err(asked) if !asked.use_stderr() => asked.exit(),
            Err(error) => polyrail_bench::refuse(args.iter().any(|arg| arg == "--json"), &error.to_string()),
        },
    };
    std::process::exit(code);
}
