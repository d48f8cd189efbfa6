//! What a warehouse tool costs an agent: lookups in a scan, and a query through the child process.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use ingestdeck_test_support::postgres::PostgresServer;
use serde_json::{Value, json};

use crate::{
    harness::{BenchReport, BenchResult, FigureGoal, Threshold, pairs, timed},
    measured_process::{argument, ingestdeck},
};

const TABLES: usize = 5_000;
const COLUMNS: usize = 12;
const LOOKUPS: usize = 1_000;
const PAIRS: usize = 7;

/// Reads the files of a folder with the parser of libyaml.
const READER: &str = "import glob, sys, yaml\n\
    for path in glob.glob(sys.argv[1] + '/*.yaml'):\n    yaml.load(open(path), Loader=yaml.CSafeLoader)\n";

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let goal = |required: f64, goal: f64| FigureGoal {
        required: Threshold::AtMost(required),
        goal: Threshold::AtMost(goal),
    };
    let folder = tempfile::tempdir()?;
    let scan = folder.path().join("semantic-layer/wh/_schema");
    write_scan(folder.path(), &scan)?;
    let reader = ["-c", READER, argument(&scan)?];
    let has_reader = Command::new("python3")
        .args(["-c", "import yaml; yaml.CSafeLoader"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let name = "1,000 lookups in a scan of 5,000 tables / PyYAML reads it";
    if has_reader {
        let lookups = pairs(
            PAIRS,
            || timed(|| look_up(folder.path())),
            || timed(|| Ok(Command::new("python3").args(reader).status().map(drop)?)),
        )?;
        report.ratio(name, &lookups, goal(1.0, 0.5));
    } else {
        report.note_missing_program("python3 with PyYAML", name);
    }
    let name = "100 rows through the child process / psql -c";
    let driver = std::env::var_os("INGESTDECK_TEST_ADBC");
    let (Some(server), Some(driver)) = (PostgresServer::start(), driver) else {
        report.note_missing_program("PostgreSQL with its ADBC driver", name);
        return Ok(());
    };
    let settings = folder.path().join("settings.toml");
    let drivers = driver.to_string_lossy();
    fs::write(
        &settings,
        format!("[warehouse]\nallow = [\"postgres url=env:SHOP\"]\ndrivers = [{drivers:?}]\n"),
    )?;
    let sql = "SELECT g, g * 2, 'text ' || g FROM generate_series(1, 100) g";
    let arguments = json!({"connectionId": "wh", "sql": sql});
    let mut client = ToolClient::start(folder.path(), &[("SHOP", &server.url())], &settings)?;
    let (psql, url) = (server.psql(), server.url());
    let queries = pairs(
        30,
        || timed(|| client.call("sql_execution", &arguments)),
        || {
            let mut command = Command::new(&psql);
            command.args([&url, "-c", sql]).stdout(Stdio::null());
            timed(|| Ok(command.status().map(drop)?))
        },
    )?;
    report.ratio(name, &queries, goal(1.5, 0.5));
    Ok(())
}

fn write_scan(project: &Path, scan: &Path) -> BenchResult<()> {
    fs::create_dir_all(scan)?;
    fs::write(
        project.join("ktx.yaml"),
        "connections:\n  wh: {driver: postgres, url: 'env:SHOP'}\n",
    )?;
    for shard in 0..10 {
        let mut text = "tables:\n".to_owned();
        for table in 0..TABLES / 10 {
            let name = format!("t{shard}_{table}");
            writeln!(text, "  {name}:\n    table: s{shard}.{name}\n    columns:")?;
            for column in 0..COLUMNS {
                writeln!(text, "      - name: column_{column}\n        type: number")?;
            }
        }
        fs::write(scan.join(format!("s{shard}.yaml")), text)?;
    }
    Ok(())
}

fn look_up(project: &Path) -> BenchResult<()> {
    let mut client = ToolClient::start(project, &[], &project.join("none.toml"))?;
    for lookup in 0..LOOKUPS {
        let table = format!("s{}.t{}_{}", lookup % 10, lookup % 10, lookup % 500);
        let targets = json!([{"display": table}]);
        client.call(
            "entity_details",
            &json!({"connectionId": "wh", "targets": targets}),
        )?;
    }
    Ok(())
}

/// A client of `ingestdeck mcp`.
struct ToolClient {
    process: Child,
    replies: BufReader<ChildStdout>,
    last: u64,
}

impl ToolClient {
    fn start(project: &Path, variables: &[(&str, &str)], settings: &Path) -> BenchResult<Self> {
        let mut command = Command::new(ingestdeck());
        command.args(["mcp", "--project-dir", argument(project)?]);
        if settings.exists() {
            command.args(["--config", argument(settings)?]);
        }
        command
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let stdout = process.stdout.take().ok_or("no stdout")?;
        let mut client = Self {
            process,
            replies: BufReader::new(stdout),
            last: 0,
        };
        let info = json!({"name": "bench", "version": "1"});
        client.ask(
            "initialize",
            &json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}),
        )?;
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(client)
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> BenchResult<()> {
        let reply = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))?;
        match reply["result"]["isError"].as_bool() {
            Some(true) | None if reply["result"].is_null() => Err(reply.to_string().into()),
            Some(true) => Err(reply.to_string().into()),
            _ => Ok(()),
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> BenchResult<Value> {
        self.last += 1;
        let id = self.last;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let mut line = String::new();
            if self.replies.read_line(&mut line)? == 0 {
                return Err("the server has ended".into());
            }
            let reply: Value = serde_json::from_str(&line)?;
            if reply["id"].as_u64() == Some(id) {
                return Ok(reply);
            }
        }
    }

    fn send(&mut self, message: &Value) -> BenchResult<()> {
        let stdin = self.process.stdin.as_mut().ok_or("no stdin")?;
        Ok(writeln!(stdin, "{message}")?)
    }
}

impl Drop for ToolClient {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It has answered everything.
        let _ = self.process.wait();
    }
}
