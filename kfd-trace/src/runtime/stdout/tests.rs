use super::*;
use std::io::Read as _;

const SECOND: Duration = Duration::from_secs(1);

/// A pipe holds 64 KiB by default (fs/pipe.c, PIPE_DEF_BUFFERS).
const PIPE: usize = 64 << 10;

fn numbered(out: &mut StdoutWriter, from: u32, to: u32) {
    for n in from..to {
        out.line("test", |line| writeln!(line, "{n:099}")).unwrap();
    }
}

fn lines(text: &str) -> Vec<u32> {
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn all_is_written_in_order_to_a_reader_that_reads() {
    let (mut reader, writer) = io::pipe().unwrap();
    let mut out = StdoutWriter::new(writer, 10_000).unwrap();
    // On a busy machine its reader runs late.
    (out.patience, out.timeout) = (60 * SECOND, 60 * SECOND);
    let read = thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    for begin in 0..50 {
        numbered(&mut out, begin * 100, (begin + 1) * 100);
        out.flush().unwrap();
    }
    out.always(|line| writeln!(line, "5000")).unwrap();
    assert_eq!(out.dropped().values().sum::<u64>(), 0);
    out.finish(60 * SECOND).unwrap();
    assert_eq!(lines(&read.join().unwrap()), (0..=5000).collect::<Vec<_>>());
}

#[test]
fn a_reader_that_does_not_read_blocks_nothing_and_dropped_lines_are_counted() {
    let (mut reader, writer) = io::pipe().unwrap();
    let mut out = StdoutWriter::new(writer, 10_000).unwrap();
    assert_eq!(out.news(Instant::now()), None);
    let begin = Instant::now();
    for batch in 0..100 {
        numbered(&mut out, batch * 100, (batch + 1) * 100);
        out.flush().unwrap();
    }
    assert!(out.timeout.is_zero(), "it ends once, and comes back when the reader has caught up");
    let dropped = out.dropped()["test"];
    let fit = u64::try_from((PIPE + CHUNK + 10_000) / 100).unwrap();
    assert!(dropped >= 10_000 - fit && dropped < 10_000, "{dropped}");
    assert_eq!((out.news(begin), out.news(begin + NEWS)), (Some(dropped), None), "it is reported once");
    // it reads again
    let read = thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    let resumed = Instant::now();
    while out.shared.queue().waiting.len() > 5_000 {
        assert!(resumed.elapsed() < 60 * SECOND);
        thread::yield_now();
    }
    numbered(&mut out, 10_000, 10_010);
    assert_eq!(out.dropped()["test"], dropped);
    out.finish(60 * SECOND).unwrap();
    let read = lines(&read.join().unwrap());
    assert_eq!(read.len() as u64 + dropped, 10_010);
    assert!(read.is_sorted() && read.ends_with(&(10_000..10_010).collect::<Vec<_>>()));
}

#[test]
fn the_end_does_not_wait_for_the_reader_and_reports_how_much_is_missing() {
    let (reader, writer) = io::pipe().unwrap();
    let mut out = StdoutWriter::new(writer, 10_000).unwrap();
    numbered(&mut out, 0, 2000);
    let begin = Instant::now();
    let sent = 100 * (2000 - out.dropped()["test"]);
    let error = out.finish(SECOND / 10).unwrap_err();
    assert!(begin.elapsed() < 60 * SECOND, "{:?}", begin.elapsed());
    let text = error.to_string();
    let bytes = text.split_whitespace().find_map(|word| word.parse::<u64>().ok()).unwrap();
    // a write that hangs may have filled the pipe in part
    assert!(bytes <= sent && bytes >= sent.saturating_sub(PIPE as u64), "{text}; {sent} were sent");
    drop(reader);
}

#[test]
fn a_slow_reader_gets_everything() {
    struct Slow(Arc<Mutex<Vec<u8>>>);
    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            thread::sleep(SECOND / 20);
            let taken = &bytes[..bytes.len().min(100)];
            self.0.lock().unwrap().extend_from_slice(taken);
            Ok(taken.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let taken = Arc::<Mutex<Vec<u8>>>::default();
    let mut out = StdoutWriter::new(Slow(taken.clone()), 10_000).unwrap();
    let begin = Instant::now();
    numbered(&mut out, 0, 50);
    out.finish(2 * SECOND).unwrap();
    assert!(begin.elapsed() > 2 * SECOND, "longer than for one that takes nothing");
    assert_eq!(lines(std::str::from_utf8(&taken.lock().unwrap()).unwrap()), (0..50).collect::<Vec<_>>());
}

#[test]
fn a_closed_pipe_is_reported_at_the_next_flush_and_nothing_is_kept_for_it() {
    let (reader, writer) = io::pipe().unwrap();
    let mut out = StdoutWriter::new(writer, 10_000).unwrap();
    drop(reader);
    numbered(&mut out, 0, 10);
    let begin = Instant::now();
    let error = loop {
        if let Err(error) = out.flush() {
            break error;
        }
        assert!(begin.elapsed() < 60 * SECOND);
    };
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    numbered(&mut out, 0, 1000);
    assert!(out.shared.queue().waiting.len() <= 10_000);
    out.finish(60 * SECOND).unwrap();
}

#[test]
fn room_follows_the_ring_buffer_within_bounds() {
    assert_eq!([4096, 1 << 20, 1 << 30].map(room), [256 << 10, 8 << 20, 64 << 20]);
}
