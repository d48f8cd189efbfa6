//! Secrets that the shape of a token or a plain `name: value` does not show: in tables, files of passwords and
//! sentences, under names in other languages, and in encodings that split or hide a token.

use super::*;

/// Texts with a secret in place of `#`, which has at least [`TELLING`] characters.
fn texts() -> Vec<(String, String)> {
    let password = "hunter2!xQ9zL";
    let ant = "sk-ant-api03-AbCd1234EfGh5678IjKl9012MnOp";
    let pat = format!("ghp_{}", "aB3dE5gH7jK9".repeat(3));
    let hex = "1a2b3c4d".repeat(8);
    let line = "MIIEpAIBAAKCAQEAx7Jq".repeat(3);
    let mut texts: Vec<(String, String)> = [
        // Tables.
        "{\"headers\":[\"id\",\"password\"],\"headerTypes\":[\"int\",\"text\"],\"rows\":[[1,\"#\"],[2,null]],\"rowCount\":2}",
        "{\"rows\":[[1,\"#\"]],\"columns\":[\"id\",\"password\"]}",
        "{\"columns\":[{\"name\":\"id\"},{\"name\":\"password\"}],\"data\":[[1,\"#\"]]}",
        "id,user,password\n1,ada,x\n2,bob,#\n",
        "id,api_key,n\n2,\"#\",4\n",
        "User name,Password,Access key ID,Secret access key\nada,,AKIAX,#\n",
        "user\tsecret\nada\t#",
        "| id | token |\n|---|---|\n| 1 | # |",
        " id | password \n----+----------\n  1 | #\n(1 row)",
        // Names, lists and sentences.
        "PGPASSWORD='a b c # d' psql",
        "DB_PASSWORD\t#",
        "pw=#",
        "the password is # of course",
        "Das Passwort ist \"#\".",
        "passwords: [\"x\", \"#\"]",
        "{\"passwords\": [\"x\", \"#\"]}",
        "passwords:\n  - x\n  - #\n",
        "kennwort=#",
        "Passwort: #",
        "contraseña: #",
        "mot_de_passe=#",
        "senha: #",
        "hasło: #",
        "пароль: #",
        "密码：#",
        "パスワード: #",
        "SECRET_KEY_BASE=#",
        "FERNET_KEY: #",
        "PASSWORD_DB=#",
        "TOKEN_GITHUB=#",
        "export APP_SECRETS_JSON='#'",
        "Driver={PostgreSQL};Uid=svc;Pwd={#};Server=db",
        // Commands and files.
        "ldapsearch -x -D cn=admin -w # -b dc=x",
        "sqlplus -s scott/#@db",
        "db.example.org:5432:app:svc:#",
    ]
    .map(|text| (text.replace('#', password), password.to_owned()))
    .into_iter()
    .collect();
    let basic = BASE64.encode(format!("svc:{password}"));
    let crypt = "abcdefgh$Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2Yz3/.Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9";
    let words = "legal winner thank year wave sausage worth useful legal winner thank yellow";
    texts.extend(
        [
            ("DB_PASSWORD=#", "SECRET_SAUCE"),
            ("DB_PASSWORD=\"#\"", "COOKIE_MONSTER"),
            ("https://maps.example/api?key=#", "aB3dE5gH7jK9mN1pQ"),
            ("https://maps.example/api?key=#&x=1", "AIzaSyD1e2F3g4H5i6J7"),
            (
                "{\"auths\": {\"registry.example\": {\"auth\": \"#\"}}}",
                &*basic,
            ),
            ("//registry.example/:_auth=#", &basic),
            (
                "{\"kty\":\"EC\",\"crv\":\"P-256\",\"d\":\"#\"}",
                "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE",
            ),
            (
                "{\"keys\":[{\"d\":\"#\",\"kty\":\"RSA\"}]}",
                "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE",
            ),
            ("ada:$apr1$abcdefgh$#", "Ab1Cd2Ef3Gh4Ij5Kl6Mn7/"),
            ("ada:{SHA}#", "qUqP5cyxm6YcTAhz05Hph5gvu9M="),
            ("ada:$2y$10$#", &crypt[9..62]),
            ("root:$6$#:19000:0:99999:7:::", crypt),
            ("root:$y$j9T$#:19000:0:99999:7:::", crypt),
            ("mnemonic: #", words),
            ("your seed phrase: \"#\"", words),
            ("{\"mnemonic\": \"#\"}", words),
            ("the private key 0x#", &hex),
            ("so:\n#\nc2g=\n-----END RSA PRIVATE KEY-----\nnext", &line),
        ]
        .map(|(text, secret)| (text.replace('#', secret), secret.to_owned())),
    );
    // Tokens that are split or encoded.
    for secret in [ant, &pat] {
        let (start, end) = secret.split_at(14);
        for between in [
            "\u{1b}[0m",
            "\u{1b}[1;31m",
            "\u{200b}",
            "\u{200c}",
            "\u{200d}",
            "\u{2060}",
            "\u{feff}",
            "\u{ad}",
            "\\\n",
            "\n",
            "\r\n  ",
            "&shy;",
            "&#8203;",
        ] {
            texts.push((format!("is {start}{between}{end}\nnext"), end.to_owned()));
        }
        let encoded = |of: &str, with: &str| secret.replace(of, with);
        for text in [
            encoded("-", "&#45;").replace('_', "&#95;"),
            encoded("-", "&#x2d;").replace('_', "&lowbar;"),
            encoded("-", "%2D").replace('_', "%5F"),
            format!("a=1&amp;key={secret}&amp;b=2"),
        ] {
            texts.push((format!("is {text} so"), end.to_owned()));
        }
        let full = format!("{} {secret}", "x".repeat(40));
        texts.push((
            format!("{}\n{}\nnext", &full[..70], &full[70..]),
            secret[secret.len() - 12..].to_owned(),
        ));
        let code = BASE64.encode(format!("export KEY={secret} and more?"));
        let url_safe = code.replace('+', "-").replace('/', "_");
        for code in [
            code.clone(),
            code.trim_end_matches('=').to_owned(),
            url_safe,
        ] {
            for text in [
                format!("the code {code} is"),
                format!("data:text/plain;base64,{code}"),
                format!("x/{code}/y"),
            ] {
                texts.push((text, code.clone()));
            }
        }
        let long = BASE64.encode(format!(
            "{}\nkey: {secret}\n{}",
            "a line\n".repeat(20),
            "more\n".repeat(20)
        ));
        let wrapped: Vec<&str> = (0..long.len())
            .step_by(76)
            .map(|at| &long[at..long.len().min(at + 76)])
            .collect();
        texts.push((
            format!("file:\n{}\nend", wrapped.join("\n")),
            wrapped[2].to_owned(),
        ));
    }
    texts
}

