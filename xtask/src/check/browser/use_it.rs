//! The page as it is used: followed, paused, filtered, sorted, taken into the past; with and without its script.

use super::cdp::Browser;
use super::{DESK, EMPTY, Fault, MOVING, TLS, USER, complaints, look, picture, url};
use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Each of these alone.
pub(super) fn all(browser: &mut Browser) -> Result<Vec<Fault>> {
    look(browser, "light", DESK)?;
    let mut wrong = Vec::new();
    for (name, used) in [
        ("followed", followed as fn(&mut Browser) -> Result<()>),
        ("nothing new", nothing_new),
        ("filtered and sorted", filtered_and_sorted),
        ("the past", past),
        ("without script", without_script),
        ("a password and TLS", guarded),
        ("the keyboard", keyboard),
        ("old content", old_content),
    ] {
        if let Err(error) = used(browser) {
            wrong.push((name.to_owned(), format!("{error:#}")));
        }
        wrong.extend(complaints(browser).into_iter().map(|line| (name.to_owned(), line)));
    }
    Ok(wrong)
}

/// The number of processes' queues on the page.
const QUEUES: &str = "document.querySelector('#top strong').textContent";

fn followed(browser: &mut Browser) -> Result<()> {
    browser.open(&url(MOVING, "/"))?;
    let before = browser.value(QUEUES)?;
    // What the reader has opened and focused stays so.
    browser.value("document.querySelector('#probes').open = true; document.querySelector('a.sort').focus(); window.mine = document.querySelector('#section-unseen'); 1")?;
    browser.becomes(&format!("{QUEUES} !== {before}"), "the page is refreshed by itself")?;
    browser.becomes("document.querySelector('#probes').open", "what was opened stays open")?;
    browser.becomes("document.activeElement.className === 'sort'", "the focus stays")?;
    browser
        .becomes("window.mine === document.querySelector('#section-unseen')", "what is the same is kept")?;
    browser.becomes("document.querySelectorAll('.spark polyline').length > 1", "rates are drawn")?;
    picture(browser, "moving")?;
    browser.value("document.querySelector('#refresh button').click()")?;
    browser.becomes(
        "document.querySelector('#refresh').textContent.includes('Not refreshed.')",
        "it is paused",
    )?;
    let paused = browser.value(QUEUES)?;
    std::thread::sleep(std::time::Duration::from_secs(7));
    browser.becomes(&format!("{QUEUES} === {paused}"), "while it is paused nothing changes")?;
    browser.value("document.querySelector('#refresh button').click()")?;
    browser.becomes(&format!("{QUEUES} !== {paused}"), "it goes on")
}

/// A refresh of a page on which nothing has happened.
fn nothing_new(browser: &mut Browser) -> Result<()> {
    browser.open(&url(EMPTY + 1, "/"))?;
    browser.events();
    browser.value("window.mine = document.querySelector('#section-queues'); 1")?;
    browser.until("Network.responseReceived")?;
    let status = |events: &[Value]| {
        let answers = events.iter().filter(|event| event["method"] == "Network.responseReceived");
        answers.map(|event| event["params"]["response"]["status"].clone()).next()
    };
    let events = browser.events();
    anyhow::ensure!(status(&events) == Some(json!(204)), "not 204: {:?}", status(&events));
    browser.becomes("window.mine === document.querySelector('#section-queues')", "nothing is replaced")
}

/// The first PID in the table of processes.
const FIRST: &str = "document.querySelector('#section-processes tbody th').textContent";

fn filtered_and_sorted(browser: &mut Browser) -> Result<()> {
    browser.open(&url(EMPTY + 2, "/"))?;
    browser.value("window.mine = 1; const q = document.querySelector('#q'); q.focus(); q.value = '4042'; q.dispatchEvent(new InputEvent('input', {bubbles: true})); 1")?;
    browser.becomes(&format!("{FIRST} === '4042'"), "what is typed filters")?;
    browser.becomes("location.search === '?q=4042'", "the address has the filter")?;
    browser.becomes("document.activeElement.id === 'q'", "the field keeps the focus")?;
    browser.value("const f = document.querySelector('#q'); f.value = ''; f.form.requestSubmit(); 1")?;
    browser
        .becomes("document.querySelectorAll('#section-processes tbody tr').length === 100", "all are back")?;
    browser.value("[...document.querySelectorAll('a.sort')].find((a) => a.textContent === 'PID').click()")?;
    browser
        .becomes("document.querySelector('th[aria-sort]').textContent === 'PID'", "a column is sorted by")?;
    browser.value("history.back()")?;
    browser.becomes("document.querySelector('th[aria-sort]').textContent === 'State'", "back")?;
    browser.becomes("window.mine === 1", "all of it without leaving the page")
}

