//! A receiver of OTLP logs by HTTP/1.1 on loopback, which behaves as collectors and networks do at their worst.

use anyhow::{Context, Result, ensure};
use prost::Message as _;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

mod messages;

use messages::{Attribute, Request as Message, Value};

/// What it does with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// It keeps the records, then acknowledges.
    #[default]
    Takes,
    /// It keeps nothing, and asks to try again.
    Refuses,
    /// It acknowledges, and keeps nothing.
    Forgets,
    /// It keeps the records, and ends before it acknowledges: the connection is closed, and no other is taken.
    Dies,
    /// It takes connections and reads, and never answers.
    Stalls,
}

/// A record: its attributes as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    pub event: String,
    pub unix_ns: u64,
    pub attributes: BTreeMap<String, String>,
    pub resource: Arc<BTreeMap<String, String>>,
}

impl Received {
    /// # Errors
    /// It has no such number.
    pub fn number(&self, name: &str) -> Result<u64> {
        let text = self.attributes.get(name).with_context(|| format!("no {name}: {self:?}"))?;
        text.parse().with_context(|| format!("{name} {text}"))
    }
}

/// A request that was acknowledged or kept, or both.
#[derive(Clone, Debug)]
pub struct Request {
    pub mood: Mood,
    /// An `ExportLogsServiceRequest`.
    pub body: Vec<u8>,
}

#[derive(Debug, Default)]
struct Kept {
    mood: Mood,
    kept: Vec<Received>,
    forgotten: Vec<Received>,
    bodies: Vec<Request>,
    requests: usize,
    open: Vec<TcpStream>,
}

/// The receiver.
#[derive(Debug)]
pub struct Receiver {
    pub address: SocketAddr,
    shared: Arc<Mutex<Kept>>,
}

fn lock(shared: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Receiver {
    /// # Errors
    /// There is no port.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Mutex::new(Kept::default()));
        let receiver = Receiver { address, shared };
        receiver.listen(listener);
        Ok(receiver)
    }

    fn listen(&self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if lock(&shared).mood == Mood::Dies {
                    return;
                }
                lock(&shared).open.extend(stream.try_clone());
                let shared = Arc::clone(&shared);
                // What the other side breaks off is no error here.
                thread::spawn(move || drop(serve(&stream, &shared)));
            }
        });
    }

    pub fn set(&self, mood: Mood) {
        lock(&self.shared).mood = mood;
    }

    /// After it died: it is there again, at the same port.
    ///
    /// # Errors
    /// The port is not free.
    pub fn revive(&self) -> Result<()> {
        // The thread that waits for connections ends with one.
        drop(TcpStream::connect_timeout(&self.address, Duration::from_secs(5)));
        let listener = super::wait::until("the port to be free", super::wait::SOON, || {
            Ok(TcpListener::bind(self.address).ok())
        })?;
        self.set(Mood::Takes);
        self.listen(listener);
        Ok(())
    }

    /// What it kept, in the order of arrival.
    #[must_use]
    pub fn kept(&self) -> Vec<Received> {
        lock(&self.shared).kept.clone()
    }

    /// What it acknowledged and did not keep.
    #[must_use]
    pub fn forgotten(&self) -> Vec<Received> {
        lock(&self.shared).forgotten.clone()
    }

    /// What it acknowledged or kept, as it came.
    #[must_use]
    pub fn bodies(&self) -> Vec<Request> {
        lock(&self.shared).bodies.clone()
    }

    /// Requests that were read whole.
    #[must_use]
    pub fn requests(&self) -> usize {
        lock(&self.shared).requests
    }
}

fn serve(stream: &TcpStream, shared: &Mutex<Kept>) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    loop {
        let (mut length, mut first) = (0, true);
        loop {
            let mut line = String::new();
            ensure!(reader.read_line(&mut line)? > 0, "closed");
            if std::mem::take(&mut first) {
                ensure!(line == "POST /v1/logs HTTP/1.1\r\n", "{line}");
            }
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse()?;
                }
                Some(_) => {}
                None if line.trim_end().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let records = records(&body)?;
        let mut kept = lock(shared);
        kept.requests += 1;
        let mood = kept.mood;
        if !matches!(mood, Mood::Stalls | Mood::Refuses) {
            kept.bodies.push(Request { mood, body });
        }
        let status = match mood {
            Mood::Stalls => continue,
            Mood::Refuses => "503 Service Unavailable",
            Mood::Forgets => {
                kept.forgotten.extend(records);
                "200 OK"
            }
            Mood::Takes => {
                kept.kept.extend(records);
                "200 OK"
            }
            Mood::Dies => {
                kept.kept.extend(records);
                kept.open.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
                return Ok(());
            }
        };
        drop(kept);
        write!(out, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")?;
    }
}

fn texts(attributes: Vec<Attribute>) -> BTreeMap<String, String> {
    let text = |attribute: Attribute| {
        let text = match attribute.value?.value? {
            Value::Text(text) => text,
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
        };
        Some((attribute.key, text))
    };
    attributes.into_iter().filter_map(text).collect()
}

fn records(body: &[u8]) -> Result<Vec<Received>> {
    let mut all = Vec::new();
    for logs in Message::decode(body)?.resource_logs {
        let resource = Arc::new(texts(logs.resource.unwrap_or_default().attributes));
        for record in logs.scope_logs.into_iter().flat_map(|scope| scope.records) {
            all.push(Received {
                event: record.event_name,
                unix_ns: record.time_unix_nano,
                attributes: texts(record.attributes),
                resource: Arc::clone(&resource),
            });
        }
    }
    Ok(all)
}
