//! `slicegate crds`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slicegate_api::crd::{ConversionWebhook, WebhookClient, definitions};

use crate::args::{CrdsArgs, Notation};

pub(crate) fn run(args: &CrdsArgs) -> Result<ExitCode, String> {
    let text = text(&definitions(&webhook(args)?), args.output)?;
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn webhook(args: &CrdsArgs) -> Result<ConversionWebhook, String> {
    let client = match &args.webhook_url {
        Some(url) if !url.starts_with("https://") => {
            return Err(format!("--webhook-url {url}: an API server calls webhooks by https only; write https://..."));
        }
        Some(url) => WebhookClient::Url(url.clone()),
        None => {
            WebhookClient::Service { namespace: args.webhook_namespace.clone(), name: args.webhook_service.clone() }
        }
    };
    let ca_bundle = match &args.ca_bundle {
        None => None,
        Some(path) => {
            let pem = std::fs::read(path).map_err(|e| format!("--ca-bundle {}: {e}", path.display()))?;
            if !pem.windows(27).any(|w| w == b"-----BEGIN CERTIFICATE-----") {
                return Err(format!("--ca-bundle {}: no certificate in it; it must be a PEM file", path.display()));
            }
            Some(STANDARD.encode(pem))
        }
    };
    Ok(ConversionWebhook { client, ca_bundle })
}

fn text(definitions: &[Value], notation: Notation) -> Result<String, String> {
    match notation {
        Notation::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": definitions});
            let mut text = serde_json::to_string_pretty(&list).map_err(|e| e.to_string())?;
            text.push('\n');
            Ok(text)
        }
        Notation::Yaml => {
            let mut text = String::new();
            for definition in definitions {
                let document = serde_saphyr::to_string(definition).map_err(|e| e.to_string())?;
                let _ = writeln!(text, "---\n{}", document.trim_end());
            }
            Ok(text)
        }
    }
}
