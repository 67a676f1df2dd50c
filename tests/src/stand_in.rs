//! Things on a port that are no control-plane server: what a client meets when an address is
//! wrong or a machine is sick.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

/// Ends when dropped.
#[derive(Debug)]
pub struct StandIn {
    /// `127.0.0.1:PORT`.
    pub endpoint: String,
    task: JoinHandle<()>,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes every connection, reads what comes, and never says a word.
pub async fn black_hole() -> StandIn {
    answering(b"").await
}

/// An HTTP/1.1 server: answers every connection with an error page.
pub async fn web_server() -> StandIn {
    answering(
        b"HTTP/1.1 400 Bad Request\r\ncontent-length: 9\r\nconnection: close\r\n\r\nbad, sir\n",
    )
    .await
}

/// A TLS server: answers plain text with the alert `protocol_version`, as TLS servers do.
pub async fn tls_server() -> StandIn {
    answering(&[0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46]).await
}

async fn answering(answer: &'static [u8]) -> StandIn {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a loopback port is free");
    let endpoint = listener.local_addr().expect("it is bound").to_string();
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(1..) = stream.read(&mut buffer).await {
                    if !answer.is_empty() {
                        // The other side may be gone; that is its business.
                        let _ = stream.write_all(answer).await;
                        return;
                    }
                }
            });
        }
    });
    StandIn { endpoint, task }
}
