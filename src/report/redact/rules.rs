//! Tokens that are recognised by their own shape, one rule per kind.
//!
//! The shapes are the ones that the services document and that secret scanners look for. Lengths are lower bounds below
//! the real ones, so that a truncated token is found as well. Names of secrets are in [`names`](super::names).

use std::{ops::Range, sync::LazyLock};

use regex::bytes::{Regex, RegexBuilder};

use super::names::is_words;

/// A further condition on a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenBoundary {
    /// None: the shape is unique.
    Free,
    /// It does not follow a letter or digit.
    Start,
    /// As `Start`, and it has a digit and is not made of words: its prefix also begins ordinary names.
    Digit,
}

/// A kind of token.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecretTokenRule {
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "tests report the kind that they miss")
    )]
    pub(super) kind: &'static str,
    pub(super) guard: TokenBoundary,
    /// A regular expression that matches ASCII only.
    pub(super) pattern: &'static str,
}

const fn free(kind: &'static str, pattern: &'static str) -> SecretTokenRule {
    SecretTokenRule {
        kind,
        guard: TokenBoundary::Free,
        pattern,
    }
}

const fn start(kind: &'static str, pattern: &'static str) -> SecretTokenRule {
    SecretTokenRule {
        kind,
        guard: TokenBoundary::Start,
        pattern,
    }
}

const fn digit(kind: &'static str, pattern: &'static str) -> SecretTokenRule {
    SecretTokenRule {
        kind,
        guard: TokenBoundary::Digit,
        pattern,
    }
}

