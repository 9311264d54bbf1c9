//! Runs in a Debian with systemd on kfdsim's GPUs: the installed service under load, and Debian's Prometheus,
//! which scrapes it.

mod activity;
mod alerts;
mod apparmor;
mod life;
mod load;
mod recording;
mod return_probes;
mod tour;
mod web;
