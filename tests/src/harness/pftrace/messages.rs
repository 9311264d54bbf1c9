//! What tests read of a trace, with messages of their own: numbers of fields are those of
//! protos/perfetto/trace/trace_packet.proto and of what that includes. kfd-trace/tests/timeline.rs reads the same.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(super) packets: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Packet {
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(message, optional, tag = "11")]
    pub(super) event: Option<Event>,
    #[prost(message, optional, tag = "12")]
    pub(super) interned: Option<Interned>,
    #[prost(message, optional, tag = "60")]
    pub(super) track: Option<Track>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(int32, optional, tag = "9")]
    pub(super) kind: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub(super) name: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub(super) track: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Interned {
    #[prost(message, repeated, tag = "2")]
    pub(super) names: Vec<Name>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Name {
    #[prost(uint64, optional, tag = "1")]
    pub(super) number: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Track {
    #[prost(uint64, optional, tag = "1")]
    pub(super) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<Process>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) parent: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Process {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
}
