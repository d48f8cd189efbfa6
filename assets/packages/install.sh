#!/bin/sh
# Installs ingestdeck @VERSION@ for the current user. Needs curl or wget, tar with xz, and sha256sum or shasum.
#
#   INGESTDECK_INSTALL_DIR   folder of the program [default: ~/.local/bin]
#   INGESTDECK_DOWNLOAD_URL  folder of the archives, https://, file://, or http:// on this machine
#   XDG_DATA_HOME            folder of completions and manual pages [default: ~/.local/share]
#
# Uses no sudo and changes no shell profile.
set -eu

fail() {
    printf 'error: %s\n' "$1" >&2
    [ -z "${2:-}" ] || printf 'help: %s\n' "$2" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

find_target() {
    system="$(uname -s)" machine="$(uname -m)"
    case "$machine" in
        x86_64 | amd64) machine=x86_64 ;;
        aarch64 | arm64) machine=aarch64 ;;
        *) fail "no archive exists for the processor $machine" "$from_source" ;;
    esac
    case "$system" in
        Linux)
            # `ldd --version` of musl fails, and names itself.
            if (ldd --version 2>&1 || true) | grep -qi musl; then
                fail "the program needs glibc, which this Linux lacks (musl)" "$from_source"
            fi
            printf '%s-unknown-linux-gnu' "$machine"
            ;;
        Darwin)
            # A shell that Rosetta translates reports the wrong processor.
            [ "$(sysctl -n hw.optional.arm64 2>/dev/null || true)" != 1 ] || machine=aarch64
            printf '%s-apple-darwin' "$machine"
            ;;
        MINGW* | MSYS* | CYGWIN* | Windows*) fail "ingestdeck does not run on Windows" "run this installer in WSL" ;;
        *) fail "no archive exists for $system" "$from_source" ;;
    esac
}

insecure() { fail "refused to download from $1: it is not https://"; }

download() {
    protocol='=https'
    case "$1" in
        file://*) cp "${1#file://}" "$2" 2>/dev/null && return 0 || return 1 ;;
        https://*) ;;
        # For trials. An address with a user name could name another host after it.
        *@*) insecure "$1" ;;
        http://127.0.0.1[:/]* | http://localhost[:/]*) protocol='=http' ;;
        *) insecure "$1" ;;
    esac
    if has curl; then
        curl --fail --silent --show-error --location --proto "$protocol" --proto-redir '=https' --retry 3 --output "$2" "$1"
    elif has wget; then
        # wget follows redirects to any protocol, and lists them.
        LC_ALL=C wget --no-verbose --server-response --output-document "$2" "$1" 2>"$2.log" || {
            tail -n 1 "$2.log" >&2
            return 1
        }
        ! grep -qiE '^ *location: *(http|ftp|ftps):' "$2.log" || insecure "the redirect of $1"
    else
        fail "curl and wget are missing" "install one of them"
    fi
}

sha256() {
    if has sha256sum; then
        sha256sum "$1"
    elif has shasum; then
        shasum -a 256 "$1"
    else
        fail "sha256sum and shasum are missing, so the archive cannot be checked" "install one of them"
    fi
}

# Copies a file to the folder where it will be. `mv` then also replaces a program that runs, completely or not at all.
stage() {
    if ! { mkdir -p "$(dirname "$2")" && [ ! -d "$2" ] && cp "$1" "$2.new" && chmod "$3" "$2.new"; } 2>/dev/null; then
        rm -f "$2.new"
        return 1
    fi
}

place() { stage "$1" "$2" 644 && mv -f "$2.new" "$2"; }

main() {
    from_source="build it from source, which needs Rust: \`cargo install --path .\` in a clone of @REPOSITORY@"
    url="${INGESTDECK_DOWNLOAD_URL:-@REPOSITORY@/releases/download/v@VERSION@}"
    [ -n "${HOME:-}" ] || fail "HOME is not set" "set it to your home folder"
    programs="${INGESTDECK_INSTALL_DIR:-$HOME/.local/bin}"
    data="${XDG_DATA_HOME:-$HOME/.local/share}"
    has tar || fail "tar is missing" "install it"

    target="$(find_target)"
    name="ingestdeck-@VERSION@-$target"
    work="$(mktemp -d)" || fail "cannot create a temporary folder" "set TMPDIR to a folder that you can write"
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM

    for file in "$name.tar.xz" "$name.tar.xz.sha256"; do
        download "$url/$file" "$work/$file" ||
            fail "cannot download $url/$file" "check the connection and that this release has the file"
    done
    expected="$(cut -d ' ' -f 1 "$work/$name.tar.xz.sha256")"
    actual="$(sha256 "$work/$name.tar.xz")"
    [ "$expected" = "${actual%% *}" ] ||
        fail "$name.tar.xz has the SHA-256 ${actual%% *}, but expected $expected" "download again; if it repeats, report it"
    tar -xJf "$work/$name.tar.xz" -C "$work" || {
        [ "$(uname -s)" = Darwin ] || has xz || fail "cannot unpack $name.tar.xz: xz is missing" "install it (package xz-utils or xz)"
        fail "cannot unpack $name.tar.xz" "check that $work has room"
    }

    from="$work/$name" program="$programs/ingestdeck"
    stage "$from/ingestdeck" "$program" 755 ||
        fail "cannot write $program" "set INGESTDECK_INSTALL_DIR to a folder that you can write"
    # What does not start here replaces nothing.
    version="$("$program.new" --version)" || {
        rm -f "$program.new"
        fail "the program of $name.tar.xz does not start here, so $program is as it was" "$from_source"
    }
    mv -f "$program.new" "$program" || fail "cannot replace $program" "check who may write it"
    (
        place "$from/completions/ingestdeck.bash" "$data/bash-completion/completions/ingestdeck" &&
            place "$from/completions/_ingestdeck" "$data/zsh/site-functions/_ingestdeck" &&
            place "$from/completions/ingestdeck.fish" "$data/fish/vendor_completions.d/ingestdeck.fish" || exit 1
        for page in "$from"/man/man1/*.1; do
            place "$page" "$data/man/man1/${page##*/}" || exit 1
        done
    ) || printf 'warning: cannot write completions and manual pages to %s\n' "$data" >&2

    printf 'installed %s: %s\n' "$program" "$version"
    case ":$PATH:" in
        *":$programs:"*) ;;
        *) printf 'help: add %s to PATH\n' "$programs" ;;
    esac
    printf 'try it: ingestdeck demo\n'
}

# The whole script is read before anything runs, so a download that breaks off does nothing.
main
