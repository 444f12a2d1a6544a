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
        _ => polyrail_bench::run(Arguments::parse().bench),
    };
    std::process::exit(code);
}
