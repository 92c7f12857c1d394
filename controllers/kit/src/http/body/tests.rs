use std::convert::Infallible;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use http_body_util::StreamBody;
use hyper::body::Frame;

use super::*;

const RULES: Rules = Rules { known: 8 << 20, ..Rules::SERVICE };
const CHUNK: usize = 32 << 10;

fn announced(length: usize) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_LENGTH, length.into());
    headers
}

/// A body of so many bytes; with `stall` it then sends nothing more and does not end.
fn body(length: usize, stall: bool) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
    let chunks = stream::iter(0..length.div_ceil(CHUNK));
    let chunks = chunks.map(move |index| Bytes::from(vec![7; CHUNK.min(length - index * CHUNK)]));
    let rest = stream::iter(stall.then_some(())).then(|()| std::future::pending());
    StreamBody::new(chunks.chain(rest).map(|bytes| Ok(Frame::data(bytes))).boxed())
}

#[tokio::test(start_paused = true)]
async fn what_strangers_take_stays_within_their_budget() {
    let budget = Budget::new(RULES);
    let eight = 8 << 20;
    // 90 bodies of 8 MiB at once; what has arrived is kept, as by handlers that never end.
    let headers = announced(eight);
    let attack = join_all((0..90).map(|_| budget.read(&headers, body(eight, false), false, eight)));
    let read = attack.await;
    let taken = read.iter().filter(|read| read.is_ok()).count();
    assert_eq!(taken, RULES.strangers / eight);
    let refused = read.iter().filter_map(|read| read.as_ref().err());
    assert!(refused.into_iter().all(|why| *why == Refused::NoRoom));
    assert!(budget.most(false) <= RULES.strangers + 90 * RULES.small, "{}", budget.most(false));
    // Known peers notice nothing of it.
    let (bytes, held) = budget.read(&headers, body(eight, false), true, eight).await.unwrap();
    assert_eq!((bytes.len(), budget.most(true)), (eight, eight));
    drop((bytes, held, read));
    assert!(budget.read(&headers, body(eight, false), false, eight).await.is_ok(), "it is given back");
}

#[tokio::test(start_paused = true)]
async fn who_sends_slowly_never_takes_from_the_budget() {
    let budget = Budget::new(RULES);
    let eight = 8 << 20;
    let headers = announced(eight);
    let slow = join_all((0..20).map(|_| budget.read(&headers, body(RULES.small, true), false, eight)));
    let fast = async {
        let read = budget.read(&headers, body(eight, false), false, eight).await;
        read.map(|(bytes, _)| bytes.len())
    };
    let (slow, fast) = tokio::join!(slow, fast);
    assert_eq!(fast, Ok(eight));
    assert!(slow.iter().all(|read| matches!(read, Err(Refused::TooSlow))));
    // A caller that has used some of it has little time for the rest.
    let begun = Instant::now();
    let stalled = budget.read(&headers, body(1 << 20, true), false, eight).await;
    assert!(matches!(stalled, Err(Refused::TooSlow)));
    assert_eq!(begun.elapsed(), RULES.rest);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_long_is_refused_before_it_is_read() {
    let budget = Budget::new(RULES);
    let none = HeaderMap::new();
    let long = budget.read(&announced(101), body(101, false), false, 100).await;
    assert_eq!(long.err(), Some(Refused::TooLarge(100)));
    assert_eq!(budget.most(false), 0);
    let chunked = budget.read(&none, body(CHUNK + 1, false), false, CHUNK).await;
    assert_eq!(chunked.err(), Some(Refused::TooLarge(CHUNK)));
    let unwanted = budget.read(&none, body(1, false), false, 0).await;
    assert_eq!(unwanted.err(), Some(Refused::TooLarge(0)));
    let empty = budget.read(&none, http_body_util::Empty::new(), false, 0).await;
    assert_eq!(empty.unwrap().0, Bytes::new());
}
