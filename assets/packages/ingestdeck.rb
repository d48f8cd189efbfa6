class Ingestdeck < Formula
  desc "Watch, replay and step ingest work units that run through Claude Code"
  homepage "@REPOSITORY@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    on_arm do
      url "@REPOSITORY@/releases/download/v@VERSION@/ingestdeck-@VERSION@-aarch64-apple-darwin.tar.xz"
      sha256 "@SHA256:aarch64-apple-darwin@"
    end
    on_intel do
      url "@REPOSITORY@/releases/download/v@VERSION@/ingestdeck-@VERSION@-x86_64-apple-darwin.tar.xz"
      sha256 "@SHA256:x86_64-apple-darwin@"
    end
  end
  on_linux do
    on_arm do
      url "@REPOSITORY@/releases/download/v@VERSION@/ingestdeck-@VERSION@-aarch64-unknown-linux-gnu.tar.xz"
      sha256 "@SHA256:aarch64-unknown-linux-gnu@"
    end
    on_intel do
      url "@REPOSITORY@/releases/download/v@VERSION@/ingestdeck-@VERSION@-x86_64-unknown-linux-gnu.tar.xz"
      sha256 "@SHA256:x86_64-unknown-linux-gnu@"
    end
  end

  def install
    bin.install "ingestdeck"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completions/ingestdeck.bash" => "ingestdeck"
    zsh_completion.install "completions/_ingestdeck"
    fish_completion.install "completions/ingestdeck.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/ingestdeck --version")
  end
end
