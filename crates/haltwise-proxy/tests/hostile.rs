//! The proxy in one process with its clients and its server, some of which mean harm.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{
    CHAT, answer, ask, completion, model, proxy, question, request, send, unstored, waiting_model,
};
use haltwise_proxy::{Key, Options};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;

/// A server that begins an answer, and then neither goes on nor hangs up.
async fn pausing_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let begun = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
        stream.write_all(begun).await.unwrap();
        std::future::pending::<()>().await;
    });
    url
}

#[tokio::test]
async fn a_proxy_with_keys_lets_in_who_shows_one_and_keeps_it_from_the_server() {
    let (server, asked) = model(completion(json!(1))).await;
    let options = Options {
        keys: vec![Key::new("alice"), Key::new("bob")],
        ..Options::new(&server)
    };
    let address = proxy(&options).await;
    for path in [CHAT, "/v1/models"] {
        for wrong in [
            "",
            "Authorization: Bearer alicf\r\n",
            "Authorization: Bearer ali\r\n",
            "Authorization: Basic alice\r\n",
        ] {
            let (status, said) = ask(&address, path, wrong).await;
            assert_eq!(status, 401, "{path} {wrong}");
            assert!(said.contains("\"code\":\"invalid_api_key\""), "{said}");
        }
    }
    assert!(asked.lock().unwrap().is_empty());
    assert_eq!(
        ask(&address, CHAT, "Authorization: Bearer bob\r\n").await.0,
        200
    );
    let with_key = Options {
        server_key: Some(Key::new("upstream")),
        ..options
    };
    assert!(!format!("{with_key:?}").contains("alice"));
    let address = proxy(&with_key).await;
    assert_eq!(
        ask(&address, CHAT, "Authorization: bearer bob\r\n").await.0,
        200
    );
    let seen = std::mem::take(&mut *asked.lock().unwrap());
    assert_eq!(seen[0].1.get("authorization"), None);
    assert_eq!(seen[1].1["authorization"], "Bearer upstream");
    // The server's key is not lent to anyone.
    let open = Options {
        server_key: Some(Key::new("upstream")),
        ..Options::new(&server)
    };
    assert!(unstored(&open).await.is_err());
}

#[tokio::test]
async fn bodies_have_a_time_to_arrive_and_a_bound_each_and_in_all() {
    let (server, _) = model(completion(json!(1))).await;
    let options = Options {
        body_timeout: Duration::from_millis(1500),
        body_bytes: 1 << 20,
        ..Options::new(&server)
    };
    let address = proxy(&options).await;
    let half = vec![b' '; 600_000];
    let mut first = send(&address, CHAT, "", 700_000, &half).await;
    let mut second = send(&address, CHAT, "", 700_000, &half).await;
    let mut answers = [answer(&mut first).await, answer(&mut second).await];
    answers.sort();
    // There is room for one of them, which does not end.
    let [(late, late_said), (refused, refused_said)] = &answers;
    assert_eq!((*late, *refused), (408, 503), "{answers:?}");
    assert!(
        late_said.contains("did not arrive within 1.5 s"),
        "{answers:?}"
    );
    assert!(refused_said.contains("retry-after: 1"), "{answers:?}");
    assert!(refused_said.contains("server_error"), "{answers:?}");
    // The room of both is free again.
    assert_eq!(ask(&address, CHAT, "").await.0, 200);
    let address = proxy(&Options::new(&server)).await;
    let long = vec![b' '; (16 << 20) + 1];
    let mut stream = send(&address, CHAT, "", long.len(), &long).await;
    let (status, said) = answer(&mut stream).await;
    assert_eq!(status, 413, "{said}");
    assert!(said.contains("invalid_request_error"), "{said}");
}

#[tokio::test]
async fn paths_out_of_v1_and_headers_of_the_connection_are_not_passed_on() {
    let (server, asked) = model(completion(json!(1))).await;
    let address = proxy(&Options::new(&server)).await;
    for path in [
        "/v1/../admin",
        "/v1/%2e%2e/admin",
        "/v1/x/..%2f../admin",
        "/v1/%25%32%65%25%32%65/admin",
        "/v1/..;/admin",
    ] {
        let (status, said) = ask(&address, path, "").await;
        assert_eq!(status, 400, "{path}: {said}");
    }
    assert!(asked.lock().unwrap().is_empty());
    let more = "Connection: X-Hop\r\nX-Hop: 1\r\nX-Mine: 1\r\nProxy-Authorization: Basic eA==\r\n";
    assert_eq!(ask(&address, "/v1/embeddings", more).await.0, 200);
    let seen = asked.lock().unwrap();
    let (_, headers) = &seen[0];
    assert!(headers.contains_key("x-mine"), "{headers:?}");
    assert!(!headers.contains_key("x-hop"), "{headers:?}");
    assert!(!headers.contains_key("proxy-authorization"), "{headers:?}");
}

