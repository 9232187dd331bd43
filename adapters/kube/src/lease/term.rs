//! The term in which something was begun: it is carried out within it, or not at all.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Leadership;

/// One term of ours. In the next one the log may say something else, and everything is looked at anew.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    leadership: watch::Receiver<Leadership>,
    number: u64,
}

/// The term is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the Lease was lost before the answer came")]
pub(crate) struct Over;

impl Term {
    /// The term of this moment, if we lead.
    pub(crate) fn now(leadership: &watch::Receiver<Leadership>) -> Option<Self> {
        let number = leadership.borrow().term(Instant::now())?;
        Some(Self { leadership: leadership.clone(), number })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether we still lead, and have not led anew. Ask before each write.
    pub(crate) fn lasts(&self) -> bool {
        self.leadership.borrow().term(Instant::now()) == Some(self.number)
    }

    /// Waits for an answer, but not longer than the term. A request that waits for its turn is then never sent.
    pub(crate) async fn within<T>(&self, answer: impl Future<Output = T>) -> Result<T, Over> {
        tokio::select! {
            biased;
            () = self.over() => Err(Over),
            answer = answer => Ok(answer),
        }
    }

    async fn over(&self) {
        let mut leadership = self.leadership.clone();
        loop {
            let until = match &*leadership.borrow_and_update() {
                Leadership::Leading { until, term } if *term == self.number => *until,
                Leadership::Leading { .. } | Leadership::Standby { .. } => return,
            };
            tokio::select! {
                biased;
                // Who cannot renew it any more has it to its end.
                Ok(()) = leadership.changed() => {}
                () = sleep_until(until) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use super::*;

    fn leading(seconds: u64, term: u64) -> Leadership {
        Leadership::Leading { until: Instant::now() + Duration::from_secs(seconds), term }
    }

    #[tokio::test(start_paused = true)]
    async fn it_lasts_as_long_as_it_is_renewed() {
        let (leads, leadership) = watch::channel(leading(10, 1));
        let term = Term::now(&leadership).expect("we lead");
        let renew = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(5)).await;
                leads.send_replace(leading(10, 1));
            }
        };
        let begun = Instant::now();
        let (ended, ()) = tokio::join!(term.within(pending::<()>()), renew);
        assert_eq!((ended, begun.elapsed().as_secs()), (Err(Over), 25));
        assert!(!term.lasts());
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_one_is_another() {
        let (leads, leadership) = watch::channel(leading(10, 1));
        let term = Term::now(&leadership).expect("we lead");
        assert_eq!(term.within(async { 7 }).await, Ok(7));
        // Nobody has seen that another projector led in between.
        leads.send_replace(leading(10, 3));
        assert!(!term.lasts());
        assert_eq!(term.within(pending::<()>()).await, Err(Over));
        leads.send_replace(Leadership::Standby { holder: None });
        assert!(Term::now(&leadership).is_none());
    }
}
