//! Who is admitted, and how often.

use super::authority::{Authority, Pair};
use super::harness::{Server, request};
use super::{TLS, basic, tls};
use crate::serve::web::serve::ClientLimits;
use crate::serve::web::tally::WebEvent;
use crate::serve::web::users::tests::hash;
use std::time::Duration;

#[tokio::test]
async fn any_client_certificate_is_taken_from_who_has_its_key() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let (own, client) = (Authority::own(|_| {}).0, other.client());
    for version in ["TLS12", "TLS13"] {
        for (auth, without) in [("RequireAnyClientCert", false), ("RequestClientCert", true)] {
            let config = format!("{TLS}  client_auth_type: {auth}\n  max_version: {version}\n");
            let config = config.replace("max_version: TLS13", "min_version: TLS13");
            let server = tls(&authority, &config);
            for own in [&own, &client] {
                assert!(server.get_tls(&authority, Some(own)).await.is_ok(), "{config}");
            }
            assert_eq!(server.get_tls(&authority, None).await.is_ok(), without, "{config}");
            let stolen = Pair { key: own.key.clone(), ..client.clone() };
            assert!(server.get_tls(&authority, Some(&stolen)).await.is_err(), "{config}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_above_the_limit_are_answered_with_429() {
    let config =
        format!("rate_limit: {{interval: 1h, burst: 3}}\nbasic_auth_users:\n  alice: {}\n", hash("wonder"));
    let server = Server::with(ClientLimits::default(), &config, &[]);
    let mut statuses = Vec::new();
    // Those without a password count, too: on all connections together.
    for headers in
        [basic("alice", "wonder"), String::new(), basic("alice", "wonder"), basic("alice", "wonder")]
    {
        let answer = request(server.connect().await, "/", &headers).await.unwrap();
        statuses.push(answer.split(' ').nth(1).unwrap().to_owned());
    }
    assert_eq!(statuses, ["200", "401", "200", "429"]);
    server.put(&format!("{config}# changed\n"));
    assert!(request(server.connect().await, "/", "").await.unwrap().starts_with("HTTP/1.1 429"));
    assert_eq!((server.count(WebEvent::Limited), server.count(WebEvent::Denied)), (2, 1));
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert!(
        request(server.connect().await, "/", &basic("alice", "wonder")).await.unwrap().ends_with("served\n")
    );
}
