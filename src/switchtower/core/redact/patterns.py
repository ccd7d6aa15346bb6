"""Patterns for the text around a secret and its continuation, each bounded or a plain run, and a table of the tokens of known
providers. Nothing here decides; `scanner` does.

The table has prefixes, alphabets and lengths; `start_patterns` compiles it. It was compared with all 218 rules of gitleaks'
default configuration (`config/gitleaks.toml` at commit 009e025) and all 27 detectors of detect-secrets 1.5.0. Each rule there
that recognizes a secret by its start has its prefix here or its form in `start_patterns`; docs/redaction.md lists the
exceptions. Prefixes that neither of them has were not compared with any list. Lengths here are lower than the real ones, so
that a truncated secret is hidden too.
"""

import re
from typing import NamedTuple

MARK = "[redacted]"
"""The text that replaces a secret."""

CONTEXT = 96
"""The number of characters before a place that a decision may depend on: the longest name with its quotes, annotation and
blanks.
"""

TOKEN_REST = re.compile(r"(?:[\w-]|\.(?=[\w-]))*", re.ASCII)

MYSQL_BEHIND = re.compile(r"\b(?:mysql|mariadb)(?:admin|dump|import|show|slap|check)?\b[^\n;|&]*[ \t]\Z")
NETRC_BEHIND = re.compile(r"\blogin[ \t\n]+\S{1,64}[ \t\n]+\Z")
"""The text before a password that only its position gives away; it is matched against the output."""

PEM_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1)-----")
PEM_BODY = re.compile(r"[ \t]{0,15}(?:\\[rn]|[\r\n])|[^A-Za-z0-9]{0,16}[A-Za-z0-9+/]{32}")
"""The text that follows a block's first line; without it the line is only mentioned, as in `if "-----BEGIN PRIVATE KEY-----"
in text`.
"""
PEM_BODY_CUT_SHORT = re.compile(r"[^A-Za-z0-9]{0,16}[A-Za-z0-9+/]{0,31}\Z")
PEM_END = re.compile(r"-----END [A-Za-z0-9 ]{0,49}-----|[ \n](?:[a-z]{1,15}[,.]? ){5}[a-z]")
"""A block's last line, or six plain words in a row: that is prose again, not a key."""
PEM_END_LONGEST = 96
PEM_LONGEST = 16_384
"""A block without an end is dropped up to this length: four times an RSA key of 4,096 bits."""

_ANNOTATIONS = "|".join(
    re.escape(annotation[::-1]) for annotation in ("str", "&str", "&'static str", "string", "String", "bytes")
)

# These two are matched backwards from a sign, so they are written backwards and matched against reversed text.
NAME_BEHIND = re.compile(
    rf"[ \t]{{0,8}}(?:(?:{_ANNOTATIONS})[ \t]{{0,2}}:[ \t]{{0,2}})?\*{{0,2}}\]?(?:[\"'`]\\{{0,3}})?([\w-]{{1,48}})", re.ASCII
)
USER_BEHIND = re.compile(r"[^\s/:@\"'`<>\\]{0,64}//:")

VALUE_AHEAD = re.compile(
    r"(?P<sign>[:=]{0,3}>?)\*{0,2}(?P<blank>[ \t]{0,8})(?:[bfruBFRU]{0,2}(?P<quote>\\{0,3}[\"'`]))?"
    r"(?P<scheme>(?:[Bb]asic|[Bb]earer|[Tt]oken|[Dd]igest|[Nn]egotiate)[ \t]{1,4})?"
)
VALUE_LONGEST = 64
"""A value is judged by its first characters."""

_ESCAPED = r"\\[^nrt\"'`\s\\]"
_BARE = rf"(?:[^\s\"'`,;&|<>()\]{{}}\\]|{_ESCAPED})"
_IN = {"": _BARE, '"': r"(?:[^\"\\\n]|\\[^\n])", "'": r"(?:[^'\\\n]|\\[^\n])", "`": r"(?:[^`\\\n]|\\[^\n])"}
_IN_ESCAPED = rf"(?:[^\"'`\\\n]|{_ESCAPED})"


