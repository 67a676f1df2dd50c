//! `annulus serve`: one control-plane server.

use std::path::Path;

use annulus_control_plane::{Config, ConfigError, Ended, Server};

use crate::{
    args::ServeArgs,
    closing,
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
    eprintln!("listening on {}", server.local_addr());
    let why = tokio::select! {
        why = closing::wait(args.until_stdin_closes) => why?,
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

/// The file's settings, flags put over them. Flags are set in the file's own table, so that a file
/// may leave out what a flag gives.
fn settings(args: &ServeArgs) -> Result<Config> {
    let mut table = match &args.config {
        Some(path) => read(path)?,
        None => toml::Table::new(),
    };
    let mut set = |key: &str, value: Option<toml::Value>| {
        if let Some(value) = value {
            table.insert(key.to_owned(), value);
        }
    };
    let text = |value: &dyn ToString| toml::Value::String(value.to_string());
    let id = args.id.map(|id| {
        i64::try_from(id).map(toml::Value::Integer).map_err(|_| {
            Failure::usage(
                format!("--id {id} is too large"),
                "number the servers 1, 2, 3, ..",
            )
        })
    });
    set("server_id", id.transpose()?);
    set("listen", args.listen.as_ref().map(|listen| text(listen)));
    set(
        "advertise",
        args.advertise.as_ref().map(|advertise| text(advertise)),
    );
    set(
        "data_dir",
        args.data_dir.as_ref().map(|dir| text(&dir.display())),
    );
    set(
        "metrics_listen",
        args.metrics.as_ref().map(|listen| text(listen)),
    );
    set(
        "insecure",
        args.insecure.then_some(toml::Value::Boolean(true)),
    );
    for (key, flag) in [
        ("server_id", "--id"),
        ("listen", "--listen"),
        ("data_dir", "--data-dir"),
    ] {
        if !table.contains_key(key) {
            return Err(Failure::usage(
                format!("{flag} is missing"),
                format!("give {flag}, or {key} in the file named by --config"),
            ));
        }
    }
    let whence = match &args.config {
        Some(path) => format!("configuration {}: ", path.display()),
        None => String::new(),
    };
    let config = Config::from_toml(&table.to_string())
        .and_then(|config| config.validate().map(|()| config))
        .map_err(|error| {
            let next = match &error {
                ConfigError::UnknownKey { nearest, .. } => {
                    format!("write `{nearest}` if that is what you meant; README.md has every key")
                }
                _ => {
                    "correct the file or the flag; README.md has every key with its default".into()
                }
            };
            Failure::usage(format!("{whence}{error}"), next)
        })?;
    Ok(config)
}

fn read(path: &Path) -> Result<toml::Table> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(
            format!("configuration {shown}: {error}"),
            "name a readable file with --config, or give the settings as flags",
        )
    })?;
    text.parse().map_err(|error: toml::de::Error| {
        Failure::usage(
            format!("configuration {shown}: {error}"),
            "correct the line it names",
        )
    })
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
