use super::*;

/// With the lowest cost.
pub(in crate::serve::web) fn hash(password: &str) -> String {
    bcrypt::hash_with_salt(password, 4, [7; 16]).expect("hashes").to_string()
}

fn users(named: &[(&str, &str)]) -> Users {
    let hashes = named.iter().map(|(name, password)| ((*name).to_owned(), hash(password).parse().unwrap()));
    Users::new(hashes.collect()).unwrap().expect("users")
}

async fn admitted(users: &Users, name: &str, password: &str) -> bool {
    users.admit(&Authorization::basic(name, password), &Arc::new(Semaphore::new(1))).await
}

#[tokio::test]
async fn only_a_user_with_the_right_password_is_admitted() {
    let users = users(&[("alice", "wonder"), ("bob", "builder")]);
    for _ in 0..2 {
        assert!(admitted(&users, "alice", "wonder").await && admitted(&users, "bob", "builder").await);
        for (name, password) in [
            ("alice", "builder"),
            ("bob", "wonder"),
            ("alice", ""),
            ("", ""),
            ("Alice", "wonder"),
            ("carol", "wonder"),
        ] {
            assert!(!admitted(&users, name, password).await, "{name} {password}");
        }
    }
}

#[tokio::test]
async fn an_unknown_name_is_refused_with_any_password() {
    let users = users(&[("alice", "wonder")]);
    assert!(!admitted(&users, "carol", "wonder").await && !admitted(&users, "carol", "wonder").await);
    assert!(users.remembered().is_empty());
}

#[tokio::test]
async fn a_password_that_was_right_is_known_again_and_no_other() {
    let users = users(&[("alice", "wonder"), ("bob", "builder")]);
    assert!(matches!(users.check("alice", "wonder"), Check::Hash { known: true, .. }));
    assert!(!admitted(&users, "alice", "builder").await);
    assert!(!admitted(&users, "carol", "wonder").await);
    assert!(users.remembered().is_empty());
    assert!(admitted(&users, "alice", "wonder").await);
    assert!(matches!(users.check("alice", "wonder"), Check::Remembered));
    for (name, password) in [("alice", "Wonder"), ("bob", "wonder"), ("carol", "wonder")] {
        assert!(matches!(users.check(name, password), Check::Hash { .. }), "{name}");
    }
    let kept = format!("{:?}", users.remembered().get("alice").unwrap().as_ref());
    assert!(!kept.contains(&format!("{:?}", b"wonder")), "{kept}");
}

#[tokio::test]
async fn a_change_forgets_only_passwords_that_have_changed() {
    let before = users(&[("alice", "wonder"), ("bob", "builder"), ("eve", "drop")]);
    for (name, password) in [("alice", "wonder"), ("bob", "builder"), ("eve", "drop")] {
        assert!(admitted(&before, name, password).await);
    }
    let mut after = users(&[("alice", "wonder"), ("bob", "other"), ("carol", "drop")]);
    after.remember(&before);
    assert!(matches!(after.check("alice", "wonder"), Check::Remembered));
    for (name, password) in
        [("alice", "builder"), ("bob", "builder"), ("bob", "other"), ("eve", "drop"), ("carol", "drop")]
    {
        assert!(matches!(after.check(name, password), Check::Hash { .. }), "{name} {password}");
    }
    assert!(admitted(&after, "bob", "other").await && !admitted(&after, "bob", "builder").await);
}

/// A crowd of one address guesses: one password at a time, so that there is always a place for another address.
#[tokio::test]
async fn who_guesses_keeps_no_other_address_waiting() {
    let users = Arc::new(users(&[("alice", "wonder")]));
    let turns = [Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1))];
    let wait = |turn: &Arc<Semaphore>, password: &str| {
        let (users, turn, password) = (users.clone(), turn.clone(), password.to_owned());
        tokio::spawn(async move { users.admit(&Authorization::basic("alice", &password), &turn).await })
    };
    // As if one was checked now.
    let checked = turns[0].acquire().await.unwrap();
    let mut guesses: Vec<_> = (0..50).map(|number| wait(&turns[0], &number.to_string())).collect();
    assert!(wait(&turns[1], "wonder").await.unwrap());
    assert!(guesses.iter().all(|guess| !guess.is_finished()));
    drop(checked);
    for guess in guesses.drain(..) {
        assert!(!guess.await.unwrap());
    }
}

/// What is checked for a client that goes is checked to its end, and its turn is over only then.
#[tokio::test]
async fn who_goes_has_no_second_turn_and_is_known_all_the_same() {
    let dear = bcrypt::hash_with_salt("wonder", 10, [7; 16]).expect("hashes").to_string();
    let users = Users::new([("carol".to_owned(), dear.parse().unwrap())].into()).unwrap().expect("users");
    let turn = Arc::new(Semaphore::new(1));
    let given = Authorization::basic("carol", "wonder");
    let mut goes = Box::pin(users.admit(&given, &turn));
    let polled = std::future::poll_fn(|context| std::task::Poll::Ready(goes.as_mut().poll(context))).await;
    drop(goes);
    assert!(polled.is_pending() && turn.available_permits() == 0, "it is being checked");
    assert!(!users.admit(&Authorization::basic("carol", "wrong"), &turn).await);
    assert!(matches!(users.check("carol", "wonder"), Check::Remembered));
}

#[test]
fn an_unknown_name_costs_a_hash_too_and_always_the_same() {
    let users = users(&[("alice", "wonder"), ("bob", "builder"), ("eve", "drop")]);
    let Check::Hash { hash: own, known: true } = users.check("alice", "x") else { panic!("known") };
    assert!(own.is_of("wonder") && !own.is_of("x"));
    for name in ["carol", "dave", "", "ALICE"] {
        let (Check::Hash { hash, known: false }, Check::Hash { hash: again, .. }) =
            (users.check(name, "x"), users.check(name, "y"))
        else {
            panic!("{name} is unknown")
        };
        assert_eq!(hash.0, again.0);
        assert!(users.hashes.values().any(|known| known.0 == hash.0));
    }
}

#[test]
fn hashes_of_all_kinds_are_taken_and_no_others() {
    // From OpenBSD's and crypt_blowfish's published tests.
    let known = [
        ("U*U", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"),
        ("U*U*", "$2b$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK"),
        ("U*U*U", "$2y$05$XXXXXXXXXXXXXXXXXXXXXOAcXxm9kjPGEMsLznoKqmqw7tc8WCx4a"),
    ];
    for (password, text) in known {
        let hash: Hash = text.parse().unwrap();
        assert!(hash.is_of(password) && !hash.is_of("U*"), "{text}");
        assert!(!format!("{hash:?}").contains("CCC"));
    }
    assert!(hash("a").replacen("$04$", "$18$", 1).parse::<Hash>().is_ok());
    let dear = hash("a").replacen("$04$", "$19$", 1);
    assert!(dear.parse::<Hash>().unwrap_err().contains("a cost of 19"));
    for text in ["", "wonder", "$1$abc$def", "$2b$04$short", &hash("a").replacen("$04$", "$03$", 1)] {
        assert!(text.parse::<Hash>().is_err(), "{text}");
    }
}

#[test]
fn without_users_there_is_no_check() {
    assert!(Users::new(BTreeMap::new()).unwrap().is_none());
}
