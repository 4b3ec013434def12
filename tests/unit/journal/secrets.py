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
    "PGP key": "-----BEGIN PGP " + "PRIVATE KEY BLOCK-----\nlQOYBF0Zq9hunter2\n-----END PGP PRIVATE KEY BLOCK-----",
    "age key": "AGE-SECRET-" + "KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2,
    "bcrypt hash": "$2b$" + "12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW",
    "crypt hash": "$6$" + "rounds=5000$saltsalt$a1B2c3D4e5F6g7H8i9J0k1L2m3N4",
    "GitLab runner token": "glrt-" + "x1Y2-z3W4_v5U6t7S8r9",
    "Atlassian token": "ATATT3" + "xFfGF0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9",
    "Google client secret": "GOCSPX-" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4",
    "Databricks token": "dapi" + "a1b2c3d4" * 4,
    "Groq key": "gsk_" + "a1B2c3D4e5F6" * 4,
    "Nvidia key": "nvapi-" + "a1B2c3D4e5F6" * 4,
    "Replicate token": "r8_" + "a1B2c3D4e5F6" * 3,
    "Stripe hook": "whsec_" + "a1B2c3D4e5F6" * 3,
    "Shopify token": "shpat_" + "a1b2c3d4" * 4,
    "Slack app token": "xapp-" + "1-A0123456789-1234567890123-a1b2c3d4e5f6",
    "Grafana token": "glsa_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6_a1b2c3d4",
    "Tailscale key": "tskey-" + "auth-kABCDEF1CNTRL-a1b2c3d4e5f6",
    "Pulumi token": "pul-" + "a1b2c3d4e5" * 4,
    "Docker organization token": "dckr_oat_" + "a1B2c3D4e5F6g7H8i9J0k1L2",
    "RubyGems key": "rubygems_" + "a1b2c3d4" * 6,
    "Dynatrace token": "dt0c01." + "ST2EY72KQINMH574WMNVI7YN." + "G3DFPBEJYMODIDAEX454M7YWBUVEFOWK" * 2,
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
    "a short option of mysql": "mysqldump -h db -uroot -p{} jobs",
    "a short option of sshpass": "sshpass -p {} ssh host",
    "a short option of redis-cli": "redis-cli -h r -a {} PING",
    "a short option of docker login": "docker login r.example -u train -p {}",
    "a Kubernetes Secret on a command line": "kubectl create secret generic s --from-literal=any={}",
    "a key of Weights & Biases": "wandb login --relogin {}",
    "a proxy's login": "curl -U train:{} https://host",
    "a block of YAML": "a:\n  password: |\n    {}\n  b: 1\n",
    "YAML with spaces": "a: 1\npassword: correct horse {} staple\n",
    "quotes with spaces": 'train --password "correct horse {} staple"',
    "quotes in quotes": 'sh -c "train --api-key \\"{}\\" --epochs 3"',
    "JSON in JSON in a line": 'curl -d \'{{"x":"{{\\"password\\":\\"{}\\"}}"}}\' https://host',
    "Ray's variables in YAML": "working_dir: .\nenv_vars:\n  ANY: {}\n  OTHER: 1\npip: []\n",
    "a text among Ray's variables": "env_vars:\n  ANY: |\n    {}\n  OTHER: 1\npip: []\n",
    "Ray's variables in quotes": "env_vars:\n  'ANY': '{}'\n",
    "Ray's variables in one line": "env_vars: {{ANY: {}, OTHER: 1}}\n",
    "Ray's variables as JSON": 'ray job submit --runtime-env-json=\'{{"env_vars": {{"ANY": "{}"}}}}\' -- python x',
    "Ray's variables as JSON text": '{{"env_vars":{{"ANY":"{}"}}}}',
    "variables of Compose": "services:\n  a:\n    environment:\n      - ANY={}\n    image: x\n",
    "variables of a pod in YAML": "env:\n  - name: ANY\n    value: {}\n",
    "a signed URL of Azure": "https://a.blob.core.windows.net/c/f?sv=2022-11-02&sr=b&sig={}%3D&se=2027",
    "a shared access signature": "BlobEndpoint=https://a.blob.core.windows.net;SharedAccessSignature=sv=2022&sig={}",
    "a shared access key": "Endpoint=sb://x;SharedAccessKeyName=root;SharedAccessKey={}",
    "a signed URL of S3": "https://b.s3.amazonaws.com/k?X-Amz-Credential=x&X-Amz-Signature={}&X-Amz-Expires=60",
    "a signed URL of Google": "https://storage.googleapis.com/b/o?X-Goog-Signature={}",
    "a key in a URL": "https://maps.example/api?key={}&q=1",
    "a code in a URL": "https://f.azurewebsites.net/api/x?code={}",
    "a short name": "export DB_PASS={}",
    "a shorter name": "connect host=db pw={}",
    "MySQL's variable": "MYSQL_PWD={} mysql",
    "camel case": "jdbc.userPass={}",
    "a one-time password": "login otp={}",
    "credentials": "creds: {}",
    "a passcode": "passcode={}",
    "a key for ssh": "ssh_key={}",
    "a license": "LICENSE_KEY={}",
    "a subscription": "curl -H 'Ocp-Apim-Subscription-Key: {}' https://host",
    "GitLab's header": "curl -H 'PRIVATE-TOKEN: {}' https://host",
    "another scheme": "curl -H 'Authorization: Token {}' https://host",
    "a scheme with parts": "Authorization: AWS4-HMAC-SHA256 Credential=A/20270101, Signature={}",
    "cookies": "curl -H 'Cookie: theme=dark; session={}' https://host",
    "XML": "<server><id>x</id><password>{}</password></server>",
    "a netrc in words": "machine host login train password {}",
    "a Discord hook": "https://discord.com/api/webhooks/123456789012345678/{}",
    "a Telegram bot": "https://api.telegram.org/bot123456789:{}/sendMessage",
    "a Teams hook": "https://x.webhook.office.com/webhookb2/{}/IncomingWebhook/a/b",
    "ADO": "Server=db;Uid=sa;Pwd={};Database=x",
    "openssl": "openssl rsa -passin pass:{} -in k",
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
    "Redis of Ray's head": {"gcsFaultToleranceOptions": {"redisPassword": {"value": HIDDEN}}},
    "an object with a value": {"credentials": {"kind": "x", "value": HIDDEN}},
    "several tokens": {"secrets": [HIDDEN]},
    "a short field": {"pass": HIDDEN},
    "a field in camel case": {"dbPass": HIDDEN},
    "a field for a password": {"adminPwd": HIDDEN},
    "a signature": {"sig": HIDDEN},
    "variables by name": {"env_vars": {"ANY": HIDDEN}},
    "variables by name in camel case": {"runtimeEnv": {"envVars": {"ANY": HIDDEN}}},
    "variables as texts": {"environment": [f"ANY={HIDDEN}"]},
    "variables that are nested": {"environment": {"train": {"password": HIDDEN}}},
    "several": {"passwords": [HIDDEN]},
    "a value by its key": {"settings": [{"key": "db-password", "value": HIDDEN}]},
    "a header": {"httpGet": {"httpHeaders": [{"name": "X-Api-Key", "value": HIDDEN}]}},
    "an argument of a program": {"command": ["redis-cli", "-a", HIDDEN, "PING"]},
    "an argument with its option": {"args": ["/usr/bin/mysql", "-uroot", f"-p{HIDDEN}"]},
    "Ray's start parameters": {"rayStartParams": {"redis-password": HIDDEN}},
    "Ray's runtime environment": {"runtimeEnvYAML": f"env_vars:\n  WANDB_API_KEY: {HIDDEN}\n"},
}

