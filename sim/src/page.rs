//! A trace as one self-contained page: time runs down, a column a process, arrows for records.

use serde::Serialize;

use crate::oracle::Violation;
use crate::trace::Trace;

const HEAD: &str = include_str!("page.html");

#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    entries: &'a [crate::trace::Entry],
    violations: &'a [Violation],
}

/// The page of a run.
///
/// # Errors
/// Where the trace cannot be encoded, which plain data always can.
pub fn render(title: &str, trace: &Trace, violations: &[Violation]) -> Result<String, String> {
    let data = Data { title, entries: trace.entries(), violations };
    let json = serde_json::to_string(&data).map_err(|error| error.to_string())?;
    // Inside a script element only `</` could end the text early.
    Ok(HEAD.replace("/*DATA*/", &json.replace("</", "<\\/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{RunOf, Seat};

    #[test]
    fn the_page_holds_the_trace_and_cannot_be_ended_by_it() {
        let mut trace = Trace::default();
        trace.note(5, RunOf { seat: Seat(0), run: 1 }, "says </script>");
        let page = render("seed 1", &trace, &[]).unwrap();
        assert!(page.contains("says <\\/script>"));
        assert!(!page.contains("/*DATA*/"));
        assert_eq!(page.matches("</script>").count(), 1);
    }
}
