//! Secrets in texts of every syntax, and texts that only look like them.

use super::*;

/// The text with `#` for each secret.
fn masked(text: &str) -> String {
    redacted(text).0.replace(MASK, "#")
}

#[test]
fn values_of_names_are_found() {
    for (text, expected) in [
        ("password: hunter22", "password: #"),
        ("password: 8812345678", "password: #"),
        ("password: $ecretPassw0rd", "password: #"),
        ("password: p&9(x)Zq!longer", "password: #"),
        ("pass: hunter22", "pass: #"),
        ("SMTP_PASS=hunter22", "SMTP_PASS=#"),
        ("DB_PASSWORD=hunter22 next", "DB_PASSWORD=# next"),
        (
            "Server=db;Uid=svc;Pwd=hunter22;Database=x",
            "Server=db;Uid=svc;Pwd=#;Database=x",
        ),
        (
            "?user=a&password=a&b!c9&next=1",
            "?user=a&password=#&next=1",
        ),
        (
            r#"{\"api_key\": \"abcdef123\", \"x\": 1}"#,
            r##"{\"api_key\": \"#\", \"x\": 1}"##,
        ),
        (r#"{"accessToken":"abcdef123"}"#, r##"{"accessToken":"#"}"##),
        (
            "connect(password='four 9 \" words long', x=1)",
            "connect(password='#', x=1)",
        ),
        (
            r#"{"broken": "\npassword = \"hunter22\""#,
            r##"{"broken": "\npassword = \"#\""##,
        ),
        (
            "password: |\n  hunter22\nhost: x",
            "password: |\n  #\nhost: x",
        ),
        ("**Password:** hunter22", "**Password:** #"),
        ("API key: abc123def", "API key: #"),
        (
            "- name: DB_PASSWORD\n  value: hunter22",
            "- name: DB_PASSWORD\n  value: #",
        ),
        ("<password>hunter22</password>", "<password>#</password>"),
        (
            "<add key=\"Password\" value=\"hunter22\" />",
            "<add key=\"Password\" value=\"#\" />",
        ),
        ("db.setPassword(\"hunter22\");", "db.setPassword(\"#\");"),
        (
            "dbtool --password hunter22 --host x",
            "dbtool --password # --host x",
        ),
        (
            "a%26password%3Dhunter22%26b%3D1",
            "a%26password%3D#%26b%3D1",
        ),
        ("password = correcthorse\n", "password = #\n"),
        ("PGPASSWORD='a b c' psql", "PGPASSWORD='#' psql"),
        (
            "DB_PASSWORD\thunter2x\nDB_HOST\tdb",
            "DB_PASSWORD\t#\nDB_HOST\tdb",
        ),
        ("pw=hunter22", "pw=#"),
        ("The password is hunter2!x, so", "The password is #, so"),
        ("Das Passwort ist \"hunter22\".", "Das Passwort ist \"#\"."),
        (
            "passwords: [\"hunter2!\", \"b9x!\"]",
            "passwords: [\"#\", \"#\"]",
        ),
        ("passwords: [hunter2!, b9x!]", "passwords: [#, #]"),
        ("db_password\thunter2x", "db_password\t#"),
        (
            "passwords:\n  - hunter22\n  - 'b9x!'\nhosts:\n  - a1b2",
            "passwords:\n  - #\n  - '#'\nhosts:\n  - a1b2",
        ),
        ("kennwort=hunter22", "kennwort=#"),
        ("Passwort: hunter22", "Passwort: #"),
        ("contraseña: hunter22", "contraseña: #"),
        (
            "mot_de_passe=hunter22, mot de passe : hunter22",
            "mot_de_passe=#, mot de passe : #",
        ),
        ("SENHA=hunter22", "SENHA=#"),
        ("hasło: hunter22", "hasło: #"),
        ("Пароль: тайна123", "Пароль: #"),
        ("密码：hunter22", "密码：#"),
        ("パスワード: hunter22", "パスワード: #"),
        ("SECRET_KEY_BASE=a1b2c3d4e5f6", "SECRET_KEY_BASE=#"),
        ("FERNET_KEY=a1b2c3d4e5f6g7h8=", "FERNET_KEY=#"),
        ("id,password\n1,hunter22\n", "id,password\n1,#\n"),
    ] {
        assert_eq!(masked(text), expected);
    }
}

#[test]
fn headers_commands_and_sql_are_found() {
    for (text, expected) in [
        (
            "Authorization: Bearer abcdefghijklmnop",
            "Authorization: Bearer #",
        ),
        ("Authorization: token abc123def", "Authorization: token #"),
        (
            "curl -H 'Authorization: ApiKey abc123def' x",
            "curl -H 'Authorization: ApiKey #' x",
        ),
        ("a Bearer abc123def456", "a Bearer #"),
        ("Basic c3ZjOmh1bnRlcjIy", "Basic #"),
        (
            "Cookie: session=abc; theme=dark\nHost: x",
            "Cookie: #\nHost: x",
        ),
        ("Set-Cookie: sid=1a2b3c; Path=/", "Set-Cookie: #"),
        ("mysql -uroot -pS3cret db", "mysql -uroot -p# db"),
        ("curl -u svc:hunter22 https://x", "curl -u svc:# https://x"),
        (
            "CREATE USER a IDENTIFIED BY 'hunter22'",
            "CREATE USER a IDENTIFIED BY '#'",
        ),
        (
            "machine h login l password p9x",
            "machine h login l password #",
        ),
        ("svc:hunter22@tcp(db:3306)/x", "svc:#@tcp(db:3306)/x"),
    ] {
        assert_eq!(masked(text), expected);
    }
}

#[test]
fn secrets_in_addresses_are_found() {
    for (text, expected) in [
        (
            "postgres://ada:s3cret@db:5432/x",
            "postgres://ada:#@db:5432/x",
        ),
        ("postgres://svc:hun/ter2@db", "postgres://svc:#@db"),
        (
            "postgres://svc:h@n/t@r@db/x?a=b@c",
            "postgres://svc:#@db/x?a=b@c",
        ),
        (
            "https://abcdef0123456789abcdef@github.com/x",
            "https://#@github.com/x",
        ),
        (
            "https://abcdef0123456789:x-oauth-basic@github.com/x",
            "https://#:x-oauth-basic@github.com/x",
        ),
        ("redis://:hunter22@cache:6379/0", "redis://:#@cache:6379/0"),
        ("https:\\/\\/a:hunter22@b", "https:\\/\\/a:#@b"),
    ] {
        assert_eq!(masked(text), expected);
    }
}

#[test]
fn long_value_is_found_as_a_whole() {
    let token = "aB3+".repeat(20_000);
    assert_eq!(masked(&format!("token={token} next")), "token=# next");
}

#[test]
fn hostile_text_is_searched_in_linear_steps() {
    for part in [
        "://",
        "token=",
        "password=$a&",
        "cookie: ",
        "password: \"",
        "mysql bearer ab1cd2ef3 ",
        "(password:",
        "a:b@",
        "pass:",
        "pass:)",
        "-----BEGIN PRIVATE KEY-----",
        "Private-Lines: 3 ",
        "key: |\\n",
        "id,password\\n",
    ] {
        masked(&part.repeat(10_000));
    }
    masked(&format!("pass:{}", ")".repeat(400)).repeat(500));
}

#[test]
fn ordinary_text_holds_no_secret() {
    for text in [
        "password: <your password>",
        "password: ${VAR}",
        "password: \"{{ env_var('X') }}\"",
        "password: {{ env_var('X') }}",
        "auth_token_ref: env:NOTION_TOKEN",
        "password=$PGPASSWORD psql",
        "the password is hashed",
        "Password: required, at least 8 characters",
        "a token is a word; the secret of coffee is freshness",
        "the secret: freshness",
        "token count: 1234",
        "\"max_tokens\": 4096, \"cache_read_input_tokens\": 123",
        "{\"input_tokens\":123456,\"token\":1234567}",
        "tests pass: 1234, fail: 2",
        "password VARCHAR(255) NOT NULL, token UUID",
        "SELECT password, token FROM users WHERE token = t.token AND password = $1",
        "fn login(password: &str, token: Option<String>) -> bool",
        "connect(user=user, password=password, token=access_token)",
        "password = os.environ[\"DB_PASSWORD\"]",
        "password: z.string().min(8),",
        "const token = await getToken();",
        "if password == None:",
        "https://example.com/a/b:c",
        "https://packages.example.org/@babel/core and http://localhost:3000/@vite/client",
        "https://ada@dev.azure.com/x and ssh://git@github.com/a/b",
        "postgres://user:${PASSWORD}@host/db",
        "mail ada@example.com: see https://example.com:443/?to=a@b.example",
        "Authorization: required",
        "bearer authentication and basic understanding of things",
        "Cookie: a small cake",
        "credentials: service-account.json",
        "- name: password\n  description: Hash of the password of 2024.",
        "dimension: password { type: string sql: ${TABLE}.password ;; }",
        "mysql -p$MYSQL_PASSWORD -h db",
        "passphrase: (optional)",
        "the password is base64-encoded, the token is OAuth2 and the secret is required",
        "le mot de passe est obligatoire ; das Passwort ist erforderlich; пароль: обязателен",
        "passwords: [\"required\", \"optional\"]",
        "USER_PASSWORD\tstring\trequired",
        "user_password\tThe password of 2024",
        "`SO_USER_COOKIE` to `sys::socket2` for all",
        "(SOCKET, SCM_CREDENTIALS) => {\n    let cred: libc::ucred = read(p9 as *const _);",
        "pw: Page, pw = playwright",
    ] {
        assert_eq!(masked(text), text);
    }
}

#[test]
fn values_of_phrases_are_found() {
    for (text, expected) in [
        (
            "ldapsearch -x -D cn=admin -w S3cret! -b dc=x",
            "ldapsearch -x -D cn=admin -w # -b dc=x",
        ),
        ("sqlplus -s scott/t1ger@db", "sqlplus -s scott/#@db"),
        ("sqlplus 'scott/\"t1ger\"@db'", "sqlplus 'scott/\"#\"@db'"),
        ("sqlplus scott/\"ti ger\"@db", "sqlplus scott/\"#\"@db"),
        (
            "machine h login l password hunter",
            "machine h login l password #",
        ),
        (
            "db.example:5432:app:svc:hun\\:ter22",
            "db.example:5432:app:svc:#",
        ),
        ("*:*:*:svc:hunter22\n", "*:*:*:svc:#\n"),
        (
            "https://x/maps?a=1&key=aB3dE5gH7jK9mN1pQ&b=2",
            "https://x/maps?a=1&key=#&b=2",
        ),
        (
            r#"{"auths": {"r": {"auth": "c3ZjOmh1bnRlcjIy"}}"#,
            r##"{"auths": {"r": {"auth": "#"}}"##,
        ),
        ("//r/:_auth=c3ZjOmh1bnRlcjIy", "//r/:_auth=#"),
        (
            r#"{"kty": "EC", "x": "abcdefghijklmnop", "d": "abcdefghijklmnop""#,
            r##"{"kty": "EC", "x": "abcdefghijklmnop", "d": "#""##,
        ),
        (
            r#"{\"kty\":\"EC\",\"d\":\"abcdefghijklmnop\"}"#,
            r##"{\"kty\":\"EC\",\"d\":\"#\"}"##,
        ),
    ] {
        assert_eq!(masked(text), expected);
    }
    let key = format!("0x{}", "1a".repeat(32));
    assert_eq!(
        masked(&format!("the private key is {key}, so")),
        "the private key is #, so"
    );
    let words = "legal winner thank year wave sausage worth useful legal winner thank yellow";
    for before in [
        "mnemonic: ",
        "seed phrase = \"",
        "Recovery phrase is:\n",
        "\"mnemonic\":\"",
    ] {
        assert_eq!(masked(&format!("{before}{words}")), format!("{before}#"));
    }
}

#[test]
fn ordinary_phrases_are_not_masked() {
    for text in [
        "login page password field",
        "the login form has a password field of 12 characters",
        "seed phrase words are shown once and never again because they open the wallet for anyone who reads them",
        "https://x/list?key=customer-orders-2024&key=0199f7a4-6f00-7e64-9bd3-0a1b2c3d4e5f",
        "sqlplus / as sysdba; sqlplus /nolog",
        "src/main.rs:1234:5: error: unknown:name",
        "00:11:22:33:44:55 and 2024-01-01T10:2000:30",
        "oauth: c3ZjOmh1bnRlcjIy, auth = authenticate",
        r#"{"p": "abcdefghijklmnopq", "d": "2024-01-01T00:00:00"}"#,
    ] {
        assert_eq!(masked(text), text);
    }
}

/// A block of that kind, its lines at the end of `before`.
fn block(kind: &str, before: &str) -> String {
    let body = "MIIEpAIBAAKCAQEAx7Jq".repeat(3);
    format!(
        "-----BEGIN {kind}-----\n{before}{body}\n{before}{body}\n{before}c2hvcnQ=\n{before}-----END {kind}-----"
    )
}

#[test]
fn blocks_are_masked_whatever_is_around_them() {
    for kind in [
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
        "EC PRIVATE KEY",
    ] {
        for before in ["", "    ", "> ", "  12\t"] {
            let text = format!("key: |\n{}\nnext", block(kind, before));
            assert_eq!(masked(&text), "key: |\n#\nnext");
        }
        let one_line = block(kind, "").replace('\n', "\\n");
        assert_eq!(masked(&format!("\"{one_line}\"")), "\"#\"");
    }
    let encrypted = block("RSA PRIVATE KEY", "").replacen(
        '\n',
        "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A\n\n",
        1,
    );
    assert_eq!(masked(&encrypted), "#");
}

#[test]
fn blocks_that_come_line_by_line_are_masked_to_their_end() {
    for text in [
        block("RSA PRIVATE KEY", ""),
        block("PGP PRIVATE KEY BLOCK", "  "),
    ] {
        let mut redactor = Redactor::default();
        let mut mask = redactor.consecutive_texts();
        let (first, rest) = text.split_once('\n').unwrap();
        assert_eq!(mask(first), MASK);
        let left: Vec<String> = rest
            .lines()
            .map(|line| mask(line).trim().to_owned())
            .collect();
        let (end, body) = left.split_last().unwrap();
        assert!(
            body.iter().all(|line| line == MASK) && end.starts_with("-----END"),
            "{left:?}"
        );
        assert_eq!(mask("done"), "done");
    }
}

#[test]
fn other_lines_within_an_open_block_stay() {
    let mut redactor = Redactor::default();
    let mut mask = redactor.consecutive_texts();
    mask("-----BEGIN PRIVATE KEY-----");
    assert_eq!(
        mask("a warning of something else"),
        "a warning of something else"
    );
    let code = "MIIE".repeat(16);
    assert_eq!(
        mask(&format!("12:00:01 INFO {code}")),
        "12:00:01 INFO [masked]"
    );
    for _ in 0..KEY_LINES {
        mask("two words");
    }
    assert_eq!(mask(&code), code, "given up");
}

#[test]
fn base64_of_a_block_is_masked() {
    let code = BASE64.encode(block("PRIVATE KEY", ""));
    assert_eq!(
        masked(&format!("tls.key: {code}\nnext: 1")),
        "tls.key: #\nnext: 1"
    );
    let broken: Vec<&str> = (0..code.len())
        .step_by(76)
        .map(|at| &code[at..code.len().min(at + 76)])
        .collect();
    assert_eq!(masked(&broken.join("\n  ")), "#");
    let mut redactor = Redactor::default();
    let mut mask = redactor.consecutive_texts();
    assert!(broken.iter().all(|line| mask(line) == MASK));
    let public = BASE64.encode("-----BEGIN CERTIFICATE-----\nMIIB");
    assert_eq!(masked(&public), public);
}

#[test]
fn blocks_without_a_beginning_are_masked() {
    let body = "MIIEpAIBAAKCAQEAx7Jq".repeat(3);
    for newline in ["\n", "\r\n", "\\n", "\n  "] {
        let text = [
            "so:",
            &body,
            &body,
            "c2g=",
            "-----END RSA PRIVATE KEY-----",
            "x",
        ]
        .join(newline);
        assert_eq!(masked(&text), format!("so:{newline}#{newline}x"));
    }
    let text = "a line\n-----END PRIVATE KEY-----";
    assert_eq!(masked(text), text);
}

#[test]
fn words_about_keys_stay() {
    for text in [
        "a file that begins with -----BEGIN CERTIFICATE-----\nMIIB",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "BEGIN TRANSACTION; END",
    ] {
        assert_eq!(masked(text), text);
    }
}
