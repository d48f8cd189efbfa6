#!/usr/bin/env node
// Starts the program from the package of this platform, which npm installs as an optional dependency.
"use strict";

const fs = require("fs");
const { spawn } = require("child_process");

const platform = `${process.platform}-${process.arch}`;
const name = `@ingestdeck/${platform}`;
const fromSource = "build it from source, which needs Rust: `cargo install --path .` in a clone";

function fail(problem, help) {
  process.stderr.write(`error: ${problem}\nhelp: ${help}\n`);
  process.exit(1);
}

function findProgram() {
  if (process.platform === "win32") {
    fail("ingestdeck does not run on Windows", "install it in WSL: https://learn.microsoft.com/windows/wsl/install");
  }
  const known = Object.keys(require("./package.json").optionalDependencies);
  if (!known.includes(name)) {
    fail(`ingestdeck has no package for ${platform}`, fromSource);
  }
  try {
    return require.resolve(`${name}/ingestdeck`);
  } catch {
    if (isMusl()) {
      fail("ingestdeck needs glibc, which this Linux lacks (musl)", `use a distribution with glibc, or ${fromSource}`);
    }
    fail(
      `the package ${name} is not installed`,
      "install again with optional dependencies, `npm install --include=optional ingestdeck`; " +
        "a lockfile or node_modules of another platform also has this effect: delete both first",
    );
  }
}

function isMusl() {
  // Otherwise the report resolves the names of all open connections.
  process.report.excludeNetwork = true;
  return process.platform === "linux" && !process.report.getReport().header.glibcVersionRuntime;
}

function hasTerminal() {
  try {
    fs.closeSync(fs.openSync("/dev/tty", "r"));
    return true;
  } catch {
    return false;
  }
}

// For releases of Node.js that cannot replace their own process.
function start(program, args) {
  const child = spawn(program, args, { stdio: "inherit" });
  // Ctrl-C and a closed terminal reach the child without help, and it must not receive them twice: a second SIGINT is a
  // stronger request. Its exit ends this process.
  const fromTerminal = ["SIGINT", "SIGQUIT", "SIGHUP"];
  const terminal = hasTerminal();
  for (const signal of [...fromTerminal, "SIGTERM"]) {
    process.on(signal, () => terminal && fromTerminal.includes(signal) || child.kill(signal));
  }
  child.on("error", (error) => fail(`cannot start ${program}: ${error.message}`, "install the package again"));
  child.on("exit", (code, signal) => {
    if (signal === null) {
      process.exit(code);
    }
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}

const program = findProgram();
const args = process.argv.slice(2);
if (process.execve) {
  process.execve(program, [program, ...args], process.env);
}
start(program, args);