/// All kinds. If two have the same prefix, the longer pattern comes first.
#[rustfmt::skip]
pub(super) const RULES: &[SecretTokenRule] = &[
    // Models and their tools.
    free("anthropic", "sk-ant-[A-Za-z0-9_-]{10,}"),
    free("openai-project", "sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{16,}"),
    free("openrouter", "sk-or-v1-[0-9a-f]{16,}"),
    free("langfuse", "[sp]k-lf-[0-9a-f-]{20,}"),
    free("langsmith", "lsv2_(?:pt|sk)_[A-Za-z0-9_]{20,}"),
    digit("openai", "sk-[A-Za-z0-9_-]{16,}"),
    start("huggingface", "hf_[A-Za-z0-9]{20,}"),
    free("huggingface-org", "api_org_[A-Za-z0-9]{20,}"),
    start("replicate", "r8_[A-Za-z0-9]{20,}"),
    start("groq", "gsk_[A-Za-z0-9]{20,}"),
    start("xai", "xai-[A-Za-z0-9]{30,}"),
    start("perplexity", "pplx-[A-Za-z0-9]{20,}"),
    start("pinecone", "pcsk_[A-Za-z0-9_]{20,}"),
    start("tavily", "tvly-[A-Za-z0-9-]{16,}"),
    start("firecrawl", "fc-[0-9a-f]{32,}"),
    digit("voyage", "pa-[A-Za-z0-9_-]{40,}"),
    digit("elevenlabs", "sk_[0-9a-f]{32,}"),
    // Clouds.
    start("aws-access-key-id", "(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{12,}"),
    free("aws-session-token", "(?:IQoJb3JpZ2lu|FwoGZXIvYXdz|FQoGZXIvYXdz)[A-Za-z0-9+/=_-]{40,}"),
    start("aws-bedrock", "(?:ABSK[A-Za-z0-9+/]{60,}={0,2}|bedrock-api-key-[A-Za-z0-9+/=]{20,})"),
    start("google-api-key", "AIza[A-Za-z0-9_-]{30,}"),
    free("google-oauth-client", "GOCSPX-[A-Za-z0-9_-]{16,}"),
    free("google-access-token", r"ya29\.[A-Za-z0-9_-]{16,}"),
    start("google-refresh-token", "1//0[A-Za-z0-9_-]{30,}"),
    free("azure-account-key", "(?i:AccountKey|SharedAccessKey|SharedSecretValue)=[A-Za-z0-9+/]{20,}={0,2}"),
    start("azure-client-secret", r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{24,}"),
    start("azure-devops", "[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{20,}"),
    free("signed-url", "(?i:[?&;](?:sig|signature|x-amz-signature|x-goog-signature|x-amz-security-token)=)[A-Za-z0-9%+/=_-]{16,}"),
    start("alibaba", "LTAI[A-Za-z0-9]{12,}"),
    start("tencent", "AKID[A-Za-z0-9]{28,}"),
    start("yandex", r"(?:AQVN[A-Za-z0-9_-]{30,}|t1\.[A-Z0-9a-z_-]+={0,2}\.[A-Z0-9a-z_-]{60,}={0,2})"),
    free("digitalocean", "do[opr]_v1_[0-9a-f]{20,}"),
    free("cloudflare-origin-ca", "v1\\.0-[0-9a-f]{24}-[0-9a-f]{40,}"),
    start("fly", "(?:fo1_[A-Za-z0-9_-]{30,}|fm(?:1[ar]|2)_[A-Za-z0-9+/]{60,}={0,3}|FlyV1 [A-Za-z0-9+/=,_-]{20,})"),
    free("heroku", "HRKU-[A-Za-z0-9_-]{20,}"),
    digit("netlify", "nf[pcoub]_[A-Za-z0-9_-]{30,}"),
    digit("render", "rnd_[A-Za-z0-9]{20,}"),
    free("supabase", "(?:sbp_[0-9a-f]{30,}|sb_secret_[A-Za-z0-9_-]{16,})"),
    free("terraform-cloud", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{30,}"),
    start("pulumi", "pul-[0-9a-f]{32,}"),
    start("scalingo", "tk-us-[A-Za-z0-9_-]{32,}"),
    free("planetscale", r"pscale_(?:tkn|oauth|pw)_[A-Za-z0-9_=.-]{20,}"),
    free("tailscale", "tskey-[a-z]+-[A-Za-z0-9-]{12,}"),
    free("openshift", "sha256~[A-Za-z0-9_-]{30,}"),
    // Code hosting and builds.
    free("github", "gh[pousr]_[A-Za-z0-9]{16,}"),
    free("github-fine-grained", "github_pat_[A-Za-z0-9_]{16,}"),
    free("gitlab", r"gl(?:pat|dt|ptt|rt|rtr|soat|ft|imt|agent|cbt|ffct|oas|wt)-[A-Za-z0-9_.=-]{16,}"),
    start("gitlab-runner", "GR1348941[A-Za-z0-9_-]{16,}"),
    start("bitbucket", "(?:ATBB|ATCTT3)[A-Za-z0-9_=-]{20,}"),
    start("atlassian", "ATATT3[A-Za-z0-9_=-]{20,}"),
    free("npm", "npm_[A-Za-z0-9]{30,}"),
    free("pypi", "pypi-(?:AgE[A-Za-z0-9_-]{10,}|[A-Za-z0-9_]{60,})"),
    free("rubygems", "rubygems_[0-9a-f]{20,}"),
    start("crates-io", "cio[A-Za-z0-9]{32,}"),
    start("nuget", "oy2[a-z0-9]{40,}"),
    free("clojars", "(?i:CLOJARS_)[a-z0-9]{40,}"),
    free("docker", "dckr_(?:pat|oat)_[A-Za-z0-9_-]{16,}"),
    start("artifactory", "(?:AKCp[A-Za-z0-9]{60,}|cmVmd[A-Za-z0-9]{55,})"),
    free("buildkite", "bk(?:ua|ct|aj)_[A-Za-z0-9]{20,}"),
    free("circleci", "CCIP(?:AT|RJ)_[A-Za-z0-9_]{16,}"),
    start("octopus-deploy", "API-[A-Z0-9]{25,}"),
    start("prefect", "pn[ub]_[A-Za-z0-9]{30,}"),
    free("sourcegraph", "sgp_(?:[0-9a-f]{16}_|local_)?[0-9a-f]{32,}"),
    free("readme", "rdme_[a-z0-9]{50,}"),
    // Data.
    start("databricks", "d(?:api|kea|ose|sapi)[0-9a-f]{24,}(?:-[0-9])?"),
    start("dbt", "dbt[ucs]_[A-Za-z0-9_+/=-]{16,}"),
    free("snowflake-session", r"ver:[0-9]-hint:[0-9]+-[A-Za-z0-9+/=-]{20,}"),
    start("clickhouse", "4b1d[A-Za-z0-9]{34,}"),
    free("mongodb-atlas", "mdb_sa_sk_[A-Za-z0-9_-]{20,}"),
    start("metabase", "mb_[A-Za-z0-9+/=]{40,}"),
    start("neon", "napi_[a-z0-9]{40,}"),
    start("airtable", r"(?:pat[A-Za-z0-9]{14}\.[0-9a-f]{40,})"),
    start("confluent", "cflt[A-Za-z0-9+/]{50,}"),
    // Work and documents.
    digit("notion-internal", "secret_[A-Za-z0-9]{30,}"),
    start("notion", "ntn_[A-Za-z0-9]{20,}"),
    free("linear", "lin_(?:api|oauth|wh)_[A-Za-z0-9]{16,}"),
    free("slack", r"xox[abposre](?:\.xox[bp])?-[A-Za-z0-9-]{10,}"),
    free("slack-app", "xapp-[0-9]-[A-Z0-9]+-[0-9]+-[A-Za-z0-9]{10,}"),
    free("slack-webhook", r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/_-]{16,}"),
    free("discord-webhook", r"discord(?:app)?\.com/api/(?:v[0-9]+/)?webhooks/[0-9]+/[A-Za-z0-9_-]{20,}"),
    free("teams-webhook", r"webhook\.office\.com/webhookb2/[A-Za-z0-9@/-]{40,}"),
    free("zapier-webhook", r"hooks\.zapier\.com/hooks/catch/[A-Za-z0-9/]{8,}"),
    start("discord", r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),
    start("telegram", "[0-9]{8,10}:A[A-Za-z0-9_-]{33,}"),
    start("figma", "fig[dou]r?_[A-Za-z0-9_-]{30,}"),
    free("asana", "[0-9]/[0-9]{16}(?:/[0-9]{16})?:[0-9a-f]{32}"),
    start("clickup", "pk_[0-9]{4,}_[A-Z0-9]{28,}"),
    free("hubspot", "pat-(?:na|eu|ap)[0-9]-[0-9a-f-]{32,}"),
    free("typeform", "tfp_[A-Za-z0-9_.=-]{40,}"),
    free("postman", "PMAK-[0-9a-f]{20,}-[0-9a-f]{20,}"),
    free("contentful", "CFPAT-[A-Za-z0-9_-]{30,}"),
    free("frameio", "fio-u-[A-Za-z0-9_=-]{40,}"),
    // Payment and trade.
    free("stripe", "[sr]k_(?:live|test|prod)_[A-Za-z0-9]{10,}"),
    free("stripe-webhook", "whsec_[A-Za-z0-9+/=]{16,}"),
    free("shopify", "shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{24,}"),
    start("square", "(?:EAAA[A-Za-z0-9_-]{50,}|sq0(?:atp|csp)-[A-Za-z0-9_-]{20,})"),
    free("paypal-braintree", r"access_token\$(?:production|sandbox)\$[0-9a-z]{12,}\$[0-9a-f]{24,}"),
    free("plaid", "access-(?:sandbox|development|production)-[0-9a-f-]{32,}"),
    free("flutterwave", "FLWSECK(?:_TEST)?-[0-9a-zA-Z-]{12,}"),
    start("easypost", "EZ[AT]K[A-Za-z0-9]{40,}"),
    free("shippo", "shippo_(?:live|test)_[0-9a-fA-F]{30,}"),
    free("duffel", "duffel_(?:test|live)_[A-Za-z0-9_=-]{30,}"),
    start("lob", "live_(?:pub_)?[0-9a-f]{35}"),
    // Mail and messages.
    start("sendgrid", r"SG\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    start("mailgun", "key-[0-9a-zA-Z]{32,}"),
    start("mailchimp", "[0-9a-f]{32}-us[0-9]{1,2}"),
    free("brevo", "x(?:keysib|smtpsib)-[0-9a-f]{40,}(?:-[A-Za-z0-9]{8,})?"),
    free("mailersend", r"mlsn\.[0-9a-f]{40,}"),
    digit("resend", "re_[A-Za-z0-9]{6,}_[A-Za-z0-9]{16,}"),
    start("twilio", "SK[0-9a-f]{32}"),
    start("facebook", "EAA[A-Z][A-Za-z0-9]{60,}"),
    start("twitter-bearer", "A{20}[A-Za-z0-9]*%[0-9A-F]{2}[A-Za-z0-9%]{20,}"),
    free("mapbox", r"sk\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{10,}"),
    free("dropbox", r"sl\.(?:u\.)?[A-Za-z0-9_-]{80,}"),
    free("adobe", "p8e-[A-Za-z0-9]{28,}"),
    // Operations.
    free("vault", r"hv[sbr]\.[A-Za-z0-9_-]{20,}"),
    digit("vault-legacy", r"s\.[A-Za-z0-9]{24}"),
    free("doppler", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{16,}"),
    free("onepassword", "ops_eyJ[A-Za-z0-9+/=_-]{40,}"),
    start("onepassword-secret-key", "A3-[A-Z0-9]{6}-(?:[A-Z0-9]{5,11}-){3,4}[A-Z0-9]{5}"),
    free("infisical", r"st\.[0-9a-f]{8}-[0-9a-f-]{27}\.[0-9a-f]{32,}[0-9a-f.]*"),
    free("age", "AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    free("grafana", "gl(?:sa|c)_[A-Za-z0-9+/=_]{20,}"),
    start("grafana-key", "eyJrIjoi[A-Za-z0-9+/]{40,}={0,2}"),
    free("new-relic", "NR(?:AK|II|JS|RA|AA)-[A-Za-z0-9-]{16,}"),
    start("new-relic-license", "[0-9a-f]{32,36}(?:FFFF)?NRAL"),
    free("honeycomb", "hc[abx]ik_[A-Za-z0-9]{30,}"),
    free("dynatrace", r"dt0[a-z][0-9]{2}\.[A-Za-z0-9]{20,}\.[A-Za-z0-9]{30,}"),
    free("sentry", "sntry[su]_[A-Za-z0-9+/=_-]{20,}"),
    start("launchdarkly", "(?:sdk|api|mob)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    free("maxmind", "[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    free("authress", r"(?:sc|ext|scauth|authress)_[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[_-][A-Za-z0-9-]{10,32}\.[A-Za-z0-9+/_=-]{30,}"),
    free("settlemint", "sm_[aps]at_[A-Za-z0-9]{16,}"),
    free("endor", r"endr\+[A-Za-z0-9-]{16,}"),
    free("okta", "SSWS +[A-Za-z0-9_-]{20,}"),
    // Hashes of passwords.
    free("crypt", r"\$(?:apr1|1|5|6|y|gy|7|md5|sha1|scrypt)\$[A-Za-z0-9./=,$-]{0,60}\$[A-Za-z0-9./]{22,}"),
    free("bcrypt", r"\$2[abxy]?\$[0-9]{2}\$[A-Za-z0-9./]{22,}"),
    free("argon2", r"\$argon2(?:id|i|d)\$[A-Za-z0-9+/=,$]{40,}"),
    free("pbkdf2", r"pbkdf2[_-]sha(?:1|256|512)\$[0-9]{1,9}\$[A-Za-z0-9./+]{1,60}\$[A-Za-z0-9./+]{20,}={0,2}"),
    free("ldap-password", r"\{(?:S?SHA(?:256|384|512)?|SMD5|MD5)\}[A-Za-z0-9+/]{20,}={0,2}"),
    free("postgres-scram", r"SCRAM-SHA-256\$[0-9]+:[A-Za-z0-9+/=]{16,}\$[A-Za-z0-9+/=]{20,}:[A-Za-z0-9+/=]{20,}"),
    // Signed tokens.
    free("jwt", r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]{0,})*"),
];

/// The context before a token that must not follow a letter or digit. An escape sequence that was not decoded may end
/// with one.
const BEFORE: &str = r"(?:^|[^A-Za-z0-9]|\\[abfnrtv0]|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|\x1b\[[0-9;]*[A-Za-z])";

static ALL: LazyLock<[(TokenBoundary, Option<Regex>); 3]> = LazyLock::new(|| {
    [
        TokenBoundary::Free,
        TokenBoundary::Start,
        TokenBoundary::Digit,
    ]
    .map(|guard| (guard, alternation(guard)))
});

/// Joins all rules of a guard into one pattern, whose first group is the token.
fn alternation(guard: TokenBoundary) -> Option<Regex> {
    let of_guard = RULES.iter().filter(|rule| rule.guard == guard);
    let patterns: Vec<&str> = of_guard.map(|rule| rule.pattern).collect();
    let before = if guard == TokenBoundary::Free {
        ""
    } else {
        BEFORE
    };
    let mut builder = RegexBuilder::new(&format!("{before}((?:{}))", patterns.join(")|(?:")));
    builder
        .unicode(false)
        .size_limit(64 << 20)
        .dfa_size_limit(8 << 20)
        .build()
        .ok()
}

/// True for a token with a digit that is not made of words.
pub(super) fn is_generated(token: &str) -> bool {
    token.bytes().any(|byte| byte.is_ascii_digit()) && !is_words(token)
}

/// Adds the ranges of tokens in `text`.
pub(super) fn find(text: &str, spans: &mut Vec<Range<usize>>) {
    for (guard, regex) in ALL.iter() {
        let Some(regex) = regex else { continue };
        if *guard == TokenBoundary::Free {
            spans.extend(regex.find_iter(text.as_bytes()).map(|found| found.range()));
            continue;
        }
        let tokens = regex
            .captures_iter(text.as_bytes())
            .filter_map(|found| Some(found.get(1)?.range()));
        spans.extend(
            tokens.filter(|token| {
                *guard == TokenBoundary::Start || is_generated(&text[token.clone()])
            }),
        );
    }
}
