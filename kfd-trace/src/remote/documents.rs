//! The documents of the API that are read together. Each has a greatest size.

use super::client::Client;
use super::failure::Failure;
use crate::doctor::reported::Report;
use crate::output::reported::{self, Document, Events, Gpus, NotRead, Processes, Queues, Status};
use tokio::task::spawn_blocking;

const QUEUES_PATH: &str = "/api/v1/queues";

/// Some 70,000 queues.
const QUEUES: usize = 64 << 20;
/// 2 KiB for each of the 16,384 processes that a daemon keeps at most: usual ones take less, those with long cgroups or
/// activity on many GPUs more.
const PROCESSES: usize = 32 << 20;
/// 1 KiB or two for each process that has KFD open.
const DIAGNOSIS: usize = 16 << 20;
/// Each of the others.
const OTHERS: usize = 4 << 20;

/// What exists.
#[derive(Debug)]
pub struct Lists {
    pub queues: Queues,
    pub processes: Processes,
    pub gpus: Gpus,
}

/// The same before it is read: as values a document may be a hundred times as large.
#[derive(Debug)]
pub struct UnreadLists {
    queues: Vec<u8>,
    processes: Vec<u8>,
    gpus: Vec<u8>,
}

impl UnreadLists {
    /// # Errors
    /// If one is no document of the API.
    pub fn read(&self) -> Result<Lists, Failure> {
        Ok(Lists {
            queues: reported::read(&self.queues).map_err(of_document)?,
            processes: reported::read(&self.processes).map_err(of_document)?,
            gpus: reported::read(&self.gpus).map_err(of_document)?,
        })
    }
}

fn of_document(why: NotRead) -> Failure {
    match why {
        NotRead::Foreign(why) => Failure::NotTheApi(why),
        NotRead::Version(version) => Failure::OtherVersion(version),
    }
}

/// All that a screen shows.
#[derive(Debug)]
pub struct Documents {
    pub status: Status,
    pub events: Events,
    /// Or why nothing is traced now.
    pub lists: Result<Lists, String>,
}

impl Client {
    async fn read<D: Document + Send + 'static>(&mut self, path: &str, limit: usize) -> Result<D, Failure> {
        self.read_with_text(path, limit).await.map(|(document, _)| document)
    }

    async fn read_with_text<D: Document + Send + 'static>(
        &mut self,
        path: &str,
        limit: usize,
    ) -> Result<(D, String), Failure> {
        let bytes = self.get(path, limit).await?;
        let read = move || {
            let document = reported::read(&bytes)?;
            let text = String::from_utf8(bytes).map_err(|error| NotRead::Foreign(error.to_string()))?;
            Ok((document, text))
        };
        // A long one takes a while, in which keys and signals are answered.
        let read = spawn_blocking(read).await;
        read.map_err(|error| Failure::NotTheApi(error.to_string()))?.map_err(of_document)
    }

    /// Live queues.
    ///
    /// # Errors
    /// Why they could not be read.
    pub async fn queues(&mut self) -> Result<Queues, Failure> {
        self.read(QUEUES_PATH, QUEUES).await
    }

    /// What exists.
    ///
    /// # Errors
    /// As [`Client::queues`].
    pub async fn lists(&mut self) -> Result<Lists, Failure> {
        let unread = self.unread_lists().await?;
        let read = spawn_blocking(move || unread.read()).await;
        read.map_err(|error| Failure::NotTheApi(error.to_string()))?
    }

    async fn unread_lists(&mut self) -> Result<UnreadLists, Failure> {
        Ok(UnreadLists {
            queues: self.get(QUEUES_PATH, QUEUES).await?,
            processes: self.get("/api/v1/processes", PROCESSES).await?,
            gpus: self.get("/api/v1/gpus", OTHERS).await?,
        })
    }

    /// What exists, not read yet, and what the daemon sees.
    ///
    /// # Errors
    /// As [`Client::queues`].
    pub async fn status_and_lists(&mut self) -> Result<(Status, UnreadLists), Failure> {
        let status = self.status().await?;
        match status.why_not() {
            Some(why) => Err(Failure::NotTraced(why)),
            None => Ok((status, self.unread_lists().await?)),
        }
    }

    /// The diagnosis of the node, or of one of its processes; also as the daemon wrote it.
    ///
    /// # Errors
    /// As [`Client::queues`].
    pub async fn doctor(&mut self, pid: Option<u32>) -> Result<(Report, String), Failure> {
        const PATH: &str = "/api/v1/doctor";
        let path = pid.map_or_else(|| PATH.to_owned(), |pid| format!("{PATH}?pid={pid}"));
        match self.read_with_text(&path, DIAGNOSIS).await {
            // A daemon without it, or none at all.
            Err(missing @ Failure::Status(404, _)) => {
                let is_one = self.status().await.is_ok();
                Err(if is_one { Failure::NoSuchDocument(PATH) } else { missing })
            }
            read => read,
        }
    }

    async fn status(&mut self) -> Result<Status, Failure> {
        self.read("/api/v1/status", OTHERS).await
    }

    /// All of it, with the newest `events`.
    ///
    /// # Errors
    /// As [`Client::queues`], but for a daemon that traces nothing now.
    pub async fn documents(&mut self, events: usize) -> Result<Documents, Failure> {
        let status = self.status().await?;
        let lists = match status.why_not() {
            Some(why) => Err(why),
            None => match self.lists().await {
                Ok(lists) => Ok(lists),
                // It was unloaded meanwhile.
                Err(failure) => Err(failure.not_traced().map(str::to_owned).ok_or(failure)?),
            },
        };
        let events = self.read(&format!("/api/v1/events?limit={events}"), OTHERS).await?;
        Ok(Documents { status, events, lists })
    }
}
