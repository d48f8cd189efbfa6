//! Ten generated secrets of each kind that a context shows, at every place of a tape.

use super::*;

/// Texts with `§` for a secret, and how the secret is generated: a prefix, its alphabet, and its length.
const KINDS: &[(&str, &str, &str, &str, usize)] = &[
    (
        "azure json",
        r#"{"accountKey": "§=="}"#,
        "",
        BASE64_CHARS,
        86,
    ),
    (
        "azure keys list",
        r#"[{"creationTime": null, "keyName": "key1", "permissions": "FULL", "value": "§=="}]"#,
        "",
        BASE64_CHARS,
        86,
    ),
    (
        "azure connection",
        "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=§==;EndpointSuffix=core.windows.net",
        "",
        BASE64_CHARS,
        86,
    ),
    (
        "azure short key",
        "AccountName=a;AccountKey=§==;x",
        "",
        ALNUM,
        16,
    ),
    (
        "azure bus",
        "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=§=",
        "",
        BASE64_CHARS,
        43,
    ),
    (
        "azure bus json",
        r#"{"primaryConnectionString": "Endpoint=sb://x/;SharedAccessKey=§="}"#,
        "",
        BASE64_CHARS,
        43,
    ),
    (
        "azure bus key",
        r#"{"primaryKey": "§="}"#,
        "",
        BASE64_CHARS,
        43,
    ),
    (
        "azure sas",
        "https://acct.blob.core.windows.net/c/f.csv?sv=2022-11-02&sr=b&sig=§%3D",
        "",
        ALNUM,
        43,
    ),
    (
        "azure sas json",
        r#"{"sas": "sv=2022-11-02&ss=b&sig=§%3D&se=2026"}"#,
        "",
        ALNUM,
        43,
    ),
    ("datadog env", "DD_API_KEY=§", "", HEX, 32),
    ("datadog app env", "export DD_APP_KEY=§", "", HEX, 40),
    (
        "datadog application env",
        "DD_APPLICATION_KEY=\"§\"",
        "",
        HEX,
        40,
    ),
    (
        "datadog yaml",
        "datadog:\n  api_key: §\n  site: datadoghq.eu",
        "",
        HEX,
        32,
    ),
    ("datadog app yaml", "application_key: §", "", HEX, 40),
    ("datadog json", r#"{"application_key": "§"}"#, "", HEX, 40),
    (
        "datadog header",
        "curl -H 'DD-APPLICATION-KEY: §' https://api.datadoghq.com",
        "",
        HEX,
        40,
    ),
    ("nats user seed", "nsc printed §", "SU", UPPER, 56),
    ("nats account seed", "seed: §", "SA", UPPER, 56),
    ("nats operator seed", "§ is the operator", "SO", UPPER, 56),
    (
        "nats creds",
        "------BEGIN USER NKEY SEED------\n§\n------END USER NKEY SEED------\n",
        "SU",
        UPPER,
        56,
    ),
    (
        "nats creds jwt",
        "-----BEGIN NATS USER JWT-----\neyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.§\n------END NATS USER JWT------",
        "eyJ",
        ALNUM,
        80,
    ),
    (
        "kubeconfig key",
        "users:\n- name: admin\n  user:\n    client-key-data: §\n",
        "LS0tLS1CRUdJTiBSU0Eg",
        ALNUM,
        120,
    ),
    (
        "kubeconfig other key",
        "    client-key-data: §==\n",
        "",
        ALNUM,
        118,
    ),
    ("kubeconfig token", "  user:\n    token: §\n", "", ALNUM, 40),
    (
        "kubeconfig json",
        r#"{"users": [{"name": "a", "user": {"client-key-data": "§=="}}]}"#,
        "",
        ALNUM,
        118,
    ),
    ("slack bot", "SLACK=§", "xoxb-", ALNUM, 40),
    ("slack user", "it is § here", "xoxp-", ALNUM, 40),
    ("slack app", "it is § here", "xapp-1-A", ALNUM, 40),
    ("slack session", "it is § here", "xoxc-", ALNUM, 40),
    ("slack cookie", "d=§;", "xoxd-", ALNUM, 40),
    (
        "cookie jar",
        ".example.com\tTRUE\t/\tTRUE\t1790000000\tsession\t§\n",
        "",
        ALNUM,
        32,
    ),
    (
        "cookie jar of http",
        "#HttpOnly_.example.com\tFALSE\t/app\tFALSE\t0\tsid\t§",
        "",
        ALNUM,
        24,
    ),
    (
        "cookie header",
        "GET / HTTP/1.1\nCookie: sid=§; theme=dark\nHost: x",
        "",
        ALNUM,
        32,
    ),
    (
        "set-cookie header",
        "Set-Cookie: sid=§; Path=/; HttpOnly",
        "",
        ALNUM,
        32,
    ),
    (
        "cookie json",
        r#"{"headers": {"cookie": "sid=§"}}"#,
        "",
        ALNUM,
        32,
    ),
    (
        "putty",
        "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: me\nPublic-Lines: 2\nAAAAC3NzaC1lZDI1NTE5AAAAIJ\nabcd\nPrivate-Lines: 1\n§\nPrivate-MAC: 0123456789abcdef",
        "",
        BASE64_CHARS,
        44,
    ),
    (
        "putty of two lines",
        "Private-Lines: 2\nAAAAIEi3nRPzCkUTRTnKu4zdYk4mBDqGcZ6g3S2nRPzCkUTRTnKu4zdYk4mBDqGc\n§\nnext",
        "",
        BASE64_CHARS,
        44,
    ),
    (
        "openssl option",
        "openssl enc -aes-256-cbc -in a -k § -out b",
        "",
        ALNUM,
        14,
    ),
    (
        "openssl pass",
        "openssl rsa -in k.pem -passin pass:§ -out x",
        "",
        ALNUM,
        14,
    ),
    (
        "openssl pass enc",
        "openssl enc -d -pass pass:§",
        "",
        ALNUM,
        14,
    ),
    ("curl", "curl -s -u svc:§ https://x.example", "", ALNUM, 14),
    (
        "curl user",
        "curl --user 'svc:§' https://x.example",
        "",
        ALNUM,
        14,
    ),
    ("env", "MY_API_TOKEN=§", "", ALNUM, 24),
    ("flag", "tool --api-key § --verbose", "", ALNUM, 24),
    (
        "flag of one word",
        "tool --password=§ --verbose",
        "",
        ALNUM,
        24,
    ),
    ("header", "X-Api-Key: §", "", ALNUM, 24),
    (
        "bearer",
        "curl -H \"Authorization: Bearer §\" x",
        "",
        ALNUM,
        40,
    ),
    ("yaml", "db:\n  password: \"§\"\n", "", ALNUM, 16),
    ("toml", "client_secret = '§'", "", ALNUM, 24),
    ("ini", "[db]\npassword=§\nhost=x", "", ALNUM, 16),
    ("url", "postgres://svc:§@db.example:5432/x", "", ALNUM, 16),
    ("web url", "https://svc:§@x.example/a", "", ALNUM, 16),
    ("json", r#"{"db": {"password": "§"}}"#, "", ALNUM, 16),
    (
        "json like a call",
        r#"{"password":"Summer(§)!"}"#,
        "",
        ALNUM,
        14,
    ),
    (
        "json like an index",
        r#"{"password":"Welcome[§]"}"#,
        "",
        ALNUM,
        14,
    ),
    (
        "json like a type",
        r#"{"password":"hunter<§>"}"#,
        "",
        ALNUM,
        14,
    ),
    ("json like a field", r#"{"api_key":"req.§"}"#, "", ALNUM, 14),
    ("quotes like a field", "password = 'u.§'", "", ALNUM, 14),
    (
        "json like a parameter",
        r#"{"password":":§!"}"#,
        "",
        ALNUM,
        14,
    ),
];

const BASE64_CHARS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[test]
fn ten_secrets_of_every_kind_leave_nothing_behind() {
    let mut dice = TestRng(0x0123_4567_89AB_CDEF);
    let mut survivors = Vec::new();
    for (kind, text, prefix, of, length) in KINDS {
        for round in 0..10 {
            // A secret of letters alone is a word.
            let secret = format!("{prefix}{}7x", dice.word(of, length - 2));
            let text = text.replace('§', &secret);
            let (masked, _) = redacted(&text);
            if survives(&secret, &masked) {
                survivors.push(format!("{kind}: {text} {masked}"));
                continue;
            }
            for place in [round, round + 3] {
                let lines = put(place, &text, &mut dice);
                let (exported, _) = exported(&lines);
                if survives(&secret, &everything(&exported)) && !is_split(place % PLACES, kind) {
                    survivors.push(format!(
                        "{kind} at {place}: {}",
                        String::from_utf8_lossy(&exported[0])
                    ));
                }
            }
        }
    }
    assert!(
        survivors.is_empty(),
        "{}\n{}",
        survivors.len(),
        survivors.join("\n")
    );
}

/// True for a place that separates a secret from the line that shows its kind, or a file from its beginning.
fn is_split(place: usize, kind: &str) -> bool {
    place == 4 && (kind.starts_with("azure keys") || kind == "yaml of two lines")
        || place == 11 && kind.contains("json")
}

/// The texts with `#` for each secret must be what redaction makes of the first ones.
fn assert_masked(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(redacted(text).0.replace(MASK, "#"), *expected);
    }
}

#[test]
fn values_in_delimiters_are_not_code() {
    assert_masked(&[
        (r#"{"password":"Summer(2024)!"}"#, r##"{"password":"#"}"##),
        (r#"{"password":"Welcome[2024]"}"#, r##"{"password":"#"}"##),
        (r#"{"password":"hunter<2>"}"#, r##"{"password":"#"}"##),
        (r#"{"password":"u.Hunter22"}"#, r##"{"password":"#"}"##),
        (r#"{"password":"$ecret(2024)!"}"#, r##"{"password":"#"}"##),
        (r#"{"password":"f(g(x)1)"}"#, r##"{"password":"#"}"##),
        (r#"{"password":"秘密の言葉です"}"#, r##"{"password":"#"}"##),
        (r#"{"password":":Abc123xyz!"}"#, r##"{"password":"#"}"##),
        (r#"{"api_key":"req.a1b2c3d4"}"#, r##"{"api_key":"#"}"##),
        (
            r#"{"Authorization":"req.a1b2c3d4"}"#,
            r##"{"Authorization":"#"}"##,
        ),
        ("password = 'Summer(2024)!'", "password = '#'"),
        ("DB_PASSPHRASE=\"the dog is 9\"", "DB_PASSPHRASE=\"#\""),
        ("id,password\n1,u.Hunter22\n", "id,password\n1,#\n"),
        (
            "| id | api_key |\n|---|---|\n| 1 | req.a1b2c3d4 |",
            "| id | api_key |\n|---|---|\n| 1 | # |",
        ),
    ]);
}

#[test]
fn names_of_other_words_are_not_harmless() {
    assert_masked(&[
        ("launchpad_token=8f3a9c12de77ab", "launchpad_token=#"),
        ("IPAD_TOKEN=8f3a9c12de77ab", "IPAD_TOKEN=#"),
        ("homepage_token: 8f3a9c12de77ab", "homepage_token: #"),
        ("USER_PASSWORD=hunter22", "USER_PASSWORD=#"),
        ("NOTION_TOKEN=8f3a9c12de77ab", "NOTION_TOKEN=#"),
        (
            r#"{"ISSUER_TOKEN":"8f3a9c12de77ab"}"#,
            r##"{"ISSUER_TOKEN":"#"}"##,
        ),
    ]);
    for name in [
        "next_page_token",
        "nextPageToken",
        "uploadProgressToken",
        "PAGE_TOKEN",
        "getToken",
        "IsToken",
        "has_token",
    ] {
        let text = format!(r#"{{"{name}":"8f3a9c12de77ab"}}"#);
        assert_eq!(redacted(&text), (text, 0));
    }
}

#[test]
fn names_of_keys_may_have_a_blank() {
    for word in [
        "Subscription",
        "auth",
        "Master",
        "shared",
        "SSH",
        "Deploy",
        "HMAC",
        "webhook",
        "Fernet",
        "JWT",
        "cipher",
        "AES",
        "Decryption",
        "signature",
        "API",
        "app",
        "application",
        "Access",
        "secret",
        "private",
        "signing",
        "encryption",
    ] {
        assert_masked(&[(
            &format!("{word} key: 9f8e7d6c5b4a"),
            &format!("{word} key: #"),
        )]);
    }
}

#[test]
fn words_of_camel_case_are_names() {
    assert_masked(&[
        ("DBPass=hunter22", "DBPass=#"),
        ("SMTPPass: hunter22", "SMTPPass: #"),
        ("dbPw: hunter22", "dbPw: #"),
        ("userPASS=hunter22", "userPASS=#"),
        ("dbMdp: hunter22", "dbMdp: #"),
        (r#"{"userPw":"hunter22"}"#, r##"{"userPw":"#"}"##),
        ("awsCreds=abc123de", "awsCreds=#"),
        ("AWSCreds: abc123de", "AWSCreds: #"),
        ("bypass: hunter22", "bypass: hunter22"),
    ]);
}

#[test]
fn token_after_a_rejected_one_is_masked() {
    let discord = format!("MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.{}", "aB3dE5gH7".repeat(3));
    assert_masked(&[
        ("task-sk-AbCdEf0123456789XYZabc", "task-#"),
        ("desk-top-sk-AbCdEf0123456789XYZabc", "desk-top-#"),
        (&format!("BOT_TOKEN_{discord}"), "BOT_TOKEN_#"),
        (&format!("{discord} {discord}"), "# #"),
        ("AKIAIOSFODNN7ABCDEFG,AKIAIOSFODNN7ABCDEFH", "#,#"),
    ]);
}

#[test]
fn private_members_of_web_keys_are_masked() {
    let text = r#""k":"AyM1SysPpbyDfgZld3umjw""#;
    let masked = r##""k":"#""##;
    for (before, after) in [
        (r#"{"kty":"oct","#, "}"),
        ("{", r#","kty":"oct"}"#),
        (r#"{"keys":[{"alg":"HS256","#, r#","kty":"oct"}]}"#),
        (r#"so "kty":"oct","#, ""),
        ("so ", r#","alg":"HS256","kty":"oct""#),
        ("so {\n  ", ",\n  \"kty\": \"oct\""),
    ] {
        assert_masked(&[(
            &format!("{before}{text}{after}"),
            &format!("{before}{masked}{after}"),
        )]);
    }
    for text in [
        r#"{"k":"AyM1SysPpbyDfgZld3umjw","type":"oct"}"#,
        r#"{"kty":"oct","n":"AyM1SysPpbyDfgZld3umjw"}"#,
    ] {
        assert_eq!(redacted(text), (text.to_owned(), 0));
    }
}

#[test]
fn lines_of_pgpass_are_masked() {
    assert_masked(&[
        (
            "DB.example.com:5432:app:svc:hunter22x",
            "DB.example.com:5432:app:svc:#",
        ),
        ("*:*:*:svc:ab1!9", "*:*:*:svc:#"),
        ("*:*:*:*:hunter22", "*:*:*:*:#"),
        ("db:5432:*:_svc:hun(22)", "db:5432:*:_svc:#"),
        ("a:1234:b:c:error", "a:1234:b:c:error"),
        ("db:5432:app:svc:required", "db:5432:app:svc:required"),
    ]);
}

#[test]
fn text_about_a_seed_loses_its_secrets_alone() {
    let jwt = format!(
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{}",
        "aB3dE5gH7".repeat(4)
    );
    let words = "legal winner thank year wave sausage worth useful legal winner thank yellow";
    let prose = "The seeds of the field are sown in rows of twelve. ".repeat(40);
    for secret in [&*jwt, &*format!("seed phrase: {words}")] {
        for key in ["seed_notes", "phrase", "mnemonic"] {
            let document = |secret: &str| json!({ (key): format!("{prose}{secret}! {prose}") });
            let (text, masked) = redacted(&document(secret).to_string());
            let kept = if secret == jwt {
                MASK.to_owned()
            } else {
                format!("seed phrase: {MASK}")
            };
            assert_eq!((text, masked), (document(&kept).to_string(), 1));
        }
    }
    let nested = json!({"seed_data": json!({"password": "hunter22", "jwt": jwt}).to_string()});
    let expected = json!({"seed_data": json!({"password": MASK, "jwt": MASK}).to_string()});
    assert_eq!(redacted(&nested.to_string()), (expected.to_string(), 2));
}

#[test]
fn declarations_and_commands_are_masked() {
    assert_masked(&[
        ("ENV DB_PASSWORD s3cret9x", "ENV DB_PASSWORD #"),
        ("ARG DB_PASSWORD s3cret9x", "ARG DB_PASSWORD #"),
        ("setx DB_PASSWORD s3cret9x", "setx DB_PASSWORD #"),
        ("setenv DB_PASSWORD s3cret9x", "setenv DB_PASSWORD #"),
        ("ENV DB_PASSWORD \"two words 9\"", "ENV DB_PASSWORD \"#\""),
        ("zip -P pw9 a.zip b", "zip -P # a.zip b"),
        (
            "x\\nzip -P pw9x a\\nENV DB_PASSWORD s3cret9x\\ndefine('TOKEN','a1b2c3')",
            "x\\nzip -P # a\\nENV DB_PASSWORD #\\ndefine('TOKEN','#')",
        ),
        (
            "x\\ndb:5432:app:svc:hunter22\\ny",
            "x\\ndb:5432:app:svc:#\\ny",
        ),
        ("password: $ecret(2024)!", "password: #"),
        ("the SMTP_PASS is hunter2!x, so", "the SMTP_PASS is #, so"),
        (
            "the pwd is hunter2!x of db_creds",
            "the pwd is # of db_creds",
        ),
        ("--api-key AbCdEfGhIjKlMnOpQr --x", "--api-key # --x"),
        (
            "| id | API key |\n|---|---|\n| 1 | a1b2c3d4 |",
            "| id | API key |\n|---|---|\n| 1 | # |",
        ),
        ("unzip -oP 'two words' a.zip", "unzip -oP '#' a.zip"),
        ("7z a -pQ9x a.7z b", "7z a -p# a.7z b"),
        ("rar a -hpQ9x a.rar b", "rar a -hp# a.rar b"),
        ("sqlcmd -S h -U sa -P pw9", "sqlcmd -S h -U sa -P #"),
        ("sqlcmd -P \\\"pw9x\\\" -S h", "sqlcmd -P \\\"#\\\" -S h"),
        ("bcp t out f -U sa -P pw9", "bcp t out f -U sa -P #"),
        (
            "keytool -storepass pass9 -keypass changeit",
            "keytool -storepass # -keypass #",
        ),
        ("htpasswd -b file user pw9", "htpasswd -b file user #"),
        ("htpasswd -nbB user pw9", "htpasswd -nbB user #"),
        ("htpasswd -c -b file user pw9", "htpasswd -c -b file user #"),
        ("sshpass -p s3cret9x ssh h", "sshpass -p # ssh h"),
        ("sshpass -p 12345678 ssh h", "sshpass -p # ssh h"),
        (
            "sshpass -p s3cret9x ssh -p 2222 h",
            "sshpass -p # ssh -p 2222 h",
        ),
        ("redis-cli -a s3cret9x -a b", "redis-cli -a # -a b"),
        ("zip -P pw9x a\\nbcp t -P pw8x", "zip -P # a\\nbcp t -P #"),
        (
            "define( \"DB_PASSWORD\", \"hunter22\" );",
            "define( \"DB_PASSWORD\", \"#\" );",
        ),
        (
            "headers.set(\\\"X-Api-Key\\\", \\\"abc123def\\\")",
            "headers.set(\\\"X-Api-Key\\\", \\\"#\\\")",
        ),
        (
            "<property name='db.password'>correcthorse</property>",
            "<property name='db.password'>#</property>",
        ),
        (
            "password: >-  # of the database\n  s3cret9x\nhost: x",
            "password: >-  # of the database\n  #\nhost: x",
        ),
        (
            "\"password: |\\n  s3cret9x\\nhost",
            "\"password: |\\n  #\\nhost",
        ),
    ]);
}

#[test]
fn placeholders_in_html_are_not_masked() {
    for text in [
        "password: &quot;{{ env_var(&#39;DB_PASSWORD&#39;) }}&quot;",
        "password: &lt;your password&gt;",
        "PGPASSWORD=&quot;$(cat /run/secrets/db)&quot; psql",
        "curl -H &quot;Authorization: Bearer $TOKEN&quot; https://x.example/v1/items",
        "if password == &quot;&quot;:",
    ] {
        assert_eq!(redacted(text), (text.to_owned(), 0));
    }
    assert_masked(&[("password: &quot;hunter22&quot; x", "password: #; x")]);
}

#[test]
fn stream_without_a_boundary_ends_at_a_complete_message() {
    let token = |rest: &str| format!("github_pat_{}", rest.repeat(8));
    let (first, second) = (token("aB3dE5gH7j"), token("kL9mN1pQ3r"));
    let complete = |text: &str| {
        out(
            &json!({"type": "assistant", "session_id": "s", "parent_tool_use_id": null,
            "message": {"content": [{"type": "text", "text": text}]}}),
        )
    };
    let mut lines = Vec::new();
    for secret in [&first, &second] {
        for start in (0..secret.len()).step_by(9) {
            let end = secret.len().min(start + 9);
            lines.push(delta(0, "text_delta", "text", &secret[start..end]));
            // A line about a message is not one.
            let content = json!({"role": "assistant"});
            lines.push(out(&json!({"type": "user", "session_id": "s", "parent_tool_use_id": null, "text": content})));
        }
        lines.push(complete("done"));
    }
    let (exported, masked) = exported(&lines);
    let all = everything(&exported);
    assert!(!survives(&first, &all) && !survives(&second, &all), "{all}");
    assert_eq!(masked, 2);
}
