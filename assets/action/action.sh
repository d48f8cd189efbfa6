#!/usr/bin/env bash
# The steps of action.yml. Inputs arrive in variables, never as a part of a script.
set -euo pipefail

work="${RUNNER_TEMP:?}/ingestdeck"

fail() {
    # The characters that end a workflow command.
    local message="${1//'%'/%25}"
    message="${message//$'\r'/%0D}"
    printf '::error title=ingestdeck::%s\n' "${message//$'\n'/%0A}"
    exit 2
}

# Prints stdin without letting GitHub take lines of it for workflow commands: names in a project are untrusted.
print_untrusted() {
    local token
    token="$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
    printf '::stop-commands::%s\n' "$token"
    cat
    printf '\n::%s::\n' "$token"
}

# A comment has at most 65,536 characters, and so has the text of a pull request.
shortened() {
    if [ "$(wc -c <"$1")" -gt 60000 ]; then
        head -c 60000 "$1" | iconv -c -f utf-8 -t utf-8
        printf '\n… shortened\n'
    else
        cat "$1"
    fi
}

# Fences of a length that the text cannot close.
fenced() {
    local fence='````'
    while grep -qF -- "$fence" "$1"; do fence+='`'; done
    printf '%s\n' "$fence"
    shortened "$1"
    printf '%s\n' "$fence"
}

install() {
    case "${INPUT_COMMAND:-}" in
        plan) ;;
        run)
            # Files of a fork would reach agents that hold the secrets of this repository. A deleted fork has no name. Other
            # events, such as `issue_comment`, have these secrets, too, and a workflow could check out a fork for them.
            case "${GITHUB_EVENT_NAME:-}" in
                pull_request)
                    [ "${HEAD_REPOSITORY:-}" = "${GITHUB_REPOSITORY:?}" ] ||
                        fail "\`run\` is refused for pull requests from forks; use \`plan\`"
                    ;;
                push | schedule | workflow_dispatch | repository_dispatch | merge_group | release) ;;
                *) fail "\`run\` is refused for the event \`${GITHUB_EVENT_NAME:-}\`, which anyone may be able to cause" ;;
            esac
            ;;
        *) fail "invalid command \`${INPUT_COMMAND:-}\`; expected \`plan\` or \`run\`" ;;
    esac
    mkdir -p "$work/bin"
    local program="${INPUT_PROGRAM:-}" package="ingestdeck"
    case "$program" in
        *.whl) package="$program" ;;
        "") [ -z "${INPUT_VERSION:-}" ] || package="ingestdeck==$INPUT_VERSION" ;;
        *)
            [ -x "$program" ] || fail "cannot execute the program \`$program\`"
            ln -sfn "$(realpath "$program")" "$work/bin/ingestdeck"
            package=""
            ;;
    esac
    if [ -n "$package" ]; then
        [[ "$package" != -* ]] || fail "invalid package \`$package\`"
        python3 -m venv "$work/venv"
        "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: -- "$package" ||
            fail "cannot install \`$package\`"
        ln -sfn "$work/venv/bin/ingestdeck" "$work/bin/ingestdeck"
    fi
    "$work/bin/ingestdeck" --version
    if [ "$INPUT_COMMAND" = run ] && ! command -v claude >/dev/null; then
        npm install --silent --no-audit --no-fund --prefix "$work/claude" \
            "@anthropic-ai/claude-code@${INPUT_CLAUDE_VERSION:?}" || fail "cannot install Claude Code $INPUT_CLAUDE_VERSION"
        ln -sfn "$work/claude/node_modules/.bin/claude" "$work/bin/claude"
    fi
}

# The arguments that `plan` and `run` share, in `arguments`; options that follow precede them.
common_arguments() {
    local connections
    arguments=(--project-dir="${INPUT_PROJECT_DIR:?}")
    [ -z "${INPUT_ONLY:-}" ] || arguments+=(--only="$INPUT_ONLY")
    [ -z "${INPUT_FAILED_FROM:-}" ] || arguments+=(--failed-from="$INPUT_FAILED_FROM")
    read -r -d '' -a connections <<<"${INPUT_CONNECTIONS:-}" || true
    arguments+=(-- ${connections[@]+"${connections[@]}"})
}

plan() {
    local arguments code=0 id
    common_arguments
    {
        printf '$ ingestdeck plan'
        printf ' %q' "${arguments[@]}"
        printf '\n'
        "$work/bin/ingestdeck" plan --ui lines --color never "${arguments[@]}" 2>&1 || code="$?"
    } >"$work/plan"
    print_untrusted <"$work/plan"
    # Plans of other projects or connections are other comments.
    id="$(printf '%s\0' "${arguments[@]}" | git hash-object --stdin)"
    {
        printf '<!-- ingestdeck plan %s -->\n### Ingest plan\n\n' "$id"
        fenced "$work/plan"
    } >"$work/plan.md"
    cat "$work/plan.md" >>"${GITHUB_STEP_SUMMARY:?}"
    printf 'exit-code=%s\n' "$code" >>"${GITHUB_OUTPUT:?}"
}

