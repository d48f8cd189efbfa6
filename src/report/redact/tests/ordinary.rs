//! Ordinary text, which an export must not change.

use super::*;

fn ordinary() -> Vec<Vec<u8>> {
    let captures = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures/captures");
    let mut lines = Vec::new();
    for file in std::fs::read_dir(captures)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|file| file.is_file())
    {
        for line in std::fs::read(file)
            .unwrap()
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
            lines.push(entry(ingestdeck_core::tape::entry::stdout_body(
                line, is_json,
            )));
        }
    }
    let mut dice = TestRng(0x2545_F491_4F6C_DD1D);
    let texts = [
        "The password of a user is hashed with a salt; the token count is # and the secret of it is patience.",
        "| password | the password of the user | varchar(#) |\n| token | see the docs | uuid |",
        "SELECT id, password, api_key FROM users WHERE token = t.token AND created_at > '2024-01-#' -- pass: 12",
        "columns:\n  - name: password\n    description: Hash of the password, # characters.\n  - name: access_token\n",
        "password: \"{{ env_var('DB_PASSWORD') }}\"\nuser: svc#\nhost: ${HOST}\ntoken: env:TOKEN_#\n",
        "def login(password: str, token: Optional[str] = None) -> None:\n    connect(password=password, timeout=#)\n",
        "let token = self.next_token()?; let key = map.get(\"primary_key_#\"); // secret: no",
        "commit 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12 (#)\nsha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "toolu_01A09q90qw90lq917835lq9 msg_01XFDUDYJgAACzvnptvVoYEL req_011CSHoEeqs5C35K2UUqR7Fy session 0199f7a4-6f00-7e64-9bd3-#",
        "see https://example.com:8443/a/@b?x=# and git@github.com:a/b.git, mail ada@example.com",
        "export PGPASSWORD=$DB_PASSWORD && psql -h db -p 5432 -U svc -c 'select #'",
        "{\"usage\":{\"input_tokens\":#,\"cache_read_input_tokens\":123456789},\"max_tokens\":4096,\"progressToken\":\"toolu_9\"}",
        "dimension: account_key { type: number sql: ${TABLE}.account_key ;; primary_key: yes } # task-list-#",
        "COOKIE_DOMAIN=shop#.example.com\nTOKEN_ISSUER=auth0.example.com\nexport SECRET_REGION=us-east-1\n",
        "basic authentication, bearer bonds #, cookie: chocolate; credentials: service-account.json, key-value pairs",
        // False positives of an earlier version.
        "from sk-learn-compatible-estimator-v2 import x#\npassphrase: (optional)\nlogin page password field #",
        "pa-north-2-region-of-the-whole-warehouse-and-more-# test_0123456789abcdef0123456789abcdef0123 s.customerLifetimeValue2024 #",
        // dbt, LookML and SQL.
        "version: 2\nmodels:\n  - name: stg_users\n    columns:\n      - name: user_id\n        tests: [unique, not_null]\n      - name: password_changed_at\n        description: When the password was changed, # days ago.",
        "{{ config(materialized='incremental', unique_key='id_#') }}\nselect {{ dbt_utils.star(ref('users'), except=['password', 'api_key']) }} from {{ ref('users') }}",
        "profile:\n  target: dev\n  outputs:\n    dev:\n      type: postgres\n      user: \"{{ env_var('PGUSER') }}\"\n      password: \"{{ env_var('PGPASSWORD') }}\"\n      threads: #",
        "view: users {\n  sql_table_name: public.users_# ;;\n  dimension: token_kind { sql: ${TABLE}.token_kind ;; hidden: yes }\n  measure: count { type: count drill_fields: [id, name] }\n}",
        "SELECT u.id, u.password, t.token\nFROM users u\nJOIN tokens2024 t ON t.user_id = u.id -- #\nWHERE u.email LIKE '%20%' AND t.secret IS NOT NULL",
        "CREATE TABLE users (\n  id BIGINT,\n  password VARCHAR2(30) NOT NULL,\n  api_key\tCHAR(64),\n  secret TEXT\n); -- #",
        "INSERT INTO t (id, name, day) VALUES (#, 'O''Hara', '2024-01-02'), (2, 'Łódź', NULL);",
        // Markdown and CSV.
        "| column | type | description |\n|---|---|---|\n| password | text | Hash of the password of #. |\n| token | uuid | see docs#2 |",
        "# Login\n\nEnter your name, password\nThen wait#2, and go9on.\n\n* **Password**: at least 8 characters, 1 digit\n* the token is OAuth2, the key is SHA256-hashed",
        "id,name,amount,created_at\n1,Ada Lovelace,12.50,2024-01-02T03:04:05Z\n2,\"Hopper, Grace\",#.25,2024-01-03T03:04:05Z",
        "order_id\tstatus\tkey\n10000001\tpaid\tA-1000#\n10000002\topen\tB-20001",
        " id | name | total \n----+------+-------\n  1 | ada  | #.5\n(1 row)",
        // Programs.
        "import { useState } from 'react';\nconst [password, setPassword] = useState('');\nconst url = `https://x.example/list?page=#&key=${key}`;",
        "from auth import token, secret\nfrom db import conn2, pool_#\nuser, password = read_login()\n",
        "match (user, password) { (Some(user), Some(password)) => login(user, password, #), _ => None }",
        "fn main() {\n    let re = Regex::new(r\"^\\d{3}\\-[a-z\\_]+$\")?; // #\n    printf(\"%2d%5.1f%%\\n\", a, b);\n}",
        "<p>Fish &amp; chips &lt;b&gt; caf&eacute; &#8212; it&#39;s #</p><a href=\"/a%20b?x=%2Fy%3D1&amp;p=2\">x</a>",
        "\u{1b}[1m\u{1b}[32m   Compiling\u{1b}[0m regex v1.10.# (/src/regex)\n\u{1b}[33mwarning\u{1b}[0m: unused variable: `password`",
        "cargo build \\\n  --release \\\n  --features=a,b# && \\\ndocker run -v $PWD:/work -e TOKEN -w /work image:1.2",
        "src/main.rs:1234:5: error[E0308]: mismatched types\n  at app.js:10:22\n00:1a:2b:3c:4d:5e 2024-01-02T10:11:12 #",
        // Prose.
        "Das Passwort ist erforderlich und wird nach # Tagen ungültig. Ein Kennwort: niemals weitergeben, das Geheimnis ist Geduld.",
        "Le mot de passe est obligatoire ; il doit avoir # caractères. La contraseña: obligatoria, con 8 caracteres.",
        "Пароль: обязателен, не менее # символов. 密码：必填，至少#位。 パスワード: 必須です。 A senha é secreta, a resenha: boa2.",
        "zero\u{200b}width and soft\u{ad}hyphens in Silben\u{ad}trennung \u{feff}# — “quotes” … and 👩\u{200d}💻",
        "the seed phrase is shown once and never again because anyone who reads it can open your wallet # times",
        "a private key is 0x followed by 64 digits; public key 0x#1a2b3c4d5e6f708192a3b4c5d6e7f80",
        // Identifiers.
        "0199f7a4-6f00-7e64-9bd3-0a1b2c3d#0 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12 sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
        "integrity: sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\nversion: 12.0.#\netag: W/\"33a64df551425fcc55e4d42a148795d9f25f89d4\"",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30 node_modules/@scope/some-package-name/dist/index.module.min.js:#",
        "aGVsbG8gd29ybGQsIHRoaXMgaXMgYW4gb3JkaW5hcnkgdGV4dCBpbiBiYXNlNjQ= and PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4 #",
        "{\"headers\":[\"id\",\"status\",\"max_tokens\"],\"rows\":[[1,\"paid#9\",4096],[2,\"open\",123456789]],\"rowCount\":2,\"truncated\":false}",
        "{\"kty\":\"RSA\",\"n\":\"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86z\",\"e\":\"AQAB\",\"kid\":\"2011-04-#\"}",
        "{\"auth\": \"required\", \"keys\": [\"a1b2c3d4\", \"e5f6\"], \"tokens\": [\"the\", \"cat#2go\"], \"d\": \"2024-01-02T03:04:05Z\"}",
        "-----BEGIN CERTIFICATE-----\nMIIB#\n-----END CERTIFICATE-----",
    ];
    for round in 0..texts.len() * 40 {
        let text = texts[round % texts.len()].replace('#', &dice.roll(9_999).to_string());
        lines.push(match round % 4 {
            0 => entry(EntryBody::Stderr(text.into())),
            1 => entry(EntryBody::StdoutRaw(text.into_bytes().into())),
            2 => out(&json!({"type": "user", "message": {"content": [{"type": "tool_result", "content": text}]}})),
            _ => out(&json!({"text": json!({"page": text}).to_string()})),
        });
        if round % 8 == 0 {
            lines.extend(streamed(
                0,
                "text_delta",
                "text",
                texts[round % texts.len()],
                &[7, 3, 12],
            ));
        }
    }
    // Images, in one word and in lines.
    let image: Vec<u8> = (0..6_000)
        .map(|_| u8::try_from(dice.roll(256)).unwrap())
        .collect();
    let image = BASE64.encode([b"\x89PNG\r\n\x1a\n".to_vec(), image].concat());
    let wrapped: Vec<&str> = (0..image.len())
        .step_by(76)
        .map(|at| &image[at..image.len().min(at + 76)])
        .collect();
    for text in [
        image.clone(),
        format!("![x](data:image/png;base64,{image})"),
        wrapped.join("\n"),
    ] {
        lines.push(out(&json!({"type": "image", "source": {"data": text}})));
        lines.push(entry(EntryBody::Stderr(text.into())));
    }
    lines
}

