//! The loop, its wakers and its clock.

use super::*;
use std::sync::mpsc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{join, select};

#[test]
fn sleeps_end_in_order_and_not_early() {
    let reactor = Reactor::new().unwrap();
    let clock = reactor.clock();
    let start = clock.now();
    let ms = Duration::from_millis;
    let order = RefCell::new(Vec::new());
    reactor.block_on(join(
        async {
            clock.sleep_until(start + ms(20)).await;
            order.borrow_mut().push("late");
        },
        async {
            clock.sleep_until(start + ms(5)).await;
            assert!(clock.now() >= start + ms(5));
            order.borrow_mut().push("early");
            clock.sleep_until(start).await;
        },
    ));
    assert_eq!(*order.borrow(), ["early", "late"]);
    assert!(clock.now() >= start + ms(20));
}

#[test]
fn a_dropped_sleep_leaves_nothing() {
    let reactor = Reactor::new().unwrap();
    let clock = reactor.clock();
    let far = clock.now() + Duration::from_secs(3_600);
    let near = clock.now() + Duration::from_millis(1);
    reactor.block_on(select(clock.sleep_until(far), clock.sleep_until(near)));
    assert!(clock.timers.lock().sleepers.is_empty());
}

#[test]
fn other_threads_wake_the_loop() {
    let reactor = Reactor::new().unwrap();
    let (to_us, from_thread) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        to_us.send(7).unwrap();
    });
    assert_eq!(reactor.block_on(from_thread), Ok(7));
    thread.join().unwrap();
}

#[test]
fn a_sleep_started_on_another_thread_shortens_the_wait() {
    let reactor = Reactor::new().unwrap();
    let clock = reactor.clock();
    let (report, ended) = mpsc::channel();
    let (end, wait) = oneshot::channel::<()>();
    let elsewhere = clock.clone();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        let at = elsewhere.now() + Duration::from_millis(5);
        Reactor::new().unwrap().block_on(elsewhere.sleep_until(at));
        report.send(elsewhere.now().since(at)).unwrap();
        end.send(()).unwrap();
    });
    // The reactor itself has no timer; the other thread's sleep must be fired by it all the same.
    reactor.block_on(wait).unwrap();
    assert!(ended.recv().unwrap() < Duration::from_secs(1));
    thread.join().unwrap();
}

#[test]
fn a_busy_future_does_not_keep_timers_from_firing() {
    let reactor = Reactor::new().unwrap();
    let clock = reactor.clock();
    let mut sleep = pin!(clock.sleep_until(clock.now() + Duration::from_millis(3)));
    let turns = reactor.block_on(std::future::poll_fn(|cx| {
        // Never idle: wakes itself each time, and sees the sleep's end only because its waker was called.
        cx.waker().wake_by_ref();
        sleep.as_mut().poll(cx).map(|()| 1)
    }));
    assert_eq!(turns, 1);
}
