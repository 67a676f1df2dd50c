//! A data node that is none: it speaks an agent's protocol and says whatever a test wants.

use std::time::Duration;

use annulus_proto::{
    MAX_MESSAGE_BYTES,
    v1::{self, from_agent, link_client::LinkClient, to_agent},
};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::{cluster::SOON, wait::until};

/// A link to the leader without a data node behind it.
#[derive(Debug)]
pub struct Liar {
    to_leader: mpsc::Sender<v1::FromAgent>,
    heard: watch::Receiver<Heard>,
    seq: u64,
    /// End with it.
    _renewals: tokio::task::JoinSet<()>,
    /// The life that it was given.
    pub incarnation: u64,
}

#[derive(Clone, Debug, Default)]
struct Heard {
    welcome: Option<v1::Welcome>,
    leader: Option<v1::LeaderAt>,
    refused: Option<v1::LinkRefused>,
    view: Option<v1::View>,
    renewed: u64,
    ended: bool,
}

/// Who it says it is.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Which ring.
    pub ring: String,
    /// Its name.
    pub node: String,
    /// Its zone.
    pub zone: String,
    /// Where it says it listens.
    pub endpoint: String,
    /// Its weight.
    pub weight: u32,
}

impl Claim {
    fn hello(&self) -> v1::Hello {
        v1::Hello {
            ring: self.ring.clone(),
            node_id: self.node.clone(),
            birth: fastrand::u128(..).to_be_bytes().to_vec().into(),
            incarnation: 0,
            boot: fastrand::u128(..).to_be_bytes().to_vec().into(),
            endpoint: self.endpoint.clone(),
            zone: self.zone.clone(),
            weight: self.weight,
            empty: true,
            adopted_epoch: 0,
        }
    }
}

/// Keeps the link, however long the test looks elsewhere. Answered renewals that somebody waits for
/// count from 1.
async fn renew(to_leader: mpsc::Sender<v1::FromAgent>) {
    let renewal = || from_agent(from_agent::Message::Renew(v1::Renew { seq: 0 }));
    while to_leader.send(renewal()).await.is_ok() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

impl Liar {
    /// Says Hello to whichever server leads, and is welcome there.
    ///
    /// # Errors
    /// The refusal: its name and its words.
    pub async fn welcomed(servers: &[String], claim: &Claim) -> Result<Self, v1::LinkRefused> {
        let hello = claim.hello();
        until(
            SOON,
            format!("the leader to answer the Hello of {}", claim.node),
            || async {
                let mut trouble = String::new();
                for server in servers {
                    match Self::hello(server, hello.clone()).await {
                        Ok(Ok(liar)) => return Ok(Ok(liar)),
                        Ok(Err(refused)) => return Ok(Err(refused)),
                        Err(error) => trouble = format!("{server}: {error}"),
                    }
                }
                Err(trouble)
            },
        )
        .await
    }

    async fn hello(
        server: &str,
        hello: v1::Hello,
    ) -> Result<Result<Self, v1::LinkRefused>, String> {
        let channel = Endpoint::from_shared(format!("http://{server}")).expect("an address");
        let channel = channel
            .connect_timeout(Duration::from_secs(2))
            .connect_lazy();
        let mut link = LinkClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let (to_leader, from_us) = mpsc::channel(64);
        let first = from_agent(from_agent::Message::Hello(hello));
        to_leader.try_send(first).expect("the channel is empty");
        let stream = link.open(ReceiverStream::new(from_us)).await;
        let mut stream = stream.map_err(|status| status.to_string())?.into_inner();
        let (say, mut heard) = watch::channel(Heard::default());
        tokio::spawn(async move {
            while let Ok(Some(message)) = stream.message().await {
                say.send_modify(|heard| match message.message {
                    Some(to_agent::Message::Welcome(welcome)) => heard.welcome = Some(welcome),
                    Some(to_agent::Message::Leader(leader)) => heard.leader = Some(leader),
                    Some(to_agent::Message::Refused(refused)) => heard.refused = Some(refused),
                    Some(to_agent::Message::RenewAck(ack)) => {
                        heard.renewed = heard.renewed.max(ack.seq);
                    }
                    Some(to_agent::Message::View(view)) => heard.view = Some(view),
                    Some(to_agent::Message::Directive(_)) | None => {}
                });
            }
            say.send_modify(|heard| heard.ended = true);
        });
        let answered = |heard: &Heard| {
            heard.welcome.is_some()
                || heard.leader.is_some()
                || heard.refused.is_some()
                || heard.ended
        };
        let answer = match tokio::time::timeout(SOON, heard.wait_for(answered)).await {
            Ok(Ok(answer)) => answer.clone(),
            Ok(Err(_)) | Err(_) => return Err("no answer".to_owned()),
        };
        if let Some(refused) = answer.refused {
            return Ok(Err(refused));
        }
        let welcome = answer
            .welcome
            .ok_or_else(|| format!("not the leader: {:?}", answer.leader))?;
        let mut renewals = tokio::task::JoinSet::new();
        renewals.spawn(renew(to_leader.clone()));
        Ok(Ok(Self {
            to_leader,
            heard,
            seq: 0,
            _renewals: renewals,
            incarnation: welcome.incarnation,
        }))
    }

    /// Sends a report and waits until the leader has read it: an answered renewal sent after it
    /// says so, as a link keeps its order.
    ///
    /// # Panics
    /// If the link is gone.
    pub async fn says(&mut self, report: v1::Report) {
        self.send(from_agent::Message::Report(report)).await;
        self.seq += 1;
        let seq = self.seq;
        self.send(from_agent::Message::Renew(v1::Renew { seq }))
            .await;
        let renewed = self
            .heard
            .wait_for(|heard| heard.renewed >= seq || heard.ended);
        let heard = tokio::time::timeout(SOON, renewed)
            .await
            .expect("a renewal is answered");
        let heard = heard.expect("the reading task outlives the stream");
        assert!(
            heard.renewed >= seq,
            "the leader closed the link: {heard:?}"
        );
    }

    /// The epoch that began the reign of a slot's owner, by the newest view that it was shown.
    ///
    /// # Panics
    /// If it was shown none yet.
    #[must_use]
    pub fn reign(&self, slot: u32) -> u64 {
        let heard = self.heard.borrow();
        let view = heard.view.as_ref().expect("a view was waited for");
        view.reigns[slot as usize]
    }

    async fn send(&self, message: from_agent::Message) {
        self.to_leader
            .send(from_agent(message))
            .await
            .expect("the link is open");
    }
}

fn from_agent(message: from_agent::Message) -> v1::FromAgent {
    v1::FromAgent {
        message: Some(message),
    }
}
