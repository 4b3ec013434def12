"""A corpus: secrets in the forms in which they come, and harmless texts that look a little like them.

None of these is a secret of anybody. Long ones are put together, so that no scanner takes this file for a leak.
"""

import base64
from typing import Any

import orjson

HIDDEN = "hunter2-Zq9"
"""A secret without a form of its own."""


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


PEM = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEpAIBAAKCAQEA0Zq9\nhunter2hunter2\n-----END RSA PRIVATE KEY-----"
TOKENS: dict[str, str] = {
    "AWS access key": "AKIA" + "IOSFODNN7EXAMPLE",
    "AWS session key": "ASIA" + "IOSFODNN7EXAMPLE",
    "GitHub token": "ghp_" + "a1B2" * 9,
    "GitHub app token": "ghs_" + "a1B2" * 9,
    "GitHub fine-grained token": "github_pat_" + "11AAAAAAA0" * 4,
    "GitLab token": "glpat-" + "x1Y2-z3W4_v5U6t7S8r9",
    "Slack token": "xoxb-" + "123456789012-abcdefABCDEF",
    "Google API key": "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "Google access token": "ya29." + "a0AfH6SMBx1y2z3A4B5C6D7",
    "Stripe key": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "OpenAI key": "sk-" + "proj-a1B2c3D4e5F6g7H8i9J0k1L2",
    "npm token": "npm_" + "a1B2" * 9,
    "Hugging Face token": "hf_" + "aBcD" * 9,
    "PyPI token": "pypi-" + "AgEIcHlwaS5vcmcCJDAwMDAwMDAwLTAwMDA",
    "Docker token": "dckr_pat_" + "a1B2c3D4e5F6g7H8i9J0k1L2",
    "DigitalOcean token": "dop_v1_" + "a1b2" * 16,
    "Vault token": "hvs." + "CAESIJ1a2b3c4d5e6f7g8h9i0j",
    "SendGrid key": "SG." + "a1B2c3D4e5F6g7H8i9J0kA.a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V",
    "JSON Web Token": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "PEM key": PEM,
    "PEM key in base64": _b64(PEM),
    "dockerconfig in base64": _b64(orjson.dumps({"auths": {"r.example": {"auth": _b64("u:" + HIDDEN)}}}).decode()),
}
"""Found wherever they are."""

TEXTS: dict[str, str] = {
    "an option": "train --password={} --epochs=3",
    "an option with a space": "sh -c 'train --api-key {} --epochs 3'",
    "an option in quotes": 'train --db-password "{}"',
    "an assignment in a shell": "export DB_PASSWORD={} && train",
    "an assignment in quotes": "TOKEN='{}' train",
    "a property": "spring.datasource.password={}",
    "YAML": "db:\n  user: train\n  password: {}\n  host: db\n",
    "YAML in quotes": 'auth:\n  "client_secret": "{}"\n',
    "YAML in a list": "- name: x\n  api_key: {}\n",
    "upper case": "PASSWORD: {}",
    "a kubeconfig": "users:\n- name: admin\n  user:\n    client-key-data: {}\n    token: {}\n",
    "JSON": '{{"db":{{"password":"{}"}}}}',
    "JSON in a list": '[{{"token":"{}"}}]',
    "JSON in a line": 'curl -d {{"password":"{}"}} https://host',
    "a URL": "postgres://train:{}@db:5432/jobs",
    "a URL among words": "clone https://x-oauth:{}@git.example/team/repo.git now",
    "a header": "curl -H 'Authorization: Bearer {}' https://host",
    "a basic header": "curl -H 'Authorization: Basic {}'",
    "a login": "curl -u train:{} https://host",
    "a login in words": "curl --user train:{} https://host",
    "an INI file": "[default]\naws_secret_access_key = {}\n",
    "a connection string": "AccountName=x;AccountKey={};EndpointSuffix=core",
    "a netrc": "machine host login train password={}",
    "a Python call": "connect(host='db', password='{}')",
    "a Slack hook": "https://hooks.slack.com/services/T00/B00/{}",
    "an error": "login failed: token={} has expired",
}
"""`{}` is where the secret is."""

VALUES: dict[str, Any] = {
    "a variable": {"env": [{"name": "ANYTHING", "value": HIDDEN}]},
    "a variable of an init container": {"initContainers": [{"env": [{"name": "A", "value": HIDDEN}]}]},
    "a variable of a container": {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": HIDDEN}]}]}},
    "an argument after its option": {"args": ["train", "--password", HIDDEN]},
    "a command": {"command": ["mysql", "--password=" + HIDDEN]},
    "a field": {"apiKey": HIDDEN},
    "an annotation": {"metadata": {"annotations": {"example.com/token": HIDDEN}}},
    "a named value": {"parameters": [{"name": "db-password", "value": HIDDEN}]},
    "data of a Secret": {"kind": "Secret", "stringData": {"a": HIDDEN}},
    "last-applied-configuration": {
        "annotations": {"last-applied": orjson.dumps({"env": [{"name": "A", "value": HIDDEN}]}).decode()}
    },
    "Ray's runtime environment": {"runtimeEnvYAML": f"env_vars:\n  WANDB_API_KEY: {HIDDEN}\n"},
}

NOT_FOUND: dict[str, str] = {
    "a word that nothing gives away": HIDDEN,
    "a short option": f"mysql -p{HIDDEN}",
    "a position": f"login train {HIDDEN}",
    "a name that says nothing": f"--dsn={HIDDEN}",
    "in base64": _b64(f"password={HIDDEN}"),
    "a block of YAML": f"password: |\n  {HIDDEN}\n",
    "in hexadecimal": HIDDEN.encode().hex(),
}
"""What stays. The documents say so."""

HARMLESS: dict[str, Any] = {
    "words": "the token has expired, and the password is wrong",
    "an image": "registry.example/team/train:1.2@sha256:0123456789abcdef",
    "a plain URL": "https://host:8443/path?q=1#f",
    "an address": "mail train@example.com about secret: no",
    "names of files": ["--token-file=/var/run/token", "--secret-name=db", "--kubeconfig=/etc/kubeconfig"],
    "switches": ["--use-token=true", "--max-tokens=512", "--token-ttl=3600", "passwordless: yes"],
    "references": ["--password=$(DB_PASSWORD)", "--password=$DB_PASSWORD", "password: ${PASSWORD}"],
    "a reference to a Secret": {
        "env": [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}]
    },
    "volumes": {"volumes": [{"name": "token", "secret": {"secretName": "db", "items": [{"key": "a", "path": "b"}]}}]},
    "a service account": {"serviceAccountName": "x", "automountServiceAccountToken": False},
    "a job": {"metadata": {"name": "tokenizer-task-1", "uid": "9f1c2d3e-0000-4000-8000-0123456789ab"}},
    "selectors": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["disk-a"]}]},
    "quantities": {"requests": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}},
    "our annotations": {
        "annotations": {"slicebus.dev/granted": '{"main":3}', "slicebus.dev/dispatched": '{"hash":"ab"}'}
    },
    "a condition": {"type": "Complete", "reason": "Done", "message": "Reached expected number of succeeded pods"},
    "a script": {"args": ["python", "train.py", "--epochs", "3", "--lr=0.1", "-u", "--key=value"]},
}
"""Nothing of this is touched."""