class CharRun(NamedTuple):
    """The characters that a value continues with: `start` takes as many as are judged, `rest` all that follow."""

    start: re.Pattern[str]
    rest: re.Pattern[str]


def _make_run(unit: str) -> CharRun:
    return CharRun(re.compile(f"{unit}{{0,{VALUE_LONGEST}}}"), re.compile(f"{unit}*"))


RUNS = {quote: _make_run(unit) for quote, unit in _IN.items()}
ESCAPED_RUN = _make_run(_IN_ESCAPED)
"""The runs by the quote that opened the value; a quote that is itself escaped, as in JSON within JSON, has a separate run."""

COOKIE_RUN = _make_run(r"[^\"'`\r\n\\]")
SET_COOKIE_RUN = _make_run(r"[^\"'`\r\n\\;]")


def find_run(quote: str) -> CharRun:
    return RUNS.get(quote, ESCAPED_RUN)


PASSWORD_IN_URL = re.compile(r"[^\s/\"'`<>\\]*")
PASSWORD_IN_URL_LONGEST = 256
PORT = re.compile(r"[0-9]{0,5}")


WORD = r"[\w-]"
ALNUM = r"[A-Za-z0-9]"
UPPER = r"[A-Z0-9]"
HEX = r"[0-9a-f]"
BASE64 = r"[\w+/=-]"


class ProviderToken(NamedTuple):
    """`prefixes` are certain signs of a secret when at least `least` characters of `body` follow. When `mixed`, one of these
    must be a digit or a capital: ordinary words have none.
    """

    kind: str
    prefixes: tuple[str, ...]
    body: str = WORD
    least: int = 16
    mixed: bool = True


