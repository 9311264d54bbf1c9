//! The incident of docs/tour.md: who is in it, and its pictures in order, each of what a command or a page shows.
//! tests/tests/service/tour.rs plays it, with these words; a test here reads them in the document.

/// A process of the incident, in a Slurm job of its own.
#[derive(Clone, Copy, Debug)]
pub struct Actor {
    pub comm: &'static str,
    /// Higher than those of other tests: no thread that lives long has it.
    pub pid: u32,
    pub job: u32,
}

/// The one that suffers.
pub const VICTIM: Actor = Actor { comm: "train", pid: 20_817, job: 118 };
/// The one whose queues are slow to be taken off the GPU.
pub const CULPRIT: Actor = Actor { comm: "sweep", pid: 21_344, job: 121 };

/// Fires first.
pub const ALERT: &str = "KfdPreemptionSlow";

/// A picture, and the command or address that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// In docs/tour.
    pub picture: &'static str,
    pub shown_by: &'static str,
}

pub const FIRES: Step = Step {
    picture: "1-alert.svg",
    shown_by: "curl -s http://127.0.0.1:9090/api/v1/alerts | jq -C '.data.alerts[]' | fold -sw 140",
};
pub const NODE: Step = Step { picture: "2-page.png", shown_by: "http://127.0.0.1:20200/" };
pub const TOP: Step = Step { picture: "3-top.svg", shown_by: "kfd-trace top" };
pub const RUNLIST: Step = Step { picture: "4-runlist.svg", shown_by: "kfd-trace runlist --interval 10s" };
pub const PROCESS: Step =
    Step { picture: "5-process.png", shown_by: "http://127.0.0.1:20200/process?pid=21344" };
pub const REPLAY: Step = Step {
    picture: "6-replay.svg",
    shown_by: "kfd-trace replay /var/lib/kfd-trace-recordings --pid 21344 --event preempt --event process_release \
               --color always | tail -n 20",
};

/// In the order of the document.
pub const STEPS: [Step; 6] = [FIRES, NODE, TOP, RUNLIST, PROCESS, REPLAY];

#[cfg(test)]
mod tests {
    use super::{ALERT, CULPRIT, STEPS, VICTIM};
    use crate::harness::prometheus::RULES;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// What a picture may take, bytes.
    const ROOM: [(&str, usize); 2] = [("svg", 30_000), ("png", 200_000)];

    fn docs() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
    }

    fn text() -> String {
        fs::read_to_string(docs().join("tour.md")).unwrap()
    }

    /// Alternative texts and files of the document's pictures.
    fn pictures(text: &str) -> Vec<(&str, &str)> {
        let begun = text.split("![").skip(1).filter_map(|rest| rest.split_once("](tour/"));
        begun.filter_map(|(alt, rest)| Some((alt, rest.split_once(')')?.0))).collect()
    }

    /// The code blocks, joined to one line where the shell does so.
    fn commands(text: &str) -> Vec<String> {
        let blocks = text.split("```").skip(1).step_by(2);
        blocks.map(|block| block.trim_start_matches("sh").trim().replace(" \\\n  ", " ")).collect()
    }

    #[test]
    fn the_document_has_the_pictures_and_commands_of_the_incident_in_order() {
        let text = text();
        let shown: Vec<_> = pictures(&text).iter().map(|(_, file)| *file).collect();
        assert_eq!(shown, STEPS.map(|step| step.picture));
        assert_eq!(commands(&text), STEPS.map(|step| step.shown_by));
    }

    #[test]
    fn its_pictures_exist_and_are_small_and_those_with_text_name_the_culprit() {
        for step in STEPS {
            let bytes = fs::read(docs().join("tour").join(step.picture)).expect(step.picture);
            let (_, room) = ROOM.iter().find(|(kind, _)| step.picture.ends_with(kind)).unwrap();
            assert!(bytes.len() < *room, "{}: {} bytes", step.picture, bytes.len());
            let pid = CULPRIT.pid.to_string();
            let named = || String::from_utf8_lossy(&bytes).contains(&pid);
            assert!(step.picture.ends_with("png") || named(), "{} without {pid}", step.picture);
        }
        assert_eq!(
            fs::read_dir(docs().join("tour")).unwrap().count(),
            STEPS.len(),
            "no picture is left over"
        );
    }

    #[test]
    fn it_names_the_alert_and_both_processes() {
        let text = text();
        assert!(RULES.contains(&format!("alert: {ALERT}\n")));
        assert!(text.contains(&format!("[{ALERT}](runbooks.md#{})", ALERT.to_lowercase())), "{ALERT}");
        for actor in [CULPRIT, VICTIM] {
            for words in
                [format!("PID {}", actor.pid), format!("`{}`", actor.comm), format!("job {}", actor.job)]
            {
                assert!(text.contains(&words), "{words}");
            }
        }
        for (alt, file) in pictures(&text) {
            assert!(alt.contains(CULPRIT.comm), "{file} is described by: {alt}");
        }
    }
}