#[test]
fn ordinary_lines_stay_as_they_are() {
    let lines = ordinary();
    assert!(lines.len() >= 1_000, "{}", lines.len());
    let (exported, masked) = exported(&lines);
    let changed: Vec<_> = lines
        .iter()
        .zip(&exported)
        .filter(|(before, after)| before != after)
        .collect();
    let show = |(before, after): &(&Vec<u8>, &Vec<u8>)| {
        format!(
            "{}\n{}",
            String::from_utf8_lossy(before),
            String::from_utf8_lossy(after)
        )
    };
    assert!(
        changed.is_empty(),
        "{}",
        changed
            .iter()
            .take(20)
            .map(show)
            .collect::<Vec<_>>()
            .join("\n")
    );
    assert_eq!(masked, 0);
}

#[test]
fn everyday_lines_stay_as_they_are() {
    let lines: Vec<&str> = include_str!("ordinary.txt").lines().collect();
    assert!(lines.len() >= 300, "{}", lines.len());
    let mut changed = Vec::new();
    for line in &lines {
        let message = out(&json!({"type": "assistant", "message": {"content": [{"text": line}]}}));
        let err = entry(EntryBody::Stderr((*line).into()));
        let tape = [message, err];
        if redacted(line) != ((*line).to_owned(), 0) || exported(&tape).0 != tape {
            changed.push(redacted(line).0);
        }
    }
    assert!(
        changed.is_empty(),
        "{}\n{}",
        changed.len(),
        changed.join("\n")
    );
    let text = lines.join("\n");
    let (masked, _) = redacted(&text);
    let changed = lines
        .iter()
        .zip(masked.lines())
        .filter(|(before, after)| *before != after);
    assert_eq!(changed.collect::<Vec<_>>(), []);
}
