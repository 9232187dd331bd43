//! What every request is held to: its turn, if there is a rate, and a time in which it is answered.

use std::fmt;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::{Body, DynBody};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tower::{BoxError, Service};

/// How long a request may take from its turn to the end of its answer; of a watch, to the answer's beginning.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// How many requests a client sends, as `--kube-api-qps` and `--kube-api-burst` say it to Kubernetes' own components.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The time after which there is another turn.
    every: Duration,
    /// How many turns are saved up while nothing is asked.
    burst: NonZeroU32,
}

/// A rate that no client can keep to.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{queries_per_second} is not a number of queries per second: it is above 0, and at most 1,000,000")]
pub struct InvalidRate {
    /// What was given.
    pub queries_per_second: f64,
}

/// The API server did not answer in time: what became of the request is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {limit:?}")]
pub struct TimedOut {
    /// How long it was waited for.
    pub limit: Duration,
}

/// The requests of one client, in their order.
pub(crate) struct Limited<S> {
    inner: S,
    turns: Option<Turns>,
}

/// When the next request has its turn.
struct Turns {
    rate: Rate,
    /// When all turns are saved up again.
    full: Instant,
    wait: Pin<Box<Sleep>>,
}

type Answer = Result<Response<Box<DynBody>>, BoxError>;

// === impl Rate ===

impl Rate {
    /// This many queries per second; `burst` of them at once, by default as many as there are in a second.
    ///
    /// # Errors
    /// If the number is not above 0, or above a million.
    pub fn new(queries_per_second: f64, burst: Option<NonZeroU32>) -> Result<Self, InvalidRate> {
        let is_possible = queries_per_second > 0.0 && queries_per_second <= 1e6;
        let every = Duration::try_from_secs_f64(queries_per_second.recip());
        let (true, Ok(every)) = (is_possible, every) else {
            return Err(InvalidRate { queries_per_second });
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and a million")]
        let in_a_second = NonZeroU32::new(queries_per_second.ceil() as u32).unwrap_or(NonZeroU32::MIN);
        Ok(Self { every, burst: burst.unwrap_or(in_a_second) })
    }
}

// === impl Turns ===

impl Turns {
    fn new(rate: Rate) -> Self {
        let now = Instant::now();
        Self { rate, full: now, wait: Box::pin(sleep_until(now)) }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let saved = self.rate.every.saturating_mul(self.rate.burst.get() - 1);
        let turn = self.full.checked_sub(saved).unwrap_or(self.full);
        if Instant::now() >= turn {
            return Poll::Ready(());
        }
        self.wait.as_mut().reset(turn);
        self.wait.as_mut().poll(cx)
    }

    fn take(&mut self) {
        self.full = self.full.max(Instant::now()) + self.rate.every;
    }
}

// === impl Limited ===

impl<S> Limited<S> {
    pub(crate) fn new(inner: S, rate: Option<Rate>) -> Self {
        Self { inner, turns: rate.map(Turns::new) }
    }
}

impl<S> fmt::Debug for Limited<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited").field("rate", &self.turns.as_ref().map(|turns| turns.rate)).finish_non_exhaustive()
    }
}

impl<S> Service<Request<Body>> for Limited<S>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<Box<DynBody>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    /// A client asks for this once before each request, one request after the other.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if let Some(turns) = &mut self.turns {
            ready!(turns.poll(cx));
        }
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if let Some(turns) = &mut self.turns {
            turns.take();
        }
        let length = Length::of(&request);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let limited = timeout(REQUEST_LIMIT, read(answer, length)).await;
            limited.unwrap_or_else(|_| Err(Box::new(TimedOut { limit: REQUEST_LIMIT })))
        })
    }
}

/// How long an answer is.
#[derive(Clone, Copy)]
enum Length {
    /// It ends.
    Finite,
    /// A watch is answered as long as it lasts; kube notices one that is silent for too long.
    Watch,
}

impl Length {
    fn of(request: &Request<Body>) -> Self {
        let mut pairs = request.uri().query().unwrap_or_default().split('&');
        if pairs.any(|pair| pair == "watch=true") { Self::Watch } else { Self::Finite }
    }
}

async fn read<E: Into<BoxError>>(
    answer: impl Future<Output = Result<Response<Box<DynBody>>, E>>,
    length: Length,
) -> Answer {
    let (head, body) = answer.await.map_err(Into::into)?.into_parts();
    let body = match length {
        Length::Watch => body,
        Length::Finite => Box::new(Full::new(body.collect().await?.to_bytes()).map_err(|never| match never {})),
    };
    Ok(Response::from_parts(head, body))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn turn(turns: &mut Turns) {
        poll_fn(|cx| turns.poll(cx)).await;
        turns.take();
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_in_its_turn() {
        let rate = Rate::new(10.0, NonZeroU32::new(3)).expect("that is a rate");
        let mut turns = Turns::new(rate);
        let start = Instant::now();
        let mut seen = Vec::new();
        for _ in 0..5 {
            turn(&mut turns).await;
            seen.push(start.elapsed().as_millis());
        }
        // Turns are to the millisecond, which is as exact as the clock of a pause.
        assert_eq!(seen[..3], [0, 0, 0]);
        assert!((100..=101).contains(&seen[3]) && (200..=202).contains(&seen[4]), "{seen:?}");

        tokio::time::advance(Duration::from_secs(60)).await;
        let start = Instant::now();
        for _ in 0..4 {
            turn(&mut turns).await;
        }
        assert!((100..=101).contains(&start.elapsed().as_millis()), "no more than a burst is saved up");
    }

    #[test]
    fn a_rate_is_above_zero() {
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e7] {
            assert!(Rate::new(wrong, None).is_err(), "{wrong}");
        }
        let rate = Rate::new(0.5, None).expect("every other second");
        assert_eq!((rate.every, rate.burst.get()), (Duration::from_secs(2), 1));
    }
}
