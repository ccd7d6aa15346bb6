"""How the secrets of known providers begin and what they are made of. Data only; `starts` makes patterns of it.

The facts are prefixes, alphabets and lengths. The table was compared with all 218 rules of gitleaks' default configuration
(`config/gitleaks.toml` at commit 009e025) and all 27 detectors of detect-secrets 1.5.0. Each rule there that knows a secret by
how it begins has its prefix here or its form in `starts`; docs/redaction.md lists the exceptions. Prefixes that neither of
them has were not compared with any list. Lengths here are lower than the real ones, so that a secret that is cut off is hidden
too.
"""

from typing import NamedTuple

WORD = r"[\w-]"
ALNUM = r"[A-Za-z0-9]"
UPPER = r"[A-Z0-9]"
HEX = r"[0-9a-f]"
BASE64 = r"[\w+/=-]"


class Token(NamedTuple):
    """`prefixes` are certain signs of a secret when at least `least` characters of `body` follow.

    Where `mixed`, one of these must be a digit or a capital: words of a language have none."""

    kind: str
    prefixes: tuple[str, ...]
    body: str = WORD
    least: int = 16
    mixed: bool = True


TOKENS = (
    # code and packages
    Token("GitHub", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), least=8, mixed=False),
    Token("GitLab", ("glpat-",), least=8, mixed=False),
    Token("GitLab others", ("gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-", "glimt-", "glffct-", "gloas-")),
    Token("GitLab runner registration", ("GR1348941",)),
    Token("GitLab session", ("_gitlab_session=",), ALNUM),
    Token("npm", ("npm_",), ALNUM),
    Token("PyPI", ("pypi-",)),
    Token("RubyGems", ("rubygems_",), HEX),
    Token("NuGet", ("oy2",), r"[a-z0-9]", 30),
    Token("Clojars", ("CLOJARS_",), ALNUM, 20),
    Token("Docker Hub", ("dckr_pat_", "dckr_oat_")),
    Token("JFrog", ("AKC", "cmVmd"), ALNUM, 30),
    Token("Buildkite", ("bkua_", "bkpt_"), ALNUM),
    Token("CircleCI", ("CCIPAT_", "CCIPRJ_"), WORD),
    Token("SonarQube", ("squ_", "sqp_", "sqa_"), HEX),
    Token("Sourcegraph", ("sgp_", "slk_"), WORD, 20),
    Token("Postman", ("PMAK-",)),
    Token("ReadMe", ("rdme_",), ALNUM, 20),
    Token("Pulumi", ("pul-",), HEX, 20),
    Token("Prefect", ("pnu_", "pnb_"), ALNUM),
    Token("Infracost", ("ico-",), ALNUM, 20),
    # clouds
    Token("AWS", ("AKIA", "ASIA"), UPPER, 12, mixed=False),
    Token("AWS others", ("ABIA", "ACCA", "A3T"), UPPER),
    Token("AWS Bedrock", ("ABSK",), BASE64, 30),
    Token("Amazon", ("amzn1.oa2-cs.v1.", "amzn.mws."), WORD, 20),
    Token("Google API", ("AIza",), mixed=False),
    Token("Google OAuth", ("GOCSPX-", "ya29.")),
    Token("Google refresh", ("1//0",), WORD, 20),
    Token("DigitalOcean", ("dop_v1_", "doo_v1_", "dor_v1_"), HEX, 20),
    Token("Alibaba", ("LTAI",), ALNUM),
    Token("Scaleway", ("SCW",), UPPER, 17),
    Token("Yandex", ("AQVN", "y0_", "YCAJ"), WORD, 30),
    Token("Yandex IAM", ("t1.",), WORD, 38),
    Token("Heroku", ("HRKU-",), WORD, 20),
    Token("Fly", ("fo1_", "fm1_", "fm1a_", "fm1r_", "fm2_"), BASE64, 20),
    Token("Render", ("rnd_",), ALNUM, 20),
    Token("Netlify", ("nfp_",), ALNUM, 20),
    Token("Vercel", ("vercel_blob_rw_", "vcp_", "vck_"), WORD, 20),
    Token("Cloudflare", ("v1.0-",), HEX, 20),
    Token("Databricks", ("dapi",), HEX, 32),
    Token("Scalingo", ("tk-us-",), WORD, 30),
    Token("OpenShift", ("sha256~",), WORD, 20),
    Token("Tailscale", ("tskey-",), WORD, 15),
    Token("Defined Networking", ("dnkey-",), WORD, 20),
    Token("HashiCorp Vault", ("hvs.", "hvb.", "hvr."), WORD, 20),
    Token("Terraform", ("tfe-",), WORD, 30),
    Token("Terraform Cloud", ("atlasv1.",), r"[\w=-]", 20),
    Token("Doppler", ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."), WORD, 20),
    Token("1Password", ("ops_eyJ",), BASE64, 20),
    Token("1Password secret key", ("A3-",), r"[A-Z0-9-]", 28),
    Token("Supabase", ("sbp_", "sb_secret_"), WORD, 20),
    Token("PlanetScale", ("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), r"[\w.=-]", 20),
    Token("MongoDB Atlas", ("mdb_sa_sk_",), WORD),
    Token("ClickHouse", ("4b1d",), ALNUM, 38),
    Token("age", ("AGE-SECRET-KEY-1",), r"[02-9AC-HJ-NP-Z]", 20, mixed=False),
    # models
    Token("OpenAI project and others", ("sk-",), mixed=False),
    Token("Hugging Face", ("hf_", "api_org_"), ALNUM),
    Token("Groq", ("gsk_",), ALNUM, 20),
    Token("xAI", ("xai-",), ALNUM, 20),
    Token("Replicate", ("r8_",), ALNUM, 20),
    Token("Perplexity", ("pplx-",), ALNUM, 20),
    Token("NVIDIA", ("nvapi-",), WORD, 20),
    Token("Fireworks", ("fw_",), ALNUM, 20),
    Token("Together", ("tgp_v1_",), WORD, 20),
    Token("Cerebras", ("csk-",), ALNUM, 20),
    Token("Jina", ("jina_",), ALNUM, 20),
    Token("Voyage", ("pa-",), WORD, 40),
    Token("LangSmith", ("lsv2_pt_", "lsv2_sk_", "ls__"), WORD, 20),
    Token("E2B", ("e2b_",), HEX, 20),
    Token("Tavily", ("tvly-",)),
    Token("Firecrawl", ("fc-",), HEX, 32),
    # people and messages
    Token("Slack", ("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-"), least=8, mixed=False),
    Token("Slack others", ("xapp-", "xoxc-", "xoxd-", "xoxe-", "xoxe.", "xoxo-"), r"[\w%.-]", 10),
    Token("SendGrid", ("SG.",), r"[\w.-]", 20),
    Token("Brevo", ("xkeysib-", "xsmtpsib-"), WORD, 20),
    Token("Mailgun", ("key-",), HEX, 32),
    Token("MailerSend", ("mlsn.",), HEX, 20),
    Token("Resend", ("re_",), WORD, 24),
    Token("Twilio", ("SK",), r"[0-9A-Fa-f]", 32),
    Token("Atlassian", ("ATATT3", "ATCTT3", "ATBB"), BASE64, 20),
    Token("Linear", ("lin_api_", "lin_oauth_"), ALNUM, 20),
    Token("Notion", ("ntn_", "secret_"), ALNUM, 30),
    Token("Figma", ("figd_", "figo_"), WORD, 20),
    Token("HubSpot", ("pat-na1-", "pat-eu1-"), WORD, 20),
    Token("Contentful", ("CFPAT-",), WORD, 20),
    Token("Typeform", ("tfp_",), r"[\w.-]", 20),
    Token("Dropbox", ("sl.",), WORD, 40),
    Token("Intercom", ("dG9rO",), BASE64, 30),
    Token("Meta", ("EAAC", "EAAM", "EAAG"), ALNUM, 30),
    Token("Discord multi-factor", ("mfa.",), WORD, 40),
    # money and shops
    Token("Stripe", ("sk_live_", "rk_live_", "sk_test_", "rk_test_", "sk_prod_", "rk_prod_"), least=8, mixed=False),
    Token("Stripe webhook", ("whsec_",), BASE64),
    Token("Shopify", ("shpat_", "shpca_", "shppa_", "shpss_"), ALNUM),
    Token("Square", ("sq0atp-", "sq0csp-", "EAAAE", "EAAAl"), WORD, 20),
    Token("Shippo", ("shippo_live_", "shippo_test_"), ALNUM),
    Token("Duffel", ("duffel_live_", "duffel_test_"), WORD, 20),
    Token("EasyPost", ("EZAK", "EZTK"), ALNUM, 30),
    Token("Flutterwave", ("FLWSECK-", "FLWSECK_TEST-"), WORD, 10),
    Token("Frame.io", ("fio-u-",), WORD, 20),
    Token("Plaid", ("access-sandbox-", "access-production-", "access-development-"), WORD, 20),
    Token("Adobe", ("p8e-",), ALNUM, 20),
    Token("SettleMint", ("sm_aat_", "sm_pat_", "sm_sat_"), ALNUM, 12),
    # schools
    Token("42", ("s-s4t2ud-", "s-s4t2af-"), ALNUM, 20),
    # watching
    Token("Sentry", ("sntrys_", "sntryu_"), BASE64, 20),
    Token("New Relic", ("NRAK-", "NRJS-", "NRII-", "NRRA-")),
    Token("Grafana", ("glc_", "glsa_"), BASE64, 20),
    Token("Grafana keys", ("eyJrIjoi",), BASE64, 30),
    Token("Dynatrace", ("dt0c01.", "dt0s01.", "dt0s16."), r"[\w.-]", 20),
    Token("PostHog", ("phx_",), ALNUM, 20),
    # any provider's: a JSON Web Token that is in base 64 once more
    Token("JSON Web Token in base 64", ("ZXlK",), BASE64, 40),
    # ours
    Token("attach", ("att_",)),
)
