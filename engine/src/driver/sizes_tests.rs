//! What travels once a call stays small: it is moved several times on its way.

use crate::driver::Arrival;
use crate::input::Input;
use crate::link::TransportEvent;
use crate::output::{Answer, Turn};

#[test]
fn what_travels_once_a_call_stays_small() {
    let found = [
        ("Arrival", size_of::<Arrival>()),
        ("Input", size_of::<Input>()),
        ("Answer", size_of::<Answer>()),
        ("Turn", size_of::<Turn>()),
        ("TransportEvent", size_of::<TransportEvent>()),
    ];
    for (name, size) in found {
        assert!(size <= 192, "{name}: {found:?}");
    }
}