# An API key reaches agents only if the settings allow it, which the workflow does by setting one.
settings() {
    if [ -n "${INPUT_CONFIG:-}" ]; then
        options+=(--config="$INPUT_CONFIG")
    elif [ -n "${ANTHROPIC_API_KEY:-}" ]; then
        printf '[claude]\npass_env = ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"]\nuse_api_billing = true\n' >"$work/config.toml"
        options+=(--config="$work/config.toml")
    fi
}

tapes() {
    { find "$INPUT_PROJECT_DIR/.ktx/ingestdeck/runs" -mindepth 2 -maxdepth 2 -name tape.jsonl 2>/dev/null || true; } |
        { grep -E '/runs/[0-9a-f-]{36}/tape\.jsonl$' || true; } | sort
}

# The commit at a name of the project; empty without one.
commit_at() { git -C "$INPUT_PROJECT_DIR" rev-parse --verify --quiet "$1^{commit}" || true; }

# Where `run` commits.
target() { printf '%s' "${INPUT_BRANCH:+refs/heads/}${INPUT_BRANCH:-HEAD}"; }

run() {
    local arguments options=() code=0
    common_arguments
    settings
    [ -z "${INPUT_MODEL:-}" ] || options+=(--model="$INPUT_MODEL")
    [ -z "${INPUT_CONCURRENCY:-}" ] || options+=(--concurrency="$INPUT_CONCURRENCY")
    [ -z "${INPUT_STEP_BUDGET:-}" ] || options+=(--step-budget="$INPUT_STEP_BUDGET")
    [ -z "${INPUT_MAX_COST:-}" ] || options+=(--max-run-budget-usd="$INPUT_MAX_COST")
    [ -z "${INPUT_MAX_UNIT_COST:-}" ] || options+=(--max-budget-usd="$INPUT_MAX_UNIT_COST")
    [ -z "${INPUT_BRANCH:-}" ] || options+=(--branch="$INPUT_BRANCH")
    commit_at HEAD >"$work/head"
    commit_at "$(target)" >"$work/target"
    tapes >"$work/tapes"
    {
        PATH="$work/bin:$PATH" ingestdeck run --ui lines --color never ${options[@]+"${options[@]}"} "${arguments[@]}" 2>&1 || code="$?"
        printf '%s' "$code" >"$work/code"
    } | print_untrusted
    printf 'exit-code=%s\n' "$(cat "$work/code")" >>"${GITHUB_OUTPUT:?}"
}

# Collects what a run left on this machine, which is about to be deleted. Also after a run that was cancelled.
keep() {
    local tape head before after
    [ -f "$work/tapes" ] || return 0
    # Names of runs are random, so the new one is what was not there before. Without one, nothing was planned.
    tape="$(tapes | comm -13 "$work/tapes" - | tail -n 1)"
    rm -rf "$work/tapes" "$work/artifact"
    [ -n "$tape" ] || return 0
    mkdir "$work/artifact"
    cp "$tape" "$work/artifact/"
    printf 'tape=%s\nartifact=%s\n' "$(realpath "$tape")" "$work/artifact" >>"${GITHUB_OUTPUT:?}"
    # A branch that did not exist began at HEAD.
    head="$(cat "$work/head")" before="$(cat "$work/target")" after="$(commit_at "$(target)")"
    if [ -n "$after" ] && [ "$after" != "${before:-$head}" ]; then
        git -C "$INPUT_PROJECT_DIR" bundle create --quiet "$work/artifact/commit.bundle" "$head..$(target)"
        printf 'commit=%s\n' "$after" >>"$GITHUB_OUTPUT"
        "$work/bin/ingestdeck" report --format md "$tape" >"$work/report.md"
        shortened "$work/report.md" >"$work/artifact/pull-request.md"
    fi
}

comment() {
    local comments="repos/${GITHUB_REPOSITORY:?}/issues/${PULL_REQUEST:?}/comments" marker ids path method=POST
    marker="$(head -n 1 "$work/plan.md")"
    # A token of a pull request from a fork can read only; the summary has the plan, too.
    if ids="$(gh api --paginate "$comments" --jq ".[] | select(.user.type == \"Bot\" and (.body | startswith(\"$marker\"))) | .id")"; then
        path="$comments"
        if [ -n "$ids" ]; then
            method=PATCH path="repos/$GITHUB_REPOSITORY/issues/comments/${ids%%$'\n'*}"
        fi
        ! gh api --silent --method "$method" "$path" -F "body=@$work/plan.md" || return 0
    fi
    printf '::warning title=ingestdeck::the plan could not be written as a comment; it is in the summary\n'
}

report() {
    "$work/bin/ingestdeck" report --format md "${TAPE:?}" >>"${GITHUB_STEP_SUMMARY:?}"
    "$work/bin/ingestdeck" report --format github "$TAPE"
}

result() {
    case "${EXIT_CODE:?}:${INPUT_FAIL_ON:?}" in
        0:limit | 0:failure | 0:error | 102:failure | 102:error | 100:error) ;;
        *:limit | *:failure | *:error) exit "$EXIT_CODE" ;;
        *) fail "invalid fail-on \`$INPUT_FAIL_ON\`; expected \`limit\`, \`failure\` or \`error\`" ;;
    esac
}

case "${1:-}" in
    install | plan | run | keep | comment | report | result) "$1" ;;
    *) fail "invalid step \`${1:-}\`" ;;
esac
