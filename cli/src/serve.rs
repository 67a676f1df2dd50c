//! `annulus serve`: one control-plane server.

use std::{
    net::SocketAddr,
    num::NonZeroU64,
    path::{Path, PathBuf},
};

use annulus_control_plane::{
    Config, Ended, Server,
    config::{LimitConfig, LinkConfig, LogConfig, WatchConfig},
};
use serde::Deserialize;

use crate::{
    args::ServeArgs,
    closing::Closing,
    config::{self, required},
    exit::{Failure, Result},
};

/// Runs `annulus serve` until a signal comes.
pub async fn run(args: &ServeArgs) -> Result {
    let config = settings(args)?;
    make_parent(&config.data_dir).map_err(|error| {
        let shown = config.data_dir.display();
        Failure::failed(
            format!("cannot make the parent of {shown}: {error}"),
            "name another --data-dir",
        )
    })?;
    let server = Server::start(config).await.map_err(|error| {
        Failure::failed(
            format!("cannot start: {error}"),
            "correct what it names, and start it again",
        )
    })?;
    let mut closing = Closing::listen()?;
    eprintln!("listening on {}", server.local_addr());
    let why = tokio::select! {
        why = closing.wait(args.until_stdin_closes) => why,
        // What raft cannot go on from ends the process: a supervisor starts it again.
        ended = server.ended() => {
            let reason = match ended {
                Ended::Stopped => "it was stopped".to_owned(),
                Ended::Failed(reason) => reason,
            };
            return Err(Failure::failed(reason, "start it again; it recovers from its data directory"));
        }
    };
    eprintln!("{why}: stopping");
    server.shutdown().await;
    Ok(())
}

/// Makes the folders above `dir` that are missing, each synced into the one above it: a power cut
/// must not take away the directory of a server that has voted. (The server makes `dir` itself.)
fn make_parent(dir: &Path) -> std::io::Result<()> {
    let dir = std::path::absolute(dir)?;
    let above: Vec<&Path> = dir
        .ancestors()
        .skip(1)
        .take_while(|above| !above.exists())
        .collect();
    for missing in above.into_iter().rev() {
        std::fs::create_dir(missing)?;
        if let Some(parent) = missing.parent() {
            std::fs::File::open(parent)?.sync_all()?;
        }
    }
    Ok(())
}

/// The file as it is written: what flags may give is optional here.
#[derive(Debug, Default, Deserialize)]
struct File {
    server_id: Option<NonZeroU64>,
    listen: Option<SocketAddr>,
    advertise: Option<String>,
    data_dir: Option<PathBuf>,
    insecure: Option<bool>,
    metrics_listen: Option<SocketAddr>,
    #[serde(default)]
    log: LogConfig,
    #[serde(default)]
    watch: WatchConfig,
    #[serde(default)]
    link: LinkConfig,
    #[serde(default)]
    limits: LimitConfig,
}

/// The file's settings, flags put over them.
fn settings(args: &ServeArgs) -> Result<Config> {
    let file = match &args.config {
        Some(path) => {
            let keys = config::Keys {
                command: "annulus serve",
                known: annulus_control_plane::config::KEYS,
                other: ("annulus kv serve", crate::kv_node::KEYS),
            };
            config::load(path, keys)?
        }
        None => File::default(),
    };
    let id = match args.id {
        Some(id) => Some(
            NonZeroU64::new(id)
                .ok_or_else(|| Failure::usage("--id 0", "number the servers 1, 2, 3, .."))?,
        ),
        None => file.server_id,
    };
    let advertise = args.advertise.clone().or(file.advertise);
    let data_dir = args.data_dir.clone().or(file.data_dir);
    let settings = Config {
        advertise: advertise
            .map(|text| config::endpoint(&text, "--advertise"))
            .transpose()?,
        insecure: args.insecure || file.insecure.unwrap_or(false),
        metrics_listen: args.metrics.or(file.metrics_listen),
        log: file.log,
        watch: file.watch,
        link: file.link,
        limits: file.limits,
        ..Config::new(
            required(id, "--id", "server_id")?,
            required(args.listen.or(file.listen), "--listen", "listen")?,
            required(data_dir, "--data-dir", "data_dir")?,
        )
    };
    let whence = match &args.config {
        Some(path) => format!("configuration {}: ", path.display()),
        None => String::new(),
    };
    settings.validate().map_err(|error| {
        Failure::usage(
            format!("{whence}{error}"),
            "correct the flag or the file; README.md has every key with its default",
        )
    })?;
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::exit::Kind;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        file
    }

    fn with(file: &tempfile::NamedTempFile) -> ServeArgs {
        ServeArgs {
            config: Some(file.path().to_owned()),
            ..ServeArgs::default()
        }
    }

    #[test]
    fn flags_override_the_file_and_fill_its_gaps() {
        let file = file("listen = '127.0.0.1:7001'\ndata_dir = 'a'\n");
        let listen = Some("127.0.0.1:7009".parse().expect("an address"));
        let args = ServeArgs {
            id: Some(2),
            listen,
            ..with(&file)
        };
        let config = settings(&args).expect("complete");
        assert_eq!(config.server_id.get(), 2);
        assert_eq!(config.listen.port(), 7009);
        assert_eq!(config.data_dir, Path::new("a"));
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let file = file("server_id = 1\nlisten = '127.0.0.1:1'\ndata_dirr = 'a'\ndata_dir = 'b'\n");
        let failure = settings(&with(&file)).expect_err("misspelt");
        assert_eq!(failure.kind(), Kind::Usage);
        assert!(
            failure
                .to_string()
                .contains("`data_dirr`; did you mean `data_dir`"),
            "{failure}"
        );
    }

    #[test]
    fn a_misspelt_key_is_told_before_the_one_that_it_should_be_is_missed() {
        let file = file("server_idd = 1\nlisten = '127.0.0.1:1'\ndata_dir = 'b'\n");
        let failure = settings(&with(&file)).expect_err("misspelt").to_string();
        assert!(failure.contains("did you mean `server_id`"), "{failure}");
    }

    #[test]
    fn errors_name_the_line_of_the_file_as_it_is_written() {
        let text = "# a comment\nserver_id = 1\nlisten = '127.0.0.1:1'\ndata_dir = 'b'\n\n\
                    [watch]\nprogress_ms = 0\n";
        let file = file(text);
        let failure = settings(&with(&file)).expect_err("0").to_string();
        assert!(failure.contains("line 7"), "{failure}");
        assert!(failure.contains("a number from 1"), "{failure}");
        assert_eq!(failure.matches("configuration").count(), 1, "{failure}");
    }

    #[test]
    fn what_is_missing_is_named_with_flag_and_key() {
        let failure = settings(&ServeArgs::default()).expect_err("nothing given");
        assert!(failure.to_string().contains("--id"), "{failure}");
    }

    #[test]
    fn other_addresses_than_loopback_need_insecure() {
        let args = |insecure| ServeArgs {
            id: Some(1),
            listen: Some("0.0.0.0:7001".parse().expect("an address")),
            advertise: Some("10.0.0.1:7001".to_owned()),
            data_dir: Some("a".into()),
            insecure,
            ..ServeArgs::default()
        };
        assert_eq!(
            settings(&args(false)).expect_err("open").kind(),
            Kind::Usage
        );
        assert!(settings(&args(true)).is_ok());
    }
}