fn past(browser: &mut Browser) -> Result<()> {
    browser.open(&url(MOVING, "/"))?;
    browser.value("const s = document.querySelector('#past input[type=range]'); s.value = s.min; s.dispatchEvent(new InputEvent('input', {bubbles: true})); 1")?;
    browser.becomes("document.querySelector('#held') !== null", "the slider shows the past")?;
    browser.becomes("document.querySelector('#gpus') === null", "and not the present beside it")?;
    browser.becomes("document.querySelector('#refresh button').hidden", "which is not refreshed")?;
    browser.value(
        "document.querySelector('#at').value = 'noon'; document.querySelector('#past').requestSubmit(); 1",
    )?;
    browser.becomes(
        "document.querySelector('#refresh').textContent.includes('give RFC 3339')",
        "a bad time is one line",
    )?;
    // The browser logs the refused request itself.
    browser.events();
    browser.value("history.go(-1)")?;
    browser.becomes("document.querySelector('#held') !== null", "back in the past")
}

/// Sorted by the keyboard, and a link within a page that is paused.
fn keyboard(browser: &mut Browser) -> Result<()> {
    browser.open(&url(EMPTY + 2, "/"))?;
    browser.value("const a = [...document.querySelectorAll('a.sort')].find((a) => a.textContent === 'PID'); a.focus(); a.click()")?;
    browser
        .becomes("document.querySelector('th[aria-sort]').textContent === 'PID'", "a column is sorted by")?;
    browser.becomes("document.activeElement.textContent === 'PID'", "its title keeps the focus")?;
    browser.open(&url(MOVING, "/"))?;
    browser.value("document.querySelector('#refresh button').click(); window.mine = document.querySelector('#section-top'); document.querySelector('a[href=\"#queues\"]').click()")?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    browser.becomes("window.mine === document.querySelector('#section-top')", "a paused page stays as it is")
}

/// The server does not answer any more.
fn old_content(browser: &mut Browser) -> Result<()> {
    browser.open(&url(MOVING, "/"))?;
    let offline = |offline: bool| json!({"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1});
    browser.call("Network.emulateNetworkConditions", &offline(true))?;
    browser.becomes(
        "document.querySelector('#refresh').textContent.includes('this content is old')",
        "it is said",
    )?;
    std::thread::sleep(std::time::Duration::from_secs(11));
    let then = browser.value("document.querySelector('time.now').textContent")?;
    std::thread::sleep(std::time::Duration::from_secs(3));
    browser.becomes(
        &format!("document.querySelector('time.now').textContent === {then}"),
        "its time stands still",
    )?;
    browser.call("Network.emulateNetworkConditions", &offline(false))?;
    browser.becomes(
        "document.querySelector('#refresh').textContent.includes('Refreshed every')",
        "it goes on",
    )?;
    // The browser logs what it could not fetch.
    browser.events();
    Ok(())
}

fn without_script(browser: &mut Browser) -> Result<()> {
    browser.call("Emulation.setScriptExecutionDisabled", &json!({"value": true}))?;
    let used = browser.open(&url(EMPTY + 2, "/?q=404&sort=pid")).and_then(|()| {
        browser.becomes(&format!("{FIRST} === '4040'"), "links and forms do it")?;
        browser.becomes(
            "document.querySelector('#refresh').textContent.includes('Reload the page')",
            "and it says so",
        )
    });
    browser.call("Emulation.setScriptExecutionDisabled", &json!({"value": false}))?;
    used
}

/// Requests of the browser have the password from now on.
pub(super) fn with_password(browser: &mut Browser) -> Result<()> {
    let authorization = format!("Basic {}", STANDARD.encode(USER));
    browser
        .call("Network.setExtraHTTPHeaders", &json!({"headers": {"Authorization": authorization}}))
        .map(drop)
}

fn guarded(browser: &mut Browser) -> Result<()> {
    with_password(browser)?;
    browser.open(&format!("https://127.0.0.1:{}/", MOVING + TLS))?;
    let before = browser.value(QUEUES)?;
    browser.becomes(&format!("{QUEUES} !== {before}"), "the page is refreshed by itself")?;
    browser.call("Network.setExtraHTTPHeaders", &json!({"headers": {}})).map(drop)
}

/// Bytes that came over the network since the last look, headers included.
pub(super) fn received(browser: &mut Browser) -> f64 {
    std::thread::sleep(std::time::Duration::from_millis(300));
    let events = browser.events();
    let done = events.iter().filter(|event| event["method"] == "Network.loadingFinished");
    done.filter_map(|event| event["params"]["encodedDataLength"].as_f64()).sum()
}