#[test]
fn hidden_secrets_are_masked_at_every_place() {
    let message = |content: &str| {
        out(
            &json!({"type": "user", "message": {"content": [{"type": "tool_result", "content": content}]}}),
        )
    };
    let mut survivors = Vec::new();
    for (text, secret) in texts() {
        let places = [
            ("string", vec![message(&text)]),
            (
                "nested",
                vec![message(
                    &json!({"content": [{"type": "text", "text": text}]}).to_string(),
                )],
            ),
            (
                "lines",
                vec![message(&format!("first line\n{text}\nlast line"))],
            ),
            (
                "streamed",
                streamed(0, "text_delta", "text", &text, &[5, 3, 11]),
            ),
            (
                "raw",
                vec![entry(EntryBody::StdoutRaw(
                    text.clone().into_bytes().into(),
                ))],
            ),
            (
                "stderr",
                vec![entry(EntryBody::Stderr(text.clone().into()))],
            ),
        ];
        for (place, lines) in places {
            if place == "lines" && text.starts_with('{') {
                continue;
            }
            let before = everything(&lines);
            let (exported, masked) = exported(&lines);
            let all = everything(&exported);
            let is_rest_kept =
                place == "streamed" || before.contains("next") == all.contains("next");
            if masked == 0 || survives(&secret, &all) || !is_rest_kept {
                survivors.push(format!(
                    "{place}: {text:?} {}",
                    String::from_utf8_lossy(&exported[0])
                ));
                continue;
            }
            let twice = super::exported(&exported).0;
            assert_eq!(twice, exported, "{place}: {text}");
        }
    }
    assert!(
        survivors.is_empty(),
        "{}\n{}",
        survivors.len(),
        survivors.join("\n")
    );
}

#[test]
fn hostile_text_is_masked_in_linear_steps() {
    for part in [
        "id,password\n",
        "a|password|",
        "|a|password|\n|-|-|\n",
        "passwords:\n- a1b2c3\n",
        "passwords:[",
        "password is ",
        "&#45;%2D\\u002d\u{200b}",
        "a\\\n",
        "\"kty\",\"d\":\"abcdefghijklmnop\",",
        "abcdEFGH1234ijkl\n",
        "ask-ask-ask-",
        "ENV password ",
        "zip -P x ",
        "htpasswd -b x ",
        "name=\"password\">",
        "\"k\":\"abcdefghijklmnopqrst\",",
        "\"k\":\"abcdefghijklmnopqrst\",\"kty\",",
        "YWFhYWFhYWFhYWFhYWFhYWFh/",
        "mnemonic abandon ",
        "a-----END PRIVATE KEY-----",
    ] {
        redacted(&part.repeat(10_000));
    }
}