#[tokio::test]
async fn what_the_proxy_does_not_do_is_the_servers_or_is_said() {
    let (server, asked) = model(completion(json!(1))).await;
    let address = proxy(&Options::new(&server)).await;
    // OpenAI lists stored completions there.
    let mut stream = request(&address, "GET", CHAT, "", 0, b"").await;
    assert_eq!(answer(&mut stream).await.0, 200);
    assert_eq!(asked.lock().unwrap()[0].0, CHAT);
    for (method, path, expected) in [("GET", "/v2", 404), ("DELETE", "/ready", 405)] {
        let mut stream = request(&address, method, path, "", 0, b"").await;
        let (status, said) = answer(&mut stream).await;
        assert_eq!(status, expected, "{said}");
        assert!(said.contains("see /openapi.json"), "{said}");
    }
}

#[tokio::test]
async fn a_body_that_is_passed_through_may_not_pause_for_ever() {
    let (server, _) = model(completion(json!(1))).await;
    let options = Options {
        body_timeout: Duration::from_millis(300),
        ..Options::new(&server)
    };
    let address = proxy(&options).await;
    let mut stream = send(&address, "/v1/files", "", 100, b"half").await;
    let (status, said) = answer(&mut stream).await;
    assert_eq!(status, 408, "{said}");
}

/// A server whose answers never end, and never pause for long.
async fn endless_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let begun = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
                stream.write_all(begun).await?;
                loop {
                    stream.write_all(b"more").await?;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                #[expect(unreachable_code, reason = "it says what may fail")]
                std::io::Result::Ok(())
            });
        }
    });
    url
}

#[tokio::test]
async fn no_more_requests_are_passed_through_at_once_than_there_is_room_for() {
    let options = Options {
        concurrency: 2,
        timeout: Duration::from_millis(800),
        ..Options::new(&endless_server().await)
    };
    let address = proxy(&options).await;
    let mut passed = Vec::new();
    for _ in 0..2 {
        let mut stream = request(&address, "GET", "/v1/files", "", 0, b"").await;
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
        passed.push(stream);
    }
    // One more waits for one of them to end.
    let mut one_more = request(&address, "GET", "/v1/files", "", 0, b"").await;
    let (status, said) = answer(&mut one_more).await;
    assert_eq!(status, 504, "{said}");
    passed.pop();
    let mut one_more = request(&address, "GET", "/v1/files", "", 0, b"").await;
    let mut start = [0; 12];
    one_more.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
}

#[tokio::test]
async fn more_tokens_than_can_be_counted_do_not_overflow() {
    let (server, _) = model(completion(json!(u64::MAX))).await;
    let address = proxy(&Options::new(&server)).await;
    for _ in 0..2 {
        let (status, said) = ask(&address, CHAT, "").await;
        assert_eq!(status, 200, "{said}");
        assert!(
            said.contains(&format!("\"saved_tokens\":{}", u64::MAX)),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_stream_says_that_it_is_alive_while_votes_come_in() {
    for (reply, end) in [
        (completion(json!(1)), "data: [DONE]"),
        ("no completion".to_owned(), "upstream_error"),
    ] {
        let told = Arc::new(Notify::new());
        let server = waiting_model(reply, Arc::clone(&told)).await;
        let options = Options {
            keep_alive: Duration::from_millis(10),
            ..Options::new(&server)
        };
        let address = proxy(&options).await;
        let mut request = question();
        request["stream"] = true.into();
        let body = request.to_string();
        let close = "Connection: close\r\n";
        let mut stream = send(&address, CHAT, close, body.len(), body.as_bytes()).await;
        let mut text = String::new();
        while text.matches(": votes are being cast").count() < 3 {
            let mut part = [0; 1024];
            let read = timeout(Duration::from_secs(30), stream.read(&mut part)).await;
            let n = read.expect("a comment comes").unwrap();
            assert_ne!(n, 0, "{text}");
            text += &String::from_utf8_lossy(&part[..n]);
        }
        assert!(
            text.contains("200 OK") && text.contains("text/event-stream"),
            "{text}"
        );
        assert!(!text.contains("data:"), "{text}");
        told.notify_one();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        assert!(rest.contains(end), "{rest}");
    }
}

#[tokio::test]
async fn an_answer_that_is_passed_through_may_not_pause_for_ever() {
    let server = pausing_server().await;
    let options = Options {
        timeout: Duration::from_millis(300),
        ..Options::new(&server)
    };
    let address = proxy(&options).await;
    let close = "Connection: close\r\n";
    let mut stream = send(&address, "/v1/files", close, 0, b"").await;
    let mut text = Vec::new();
    // It ends, though the server neither goes on nor hangs up.
    let read = timeout(Duration::from_secs(30), stream.read_to_end(&mut text)).await;
    drop(read.expect("the proxy hangs up"));
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("200 OK") && text.contains("half"), "{text}");
}