TOKENS = (
    # code and packages
    ProviderToken("GitHub", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), least=8, mixed=False),
    ProviderToken("GitLab", ("glpat-",), least=8, mixed=False),
    ProviderToken(
        "GitLab others", ("gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-", "glimt-", "glffct-", "gloas-")
    ),
    ProviderToken("GitLab runner registration", ("GR1348941",)),
    ProviderToken("GitLab session", ("_gitlab_session=",), ALNUM),
    ProviderToken("npm", ("npm_",), ALNUM),
    ProviderToken("PyPI", ("pypi-",)),
    ProviderToken("RubyGems", ("rubygems_",), HEX),
    ProviderToken("NuGet", ("oy2",), r"[a-z0-9]", 30),
    ProviderToken("Clojars", ("CLOJARS_",), ALNUM, 20),
    ProviderToken("Docker Hub", ("dckr_pat_", "dckr_oat_")),
    ProviderToken("JFrog", ("AKC", "cmVmd"), ALNUM, 30),
    ProviderToken("Buildkite", ("bkua_", "bkpt_"), ALNUM),
    ProviderToken("CircleCI", ("CCIPAT_", "CCIPRJ_"), WORD),
    ProviderToken("SonarQube", ("squ_", "sqp_", "sqa_"), HEX),
    ProviderToken("Sourcegraph", ("sgp_", "slk_"), WORD, 20),
    ProviderToken("Postman", ("PMAK-",)),
    ProviderToken("ReadMe", ("rdme_",), ALNUM, 20),
    ProviderToken("Pulumi", ("pul-",), HEX, 20),
    ProviderToken("Prefect", ("pnu_", "pnb_"), ALNUM),
    ProviderToken("Infracost", ("ico-",), ALNUM, 20),
    # clouds
    ProviderToken("AWS", ("AKIA", "ASIA"), UPPER, 12, mixed=False),
    ProviderToken("AWS others", ("ABIA", "ACCA", "A3T"), UPPER),
    ProviderToken("AWS Bedrock", ("ABSK",), BASE64, 30),
    ProviderToken("Amazon", ("amzn1.oa2-cs.v1.", "amzn.mws."), WORD, 20),
    ProviderToken("Google API", ("AIza",), mixed=False),
    ProviderToken("Google OAuth", ("GOCSPX-", "ya29.")),
    ProviderToken("Google refresh", ("1//0",), WORD, 20),
    ProviderToken("DigitalOcean", ("dop_v1_", "doo_v1_", "dor_v1_"), HEX, 20),
    ProviderToken("Alibaba", ("LTAI",), ALNUM),
    ProviderToken("Scaleway", ("SCW",), UPPER, 17),
    ProviderToken("Yandex", ("AQVN", "y0_", "YCAJ"), WORD, 30),
    ProviderToken("Yandex IAM", ("t1.",), WORD, 38),
    ProviderToken("Heroku", ("HRKU-",), WORD, 20),
    ProviderToken("Fly", ("fo1_", "fm1_", "fm1a_", "fm1r_", "fm2_"), BASE64, 20),
    ProviderToken("Render", ("rnd_",), ALNUM, 20),
    ProviderToken("Netlify", ("nfp_",), ALNUM, 20),
    ProviderToken("Vercel", ("vercel_blob_rw_", "vcp_", "vck_"), WORD, 20),
    ProviderToken("Cloudflare", ("v1.0-",), HEX, 20),
    ProviderToken("Databricks", ("dapi",), HEX, 32),
    ProviderToken("Scalingo", ("tk-us-",), WORD, 30),
    ProviderToken("OpenShift", ("sha256~",), WORD, 20),
    ProviderToken("Tailscale", ("tskey-",), WORD, 15),
    ProviderToken("Defined Networking", ("dnkey-",), WORD, 20),
    ProviderToken("HashiCorp Vault", ("hvs.", "hvb.", "hvr."), WORD, 20),
    ProviderToken("Terraform", ("tfe-",), WORD, 30),
    ProviderToken("Terraform Cloud", ("atlasv1.",), r"[\w=-]", 20),
    ProviderToken("Doppler", ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."), WORD, 20),
    ProviderToken("1Password", ("ops_eyJ",), BASE64, 20),
    ProviderToken("1Password secret key", ("A3-",), r"[A-Z0-9-]", 28),
    ProviderToken("Supabase", ("sbp_", "sb_secret_"), WORD, 20),
    ProviderToken("PlanetScale", ("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), r"[\w.=-]", 20),
    ProviderToken("MongoDB Atlas", ("mdb_sa_sk_",), WORD),
    ProviderToken("ClickHouse", ("4b1d",), ALNUM, 38),
    ProviderToken("age", ("AGE-SECRET-KEY-1",), r"[02-9AC-HJ-NP-Z]", 20, mixed=False),
    # models
    ProviderToken("OpenAI project and others", ("sk-",), mixed=False),
    ProviderToken("Hugging Face", ("hf_", "api_org_"), ALNUM),
    ProviderToken("Groq", ("gsk_",), ALNUM, 20),
    ProviderToken("xAI", ("xai-",), ALNUM, 20),
    ProviderToken("Replicate", ("r8_",), ALNUM, 20),
    ProviderToken("Perplexity", ("pplx-",), ALNUM, 20),
    ProviderToken("NVIDIA", ("nvapi-",), WORD, 20),
    ProviderToken("Fireworks", ("fw_",), ALNUM, 20),
    ProviderToken("Together", ("tgp_v1_",), WORD, 20),
    ProviderToken("Cerebras", ("csk-",), ALNUM, 20),
    ProviderToken("Jina", ("jina_",), ALNUM, 20),
    ProviderToken("Voyage", ("pa-",), WORD, 40),
    ProviderToken("LangSmith", ("lsv2_pt_", "lsv2_sk_", "ls__"), WORD, 20),
    ProviderToken("E2B", ("e2b_",), HEX, 20),
    ProviderToken("Tavily", ("tvly-",)),
    ProviderToken("Firecrawl", ("fc-",), HEX, 32),
    # messaging
    ProviderToken("Slack", ("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-"), least=8, mixed=False),
    ProviderToken("Slack others", ("xapp-", "xoxc-", "xoxd-", "xoxe-", "xoxe.", "xoxo-"), r"[\w%.-]", 10),
    ProviderToken("SendGrid", ("SG.",), r"[\w.-]", 20),
    ProviderToken("Brevo", ("xkeysib-", "xsmtpsib-"), WORD, 20),
    ProviderToken("Mailgun", ("key-",), HEX, 32),
    ProviderToken("MailerSend", ("mlsn.",), HEX, 20),
    ProviderToken("Resend", ("re_",), WORD, 24),
    ProviderToken("Twilio", ("SK",), r"[0-9A-Fa-f]", 32),
    ProviderToken("Atlassian", ("ATATT3", "ATCTT3", "ATBB"), BASE64, 20),
    ProviderToken("Linear", ("lin_api_", "lin_oauth_"), ALNUM, 20),
    ProviderToken("Notion", ("ntn_", "secret_"), ALNUM, 30),
    ProviderToken("Figma", ("figd_", "figo_"), WORD, 20),
    ProviderToken("HubSpot", ("pat-na1-", "pat-eu1-"), WORD, 20),
    ProviderToken("Contentful", ("CFPAT-",), WORD, 20),
    ProviderToken("Typeform", ("tfp_",), r"[\w.-]", 20),
    ProviderToken("Dropbox", ("sl.",), WORD, 40),
    ProviderToken("Intercom", ("dG9rO",), BASE64, 30),
    ProviderToken("Meta", ("EAAC", "EAAM", "EAAG"), ALNUM, 30),
    ProviderToken("Discord multi-factor", ("mfa.",), WORD, 40),
    # payments and shops
    ProviderToken("Stripe", ("sk_live_", "rk_live_", "sk_test_", "rk_test_", "sk_prod_", "rk_prod_"), least=8, mixed=False),
    ProviderToken("Stripe webhook", ("whsec_",), BASE64),
    ProviderToken("Shopify", ("shpat_", "shpca_", "shppa_", "shpss_"), ALNUM),
    ProviderToken("Square", ("sq0atp-", "sq0csp-", "EAAAE", "EAAAl"), WORD, 20),
    ProviderToken("Shippo", ("shippo_live_", "shippo_test_"), ALNUM),
    ProviderToken("Duffel", ("duffel_live_", "duffel_test_"), WORD, 20),
    ProviderToken("EasyPost", ("EZAK", "EZTK"), ALNUM, 30),
    ProviderToken("Flutterwave", ("FLWSECK-", "FLWSECK_TEST-"), WORD, 10),
    ProviderToken("Frame.io", ("fio-u-",), WORD, 20),
    ProviderToken("Plaid", ("access-sandbox-", "access-production-", "access-development-"), WORD, 20),
    ProviderToken("Adobe", ("p8e-",), ALNUM, 20),
    ProviderToken("SettleMint", ("sm_aat_", "sm_pat_", "sm_sat_"), ALNUM, 12),
    # education
    ProviderToken("42", ("s-s4t2ud-", "s-s4t2af-"), ALNUM, 20),
    # monitoring
    ProviderToken("Sentry", ("sntrys_", "sntryu_"), BASE64, 20),
    ProviderToken("New Relic", ("NRAK-", "NRJS-", "NRII-", "NRRA-")),
    ProviderToken("Grafana", ("glc_", "glsa_"), BASE64, 20),
    ProviderToken("Grafana keys", ("eyJrIjoi",), BASE64, 30),
    ProviderToken("Dynatrace", ("dt0c01.", "dt0s01.", "dt0s16."), r"[\w.-]", 20),
    ProviderToken("PostHog", ("phx_",), ALNUM, 20),
    # any provider: a JSON Web Token that is encoded in base 64 again
    ProviderToken("JSON Web Token in base 64", ("ZXlK",), BASE64, 40),
    # this daemon
    ProviderToken("attach", ("att_",)),
)
