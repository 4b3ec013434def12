"""Lists the forms of known tokens and keys: how each begins, and what follows.

What each begins with is looked for by itself first, in bytes: that costs a tenth of looking for the whole form.
"""

FORMS: tuple[tuple[str, str], ...] = (
    # Keys, and texts that hold some.
    (
        "-----BEGIN ",
        r"[A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    ("LS0tLS1CRUdJTi", r"[\w+/=]{20,}"),  # base64 of `-----BEGIN`
    ("eyJ", r"[\w+/=-]{16,}(?:\.[\w-]+){0,2}"),  # base64 of `{"`: JSON Web Tokens, and JSON such as a dockerconfig
    ("AGE-SECRET-KEY-1", r"[A-Z0-9]{40,}"),
    # Hashes of passwords.
    *(
        (f"${form}$", r"[\w./$=,+-]{20,}")
        for form in ("1", "2a", "2b", "2y", "5", "6", "y", "apr1", "argon2i", "argon2id")
    ),
    # Clouds.
    *((kind, r"[A-Z0-9]{16}\b") for kind in ("AKIA", "ASIA", "AROA", "AIDA")),
    ("AIza", r"[\w-]{35}"),
    ("ya29.", r"[\w-]{20,}"),
    ("GOCSPX-", r"[\w-]{20,}"),
    *((kind, r"[0-9a-f]{30,}") for kind in ("dop_v1_", "doo_v1_", "dor_v1_")),
    ("dapi", r"[0-9a-f]{32}"),
    # Code, packages and images.
    *((f"gh{kind}_", r"[A-Za-z0-9]{20,}") for kind in "pousr"),
    ("github_pat_", r"\w{20,}"),
    *(
        (kind, r"[\w-]{20,}")
        for kind in ("glpat-", "glrt-", "gldt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-")
    ),
    ("ATATT3", r"[\w=-]{40,}"),
    ("npm_", r"\w{30,}"),
    ("pypi-", r"[\w-]{30,}"),
    ("rubygems_", r"[0-9a-f]{40,}"),
    ("dckr_pat_", r"[\w-]{20,}"),
    ("dckr_oat_", r"[\w-]{20,}"),
    ("PMAK-", r"[0-9a-f]{20,}-[0-9a-f]{20,}"),
    # Models and data.
    ("sk-", r"[\w-]{20,}"),
    ("hf_", r"\w{30,}"),
    ("api_org_", r"\w{30,}"),
    ("gsk_", r"\w{30,}"),
    ("nvapi-", r"[\w-]{30,}"),
    ("pplx-", r"[A-Za-z0-9]{30,}"),
    ("r8_", r"[A-Za-z0-9]{30,}"),
    # Money, mail and talk.
    *((f"{kind}_{mode}_", r"\w{16,}") for kind in ("sk", "rk") for mode in ("live", "test")),
    ("whsec_", r"[\w+/=]{20,}"),
    *((f"shp{kind}_", r"[0-9a-fA-F]{32}") for kind in ("at", "ca", "pa", "ss")),
    *((kind, r"[\w-]{20,}") for kind in ("sq0atp-", "sq0csp-")),
    ("SG.", r"[\w-]{16,}\.[\w-]{16,}"),
    *((f"xox{kind}-", r"[\w-]{10,}") for kind in "abeprs"),
    ("xapp-", r"[\w-]{20,}"),
    # Operations.
    *((f"hv{kind}.", r"[\w-]{20,}") for kind in "sbr"),
    ("dp.pt.", r"[A-Za-z0-9]{30,}"),
    ("pul-", r"[0-9a-f]{40}"),
    ("tskey-", r"[\w-]{16,}"),
    ("glsa_", r"\w{30,}"),
    ("glc_", r"[\w+/=]{30,}"),
    ("NRAK-", r"[A-Z0-9]{20,}"),
    ("sntrys_", r"[\w+/=]{30,}"),
    ("sntryu_", r"[0-9a-f]{40,}"),
    ("lin_api_", r"\w{30,}"),
    ("ntn_", r"\w{40,}"),
    ("figd_", r"[\w-]{30,}"),
    ("sbp_", r"[0-9a-f]{40}"),
    ("pscale_tkn_", r"[\w-]{30,}"),
    ("dt0c01.", r"[A-Z0-9]{20,}\.[A-Z0-9]{30,}"),
)
"""What a token begins with, and an expression for the rest."""