NOT_FOUND: dict[str, str] = {
    "a word that nothing gives away": HIDDEN,
    "a short option of any program": f"train -p{HIDDEN}",
    "a position": f"login train {HIDDEN}",
    "a name that says nothing": f"--dsn={HIDDEN}",
    "in base64": _b64(f"password={HIDDEN}"),
    "standard input": f"echo {HIDDEN} | docker login --password-stdin",
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
    "words that have others in them": {"args": ["--bypass=cache", "--compass=north", "--topology-key=zone"]},
    "Redis by reference": {
        "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}, "redisAddress": "r:6379"}
    },
    "a toleration": {"tolerations": [{"key": "pool", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}]},
    "an environment": {"labels": {"environment": "production", "env": "staging"}},
    "no variables": {"env_vars": {}, "env": []},
    "YAML without secrets": "working_dir: .\npip:\n  - torch\nconfig:\n  setup_timeout_seconds: 600\n",
    "ports and paths": {"args": ["docker", "run", "x"], "command": ["train", "-p", "8080", "-a", "all"]},
    "a URL with a query": "https://host/path?q=key&version=2&page=3",
    "quantities": {"requests": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}},
    "our annotations": {
        "annotations": {"slicebus.dev/granted": '{"main":3}', "slicebus.dev/dispatched": '{"hash":"ab"}'}
    },
    "a condition": {"type": "Complete", "reason": "Done", "message": "Reached expected number of succeeded pods"},
    "a script": {"args": ["python", "train.py", "--epochs", "3", "--lr=0.1", "-u", "--key=value"]},
}
"""Nothing of this is touched."""
