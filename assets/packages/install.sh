#!/bin/sh
# Installs ingestdeck @VERSION@ for the current user. Needs curl or wget, tar, and sha256sum or shasum.
#
#   INGESTDECK_INSTALL_DIR   folder of the program [default: ~/.local/bin]
#   INGESTDECK_DOWNLOAD_URL  folder of the archives, https:// or file://
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

download() {
    case "$1" in file://*) cp "${1#file://}" "$2" 2>/dev/null && return 0 || return 1 ;; esac
    if has curl; then
        curl --fail --silent --show-error --location --proto-redir '=https' --retry 3 --output "$2" "$1"
    elif has wget; then
        wget --quiet --output-document "$2" "$1"
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

# Also replaces a program that runs, and leaves the former file if the disk is full.
place() {
    mkdir -p "$(dirname "$2")" 2>/dev/null && cp "$1" "$2.new" 2>/dev/null && chmod "$3" "$2.new" && mv -f "$2.new" "$2"
}

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

    for file in "$name.tar.gz" "$name.tar.gz.sha256"; do
        download "$url/$file" "$work/$file" ||
            fail "cannot download $url/$file" "check the connection and that this release has the file"
    done
    expected="$(cut -d ' ' -f 1 "$work/$name.tar.gz.sha256")"
    actual="$(sha256 "$work/$name.tar.gz")"
    [ "$expected" = "${actual%% *}" ] ||
        fail "$name.tar.gz has the SHA-256 ${actual%% *}, but expected $expected" "download again; if it repeats, report it"
    tar -xzf "$work/$name.tar.gz" -C "$work" || fail "cannot unpack $name.tar.gz"

    from="$work/$name"
    place "$from/ingestdeck" "$programs/ingestdeck" 755 ||
        fail "cannot write $programs/ingestdeck" "set INGESTDECK_INSTALL_DIR to a folder that you can write"
    {
        place "$from/completions/ingestdeck.bash" "$data/bash-completion/completions/ingestdeck" 644 &&
            place "$from/completions/_ingestdeck" "$data/zsh/site-functions/_ingestdeck" 644 &&
            place "$from/completions/ingestdeck.fish" "$data/fish/vendor_completions.d/ingestdeck.fish" 644 &&
            for page in "$from"/man/man1/*.1; do
                place "$page" "$data/man/man1/${page##*/}" 644 || exit 1
            done
    } || printf 'warning: cannot write completions and manual pages to %s\n' "$data" >&2

    printf 'installed %s: %s\n' "$programs/ingestdeck" "$("$programs/ingestdeck" --version)"
    case ":$PATH:" in
        *":$programs:"*) ;;
        *) printf 'help: add %s to PATH\n' "$programs" ;;
    esac
    printf 'try it: ingestdeck demo\n'
}

# The whole script is read before anything runs, so a download that breaks off does nothing.
main
