use tokio::sync::oneshot;

use super::*;

#[tokio::test]
async fn a_drain_of_no_time_waits_for_what_is_still_accepted() {
    let registry = Arc::new(Registry::new());
    let late = Arc::clone(&registry);
    let (tell, told) = oneshot::channel();
    let accepting = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let registered = late.place(1).and_then(|place| place.enter(None, 1, 7)).expect("a connection");
        let task = registered.task();
        let served = tokio::spawn(async move {
            let _registered = registered;
            std::future::pending::<()>().await;
        });
        task.is(served.abort_handle());
        tell.send(served).expect("the test waits for it");
    });
    drain_listener(&registry, 7, accepting, Duration::ZERO).await.unwrap();
    let served = told.await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(2), served).await.expect("it is cut off");
    assert!(ended.is_err_and(|error| error.is_cancelled()));
}
