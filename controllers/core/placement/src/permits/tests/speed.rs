//! How fast requests are answered: `cargo test --release -p neonvm-core-placement speed -- --ignored --nocapture`.

use super::*;

/// 1,000 nodes and 20,000 VMs; agents ask in turns, half of them for more, half for less.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement")]
fn requests_in_a_second() {
    let mut state = State::new(Settings::default());
    for n in 0..1000 {
        state.step(at(0), node(&format!("node-{n:04}"), cu(100)));
    }
    let mut pods = Vec::new();
    for v in 0..20_000_u32 {
        let pod = format!("compute-endpoint-{v:05}-abcde");
        state.step(at(0), seen(vm(&pod, &format!("node-{:04}", v % 1000), 1, 8)));
        pods.push(name(&pod));
    }
    state.step(at(0), Event::Listed);
    let mut held = vec![1_u64; pods.len()];
    let mut measure = |what: &str, stride: usize| {
        let (rounds, start) = (4_000_000_usize, std::time::Instant::now());
        let mut at_pod = 0;
        for round in 0..rounds {
            at_pod = (at_pod + stride) % pods.len();
            let wanted = 1 + (round as u64 * 7 + at_pod as u64) % 8;
            let request = Request::new(res(1), res(wanted), Some(res(held[at_pod])));
            let now = Duration::from_micros(round as u64);
            let reply = state.request(now, &pods[at_pod], &request).unwrap();
            held[at_pod] = u64::from(reply.permit.vcpus.milli() / 1000);
        }
        let took = start.elapsed();
        println!("{what}: {:.0} requests/s", rounds as f64 / took.as_secs_f64());
    };
    measure("in order", 1);
    measure("scattered", 7919);
    audit(&state);
}
