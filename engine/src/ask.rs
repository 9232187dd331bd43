//! A question to a task and its answer, over a channel that the task may close at any moment.

use tokio::sync::{mpsc, oneshot};

/// Asks a task and waits for its answer; none if the task takes no more questions, or ends without an answer.
pub async fn ask<Q, A>(questions: &mpsc::Sender<Q>, question: impl FnOnce(oneshot::Sender<A>) -> Q) -> Option<A> {
    let (answer, answered) = oneshot::channel();
    questions.send(question(answer)).await.ok()?;
    answer_of(questions, answered).await
}

/// Waits for the answer to a question that was sent; none if the task ended without one.
///
/// A question that is sent in the moment in which the receiver is dropped stays in the channel: nobody reads it, and it
/// is dropped with the last sender only. Whoever holds a sender and waits for the answer alone may wait for ever.
pub async fn answer_of<Q, A>(questions: &mpsc::Sender<Q>, mut answered: oneshot::Receiver<A>) -> Option<A> {
    tokio::select! {
        biased;
        answer = &mut answered => answer.ok(),
        // A task answers before it drops its end.
        () = questions.closed() => answered.try_recv().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_answer_given_just_before_the_end_counts() {
        let (questions, mut asked) = mpsc::channel::<oneshot::Sender<u8>>(1);
        let task = async move {
            let answer = asked.recv().await.expect("something is asked");
            answer.send(7).expect("somebody waits");
        };
        let (answer, ()) = tokio::join!(ask(&questions, |answer| answer), task);
        assert_eq!(answer, Some(7));
    }

    #[tokio::test]
    async fn who_asks_while_the_channel_keeps_the_question_is_told() {
        let (questions, asked) = mpsc::channel::<oneshot::Sender<u8>>(1);
        let permit = questions.reserve().await.expect("it is open");
        drop(asked);
        let (answer, answered) = oneshot::channel();
        // As a sender does that was about to send: now the channel keeps it, and nobody reads it.
        permit.send(answer);
        let told = tokio::time::timeout(Duration::from_secs(60), answer_of(&questions, answered)).await;
        assert_eq!(told.expect("nobody waits for ever"), None);
    }
}
