"""Texts with a secret each. The tokens are put together here: no scanner takes them for real."""

from __future__ import annotations

R = "x7Gh2kLq9PzVb4NmT1wRs8Yc"
"""24 characters as a generator makes them."""
HEX40 = "3f9a1c7be04d5826af91c3d7e2b60458a1f7c9d2"
HEX32 = HEX40[:32]
B64 = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
LINES = "\n".join((B64, B64[::-1], B64[4:] + "abcd"))
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{LINES}\n-----END RSA PRIVATE KEY-----"

FORMS: list[tuple[str, str]] = [
    (f"{before}{token}{after}", token)
    for token in (
        f"hf_{R}AbCdEfGhIj",
        f"github_pat_11ABCDEFG0{R}_{R}{R}",
        f"ghp_{R}AbCdEfGhIjKl",
        f"gho_{R}AbCdEfGhIjKl",
        f"ghs_{R}AbCdEfGhIjKl",
        f"glpat-{R}",
        f"npm_{R}AbCdEfGhIjKl",
        f"sk_live_{R}",
        f"rk_live_{R}",
        f"dapi{HEX32}",
        f"sk-proj-{R}{R}",
        f"sk-ant-api03-{R}-{R}",
        f"sk-{R}{R}",
        f"AIzaSy{R}AbCdEfGhI",
        f"ya29.{R}-{R}",
        "AKIA" + "IOSFODNN7EXAMPL3",
        "ASIA" + "IOSFODNN7EXAMPL3",
        f"xoxb-123456789012-1234567890123-{R}",
        f"xoxp-123456789012-{R}",
        f"xapp-1-A012345-123456-{HEX40}",
        f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{R}",
        f"nvapi-{R}_{R}",
        f"pypi-AgEIcHlwaS5vcmc{R}",
        f"dckr_pat_{R}",
        f"hvs.{R}{R}",
        f"SG.{R}.{R}",
        f"gsk_{R}{R}",
        f"dop_v1_{HEX40}",
        f"GOCSPX-{R}",
        f"shpat_{HEX32}",
        f"glsa_{R}_3f9a1c7b",
    )
    for before, after in (("using ", " now"), ("('", "')"), ("x=", ""), ("\\n", "\\n"))
]

NAMED: list[tuple[str, str]] = [
    # command lines
    ("train.py --token hunter2pass --lr 3", "hunter2pass"),
    ("train.py --hf-token=abc_def --lr 3", "abc_def"),
    ("train.py --password=hunter2 --lr 3", "hunter2"),
    ("train.py --password 'correct horse' --lr 3", "correct horse"),
    ("train.py --api-key s3cr3t", "s3cr3t"),
    ("train.py -password hunter2", "hunter2"),
    ("['train.py', '--token', 'hunter2pass']", "hunter2pass"),
    ('["train.py", "--db-password", "hunter2"]', "hunter2"),
    ("train.py\0--token\0hunter2pass\0--lr", "hunter2pass"),
    ("++wandb.api_key=abc123 trainer.lr=3", "abc123"),
    (f"wandb login {HEX40}", HEX40),
    (f"wandb login --relogin {HEX40}", HEX40),
    ("docker login -u bob -p hunter2 registry.io", "hunter2"),
    ("docker login registry.io --username bob --password hunter2", "hunter2"),
    ("echo hunter2 | docker login -u bob --password-stdin", "hunter2"),
    ("curl -u bob:hunter2 https://example.com", "hunter2"),
    ("curl -ubob:hunter2 https://example.com", "hunter2"),
    ("curl --user 'bob:hunter two' https://example.com", "hunter two"),
    ('curl -H "X-Api-Key: abcdef12" https://example.com', "abcdef12"),
    ("curl -H 'Authorization: Bearer abc123def' https://example.com", "abc123def"),
    ("curl -H 'Cookie: sid=abc123; lang=en' https://e.com", "abc123"),
    ("mysql -u root -phunter2 db", "hunter2"),
    ("mysqldump -h db -phunter2 --all", "hunter2"),
    ("sshpass -p hunter2 ssh node1", "hunter2"),
    ("sshpass -phunter2 ssh node1", "hunter2"),
    ("subprocess.run(['sshpass', '-p', 'hunter2', 'ssh'])", "hunter2"),
    ("Command '['mysql', '-phunter2', 'db']' returned non-zero exit status 1.", "hunter2"),
    ("redis-cli -h cache -a hunter2 ping", "hunter2"),
    ("openssl rsa -passin pass:hunter2 -in k", "hunter2"),
    (f"aws configure set aws_secret_access_key {R}", R),
    # environment
    ("export FOO_SECRET=abc", "abc"),
    ("FOO_SECRET=a,b;c&d", "a,b;c&d"),
    ("DB_PASSWORD=correct horse battery staple", "horse battery"),
    ("export X_TOKEN='it is mine'", "it is mine"),
    ("PGPASSWORD=hunter2 psql -h db", "hunter2"),
    ("MYSQL_PWD=hunter2 mysql", "hunter2"),
    (f"WANDB_API_KEY={HEX40}", HEX40),
    (f"WANDB_API_KEY: {HEX40}", HEX40),
    ("COMET_API_KEY=abc123xyz", "abc123xyz"),
    ("NEPTUNE_API_TOKEN=abc123xyz==", "abc123xyz"),
    ("CLEARML_API_SECRET_KEY=abc123xyz", "abc123xyz"),
    ("MLFLOW_TRACKING_PASSWORD=hunter2", "hunter2"),
    ("MLFLOW_TRACKING_TOKEN=hunter2", "hunter2"),
    (f"AWS_SECRET_ACCESS_KEY={R}/{R[:15]}", R),
    (f"AWS_SESSION_TOKEN=IQoJb3JpZ2luX2Vj{R}//////////wEa{R}==", R),
    ("environ({'HF_TOKEN': 'abc', 'HOME': '/root'})", "'abc'"),
    ("setenv DB_PASSWORD hunter2", "hunter2"),
    ('declare -x API_TOKEN="a b c"', "a b c"),
    ("env: - name: HF_TOKEN\n  value: hunter2pass\n", "hunter2pass"),
    ('{"name": "HF_TOKEN", "value": "hunter2pass"}', "hunter2pass"),
    # syntax
    ('{"password": "x y"}', "x y"),
    ('{"password":"a\\"b c"}', "b c"),
    ('{\\"password\\": \\"hunter two\\"}', "hunter two"),
    ('{\\\\\\"password\\\\\\": \\\\\\"hunter two\\\\\\"}', "hunter two"),
    ("{'password': 'hunter2'}", "hunter2"),
    ("{b'password': b'hunter2'}", "hunter2"),
    ("Client(password='hunter two', timeout=3)", "hunter two"),
    ("Client(password=hunter2, timeout=3)", "hunter2"),
    ("Client(api_key=SecretStr('hunter2'))", "hunter2"),
    ("[('password', 'hunter2'), ('user', 'bob')]", "hunter2"),
    ("os.environ['HF_TOKEN'] = 'hunter2x'", "hunter2x"),
    ("os.environ.setdefault('HF_TOKEN', 'hunter2x')", "hunter2x"),
    ("auth=('bob', 'hunter2')", "hunter2"),
    ("password: str = 'hunter2'", "hunter2"),
    ("password => 'hunter2'", "hunter2"),
    ("password := hunter2", "hunter2"),
    ('password = """hunter\ntwo"""', "hunter\ntwo"),
    ("db:\n  password: correct horse  # mine\n  port: 3", "correct horse"),
    ("db:\n  password: |\n    hunter\n    two\n  port: 3", "hunter\n    two"),
    ("- password: hunter2", "hunter2"),
    ("password=12345678", "12345678"),
    ("PIN: 0000", "0000"),
    ("pin=4711", "4711"),
    ("apiKey: abc123", "abc123"),
    ('"clientSecret":"abc"', '"abc"'),
    ('"accessToken": "abc123"', "abc123"),
    ("dbPassword=hunter2", "hunter2"),
    ("userPassword: 'пароль секрет'", "пароль"),
    ("password=пароль123", "пароль123"),
    ("<password>hunter2</password>", "hunter2"),
    ("password&quot;: &quot;hunter2&quot;", "hunter2"),
    ("password%3Dhunter2", "hunter2"),
    ("| hf_token | hunter2x | str |", "hunter2x"),
    ("  hf_token ........................ hunter2x", "hunter2x"),
    ("login failed for bob with password 'hunter two'", "hunter two"),
    ("RuntimeError: the password is hunter2", "hunter2"),
    ("RuntimeError: password: hunter2 was refused", "hunter2"),
    ("(train pid=4711) password: hunter2", "hunter2"),
    ("machine api.wandb.ai login user password hunter2", "hunter2"),
    ("machine api.wandb.ai\n  login user\n  password hunter2\n", "hunter2"),
    ("//registry.npmjs.org/:_authToken=hunter2x", "hunter2x"),
    ("    client-key-data: LS0tLS1CRUdJTg==", "LS0tLS1CRUdJTg"),
    ("    client-certificate-data: LS0tLS1CRUdJTg==", "LS0tLS1CRUdJTg"),
    ("    token: eyabcdefgh", "eyabcdefgh"),
    # headers
    ("Cookie: sid=abc; theme=dark", "sid=abc"),
    ("Set-Cookie: session=abc123; Path=/; HttpOnly", "abc123"),
    ("{'Cookie': 'sid=abc123'}", "abc123"),
    ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("Authorization: token abcdef", "abcdef"),
    ("{'Authorization': 'Bearer abc123def'}", "abc123def"),
    ("('Authorization', 'Bearer abc123def')", "abc123def"),
    ("x-auth-token: abc123", "abc123"),
    ("Ocp-Apim-Subscription-Key: abc123", "abc123"),
    # URLs
    ("git clone https://user:hunter2@github.com/x", "hunter2"),
    ("redis://:hunter2@10.0.0.1:6379/0", "hunter2"),
    ("mysql+pymysql://root:p@ss/w0rd@db/x", "ss/w0rd"),
    ("postgres://u:12345678@db:5432/x", "12345678"),
    (f"https://{R}@github.com/x", R),
    ("GET https://b.s3.amazonaws.com/k?X-Amz-Expires=9&X-Amz-Signature=abcdef0123", "abcdef0123"),
    ("https://acct.blob.core.windows.net/c?sv=2020&sig=Zm9vYmFy%3D", "Zm9vYmFy"),
    ("GET /api?token=abc&x=1", "abc"),
    ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9v+YmFy==;E=x", "Zm9v+YmFy=="),
    ("SharedAccessSignature sr=x&sig=abc123%3d&se=1", "abc123%3d"),
    (f"https://hooks.slack.com/services/T0001/B0001/{R}", R),
    (f"https://discord.com/api/webhooks/123456/{R}-{R}", R),
    (f"https://acme.webhook.office.com/webhookb2/{HEX32}@x/IncomingWebhook/{HEX32}/y", HEX32),
    ("https://chat.googleapis.com/v1/spaces/AAA/messages?key=abc&token=def123", "def123"),
    # key blocks
    (PEM, B64),
    (PEM.replace("\n", "\\n"), B64),
    ('{"private_key": "' + PEM.replace("\n", "\\n") + '"}', B64),
    (PEM.replace("RSA", "OPENSSH"), B64),
    (PEM[: PEM.index("-----END")], B64),
    (PEM[:150], B64[:60]),
    (PEM[40:], B64[20:]),
    (PEM[40:].replace("\n", "\\n"), B64[20:]),
    (LINES, B64),
    (
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n" + LINES + "\n=aBcD\n-----END PGP PRIVATE KEY"
        " BLOCK-----",
        B64,
    ),
    ("\n".join(f"[rank0]: {line}" for line in PEM.splitlines()), B64),
    ("saw hunter2x9 before: password=hunter2x9", "hunter2x9"),
]
MORE: list[tuple[str, str]] = [
    ("authenticate(user='bob', pw='hunter2')", "hunter2"),
    ("user=bob;pwd=hunter2;server=db", "hunter2"),
    ("Server=db;User Id=sa;Password=hun;ter2;Encrypt=yes", "hun"),
    ("jdbc:postgresql://db/x?user=bob&password=hunter2", "hunter2"),
    ("mongodb+srv://bob:hunter2@cluster0.mongodb.net/x", "hunter2"),
    ("amqp://guest:gu%40est@mq//", "gu%40est"),
    ("https://oauth2:abc@gitlab.com/x", "abc@"),
    ("PIP_EXTRA_INDEX_URL=https://bob:hunter2@pypi", "hunter2"),
    ("SENTRY_DSN=https://" + HEX32 + "@o1.ingest.sentry.io/1", HEX32),
    ('{"auths":{"ghcr.io":{"auth":"dXNlcjpwYXNzd29yZA=="}}}', "dXNlcjpwYXNzd29yZA"),
    (
        "AWS4-HMAC-SHA256 Credential=X/20130524/us-east-1/s3/aws4_request, Signature=fe5f80f77d5fa3beca038a248ff027d0445342fe2855ddc963176630326f1024",  # noqa: E501
        "fe5f80f77d5fa3",
    ),
    ("Incorrect API key provided: " + R, R),
    ("api key " + R + " is not valid", R),
    ("token " + R + " rejected", R),
    ("Token is invalid: " + R, R),
    ("your secret is hunter2x9", "hunter2x9"),
    ("kubectl create secret generic x --from-literal=password=hunter2", "hunter2"),
    ("helm install --set global.postgresql.auth.postgresPassword=hunter2 x", "hunter2"),
    (
        'ray job submit --runtime-env-json=\'{"env_vars": {"HF_TOKEN": "hunter2x"}}\' -- python t.py',  # noqa: E501
        "hunter2x",
    ),
    ('ENV_VAR={\\"env_vars\\":{\\"HF_TOKEN\\":\\"hunter2x\\"}}', "hunter2x"),
    ("could not connect: postgresql+psycopg2://bob:hun:ter@db:5432/x", "hun:ter"),
    ("FERNET_KEY=" + R + "=", R),
    ("SECRET_KEY_BASE=" + R, R),
    ("DJANGO_SECRET_KEY='a b(c)'", "a b(c)"),
    ("http://127.0.0.1:8888/lab?token=" + HEX40[:8], HEX40[:8]),
    ("X-Vault-Token: s.abc", "s.abc"),
    (
        'Authorization: Digest username="bob", response="6629fae49393a05397450978507c4ef1"',
        "6629fae4",
    ),
    ("authorization=Bearer%20abc123def", "abc123def"),
    ("requests.get(url, auth=HTTPBasicAuth('bob', 'hunter2'))", "hunter2"),
    ("smtp.login('bob@x.com', 'hunter2')", "hunter2"),
    ("psycopg2.connect(\"dbname=x user=bob password='hunter two'\")", "hunter two"),
    ("user bob, password hunter2", "hunter2"),
    ("Password for bob: hunter2", "hunter2"),
    ("Password (again): hunter2", "hunter2"),
    ("password for 'https://bob@github.com': hunter2", "hunter2"),
    ("passphrase: open sesame", "open sesame"),
    ("ssh-keygen -t rsa -N hunter2 -f k", "hunter2"),
    ("7z x -phunter2 a.7z", "hunter2"),
    ("smbclient //h/s -U bob%hunter2", "hunter2"),
    ("lftp -u bob,hunter2 sftp://h", "hunter2"),
    ("az login --service-principal -u id -p hunter2 --tenant t", "hunter2"),
    ("mc alias set x https://h AKEY " + R, R),
    ("rclone --s3-secret-access-key hunter2x", "hunter2x"),
    ("{'secrets': {'db': 'abc'}}", "'abc'"),
    ("secrets:\n  db: hunter2x\n", "hunter2x"),
    ("PASSWORD='it'\\''s mine'", "mine"),
    ("PASSWORD=a\\ b", "a\\ b"),
    ('password=a"b c"d', "b c"),
    ("password\t=\thunter2", "hunter2"),
    ("DB_PASSWORD\thunter2x", "hunter2x"),
    ("password:\n  hunter2\n", "hunter2"),
    ('{\n  "password":\n    "hunter2"\n}', "hunter2"),
    ('{"password": 12345678}', "12345678"),
    ("passwords=['abc', 'def']", "def"),
    ("user=bob&password=hun%26ter", "hun%26ter"),
    ("grant_type=password&client_secret=abc&x=1", "=abc"),
    ("%7B%22password%22%3A%22hunter2%22%7D", "hunter2"),
    ("\\u0022password\\u0022:\\u0022hunter2\\u0022", "hunter2"),
    ("password=\x1b[31mhunter2\x1b[0m", "hunter2"),
    ("\x1b[1mpassword\x1b[0m: hunter2", "hunter2"),
    ("INFO:root:password: hunter two", "hunter two"),
    ("2026-01-01 00:00:00,123 - root - ERROR - password: hunter two", "hunter two"),
    (
        "1 validation error for Config\npassword\n  Input should be valid [type=x, input_value='hunter two', input_type=str]",  # noqa: E501
        "hunter two",
    ),
    ("wandb: Appending key for api.wandb.ai " + HEX40, HEX40),
    ("wandb.login(key='" + HEX40 + "')", HEX40),
    ("-H 'X-Api-Key: a b'", "a b"),
    ("x-goog-api-key: abc", "abc"),
    ("JSESSIONID=" + HEX32, HEX32),
    ("Cookie: a=b\\r\\nHost: x", "a=b"),
    ("https://mattermost.corp/hooks/x7gh2klq9pzvb4nmt1wrs8yc26", "vb4nmt1"),
    ("https://api.telegram.org/bot123456789:AAH" + R + "abcdefgh/send", R),
    ("webhook_url: https://x.corp/notify/abc123", "abc123"),
    ("spring.datasource.password: hunter2", "hunter2"),
    ("FLAGS_token: 'hunter2x'", "hunter2x"),
    ("Namespace(lr=3, password=None, token='hunter2x')", "hunter2x"),
    ('cmd: python t.py --hf_token \\"hunter 2x\\" --lr 3', "hunter 2x"),
    ("cmd='python t.py --hf_token hunter2x'", "hunter2x"),
    ("HF_TOKEN set to hunter2x", "hunter2x"),
    ("key=HF_TOKEN value=hunter2x", "hunter2x"),
    ("ENV HF_TOKEN hunter2x", "hunter2x"),
    ('accessKeySecret: "abc"', "abc"),
    ('SecretAccessKey": "abc"', "abc"),
    ("auth_token abc123def456ghi789", "abc123def456ghi789"),
    ("otp=123456", "123456"),
    ("TF_VAR_db_password=hunter2", "hunter2"),
    ("--set-env-vars=API_KEY=hunter2,DB=3", "hunter2"),
    ("-e HF_TOKEN=hunter2x -v /a:/b", "hunter2x"),
    ("docker run -e WANDB_API_KEY=" + HEX40 + " img", HEX40),
    ("--env HF_TOKEN=hunter2x", "hunter2x"),
    ("ssh -o 'ProxyCommand=sshpass -p hunter2 nc'", "hunter2"),
    ('"--password","hunter2"', "hunter2"),
    ("['--token=hunter2x']", "hunter2x"),
    ("args=(('token', 'hunter2x'),)", "hunter2x"),
    ("OrderedDict([('api_key', 'hunter2')])", "hunter2"),
    ('{"api_key" : "hunter2"}', "hunter2"),
    ("api_key: 'hunter2'", "hunter2"),
    ('api_key="hunter2"', "hunter2"),
    ("apiKey='hunter2',", "hunter2"),
    ("private_token=hunter2", "hunter2"),
    ("hf_api_token: hunter2", "hunter2"),
    ("HUGGING_FACE_HUB_TOKEN=abc", "abc"),
    ("HUGGINGFACEHUB_API_TOKEN=abc", "abc"),
    ("LANGCHAIN_API_KEY=abc", "abc"),
    ("RAY_AUTH_TOKEN=abc", "abc"),
    ("SLURM_JWT=eyabc.def", "eyabc.def"),
    ("NGC_API_KEY=abc", "abc"),
    ("NGC_CLI_API_KEY=abc", "abc"),
    ("KAGGLE_KEY=" + HEX32, HEX32),
    ("AWS_SECRET=abc", "abc"),
    ("S3_SECRET=abc", "abc"),
    ("MINIO_ROOT_PASSWORD=abc", "abc"),
    ("REDIS_PASSWORD=abc", "abc"),
    ("REDIS_URL=redis://default:abc@x:1", "abc@"),
    ("redis-server --requirepass hunter2", "hunter2"),
    ("ray start --redis-password=hunter2", "hunter2"),
    ("ray start --redis-password hunter2 --block", "hunter2"),
    ("/usr/bin/raylet --redis_password=hunter2 --x", "hunter2"),
    ("smb://bob:hunter2@h/x", "hunter2"),
    ("sftp://bob:hun?ter2@h/x", "hun?ter2"),
    ("http://bob:p#w@h/x", "p#w"),
    ("basic_auth_password: abc", "abc"),
    ("bearer_token: abc", "abc"),
    ("{'bearer': 'abc'}", "abc"),
    ("X-Amz-Credential=abc%2F2020&X-Amz-Signature=def", "def"),
    ("authToken: abc", "abc"),
    ("_authToken=abc", "abc"),
    ("_password=YWJj", "YWJj"),
    ("user_password: abc", "abc"),
    ("new_password=abc&old_password=def", "def"),
    ("Password1=abc", "abc"),
    ("password_1=abc", "abc"),
    ("LDAP bind password [abc123]", "abc123"),
    ("password <abc123>", "abc123"),
    ('password "abc" rejected', "abc"),
    ("password: 'abc' rejected", "abc"),
    ("Wrong password: abc123!", "abc123"),
    ("secret=abc", "abc"),
    ("secret: |-\n  abc\n  def\nx: 1", "def"),
    ('"secret": null, "token": "abc123"', "abc123"),
    ("token:abc123", "abc123"),
    ("token->abc123", "abc123"),
    ("token=>abc123", "abc123"),
    ("token: b'abc123'", "abc123"),
    ('token = r"abc123"', "abc123"),
    ('TOKEN="abc123" python x.py', "abc123"),
    ("TOKEN=abc123; export TOKEN", "abc123"),
    ("set TOKEN=abc123", "abc123"),
    ('$env:TOKEN = "abc123"', "abc123"),
    ("$HF_TOKEN is abc123xyz", "abc123xyz"),
    ("+ export HF_TOKEN=abc123", "abc123"),
    ("+ HF_TOKEN=abc123", "abc123"),
    ("(RayTrainWorker pid=12, ip=10.0.0.1) HF_TOKEN=abc123", "abc123"),
    ("0: HF_TOKEN=abc123", "abc123"),
    ("[1,0]<stderr>:HF_TOKEN=abc123", "abc123"),
    ('{"log":"HF_TOKEN=abc123\\n","stream":"stderr"}', "abc123"),
    ('{"log":"{\\"token\\":\\"abc123\\"}\\n"}', "abc123"),
    ('msg="password=hunter2" level=error', "hunter2"),
    ('msg="bad login" password="hunter two" level=error', "hunter two"),
    ('<Secret value="hunter2"/>', "hunter2"),
    ('<add key="ApiKey" value="hunter2"/>', "hunter2"),
    ("<apiKey>hunter2</apiKey>", "hunter2"),
    ('<password type="x">hunter2</password>', "hunter2"),
    ('password\\":\\"hunter2', "hunter2"),
    ("credentials: bob:" + R, R),
    ("aws_access_key_id = AKI", "AKI"),
    ("aws_session_token: abc", "abc"),
    ('GOOGLE_APPLICATION_CREDENTIALS_JSON={"private_key": "abc"}', "abc"),
    (
        '"private_key":"-----BEGIN PRIVATE KEY-----\\nMIIabc\\n-----END PRIVATE KEY-----\\n"',
        "MIIabc",
    ),
    ("ssh_password=abc", "abc"),
    ("sudo_pass=abc", "abc"),
    ("become_pass: abc", "abc"),
    ("ansible_ssh_pass=abc", "abc"),
    ("login_token=abc", "abc"),
    ("sas_token=?sv=1&sig=abc", "abc"),
    ("Endpoint=sb://x/;SharedAccessKeyName=R;SharedAccessKey=abc=", "abc="),
    ("InstrumentationKey=" + HEX32, HEX32),
    ("snowflake://bob:hunter2@acct/db", "hunter2"),
    ("databricks://token:abc@host", "abc@"),
]
SAMPLES = FORMS + NAMED + MORE

HARMLESS = """\
tokens/s: 8012.5, num_tokens=4096, max_tokens: 2048, tokens_per_second=81.5
pad_token_id=50256 eos_token='</s>' unk_token: <unk> pad_token=<pad> bos_token_id: 1
special_tokens_map.json tokenizer=LlamaTokenizerFast tokenizer_config.json token_type_ids
KeyError: 'model.layers.0'
KeyError: 'token'
token: 50256
token=128009 at position 7
Tokenizer loaded from https://huggingface.co/gpt2
completed step: 7, seconds: 1.2, loss: 2.3, key_padding_mask: torch.Size([8, 4096])
node1:10:20 [0] NCCL INFO comm 0x7f8e2c000d90 rank 0 nranks 8 commId 0x3f9a1c7be04d5826 - Init START
node1:10:20 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
ncclUniqueId: 3f9a1c7be04d5826af91c3d7e2b60458
git commit 3f9a1c7be04d5826af91c3d7e2b60458a1f7c9d2 (HEAD -> main)
GPU-3f9a1c7b-e04d-5826-af91-c3d7e2b60458 at 0000:3B:00.0
File "/home/u/secret_santa.py", line 12, in exchange_tokens
File "/home/u/tokens/password_reset.py", line 3, in get_token
bad password supplied
ValueError: password authentication failed for user "bob"
password: None
password is required
Invalid token: expected one of pad, eos
Unexpected token: '}' at line 3
token: ' the' logit: 3.2
missing keys: ['lm_head.weight'], unexpected keys: ['model.token_embed.weight']
pin_memory=True, num_workers=4, key=value, sort_key=step, cache_key=model.layers.0
query_key_value.weight: torch.Size([3072, 1024])
store key: worker/0/rank, primary_key=run_id
secret_name: hf-credentials
HF_TOKEN_PATH=/home/user/.cache/huggingface/token
AWS_SHARED_CREDENTIALS_FILE=/home/user/.aws/credentials
use_auth_token=True trust_remote_code=False token=None
author: Jane Doe, authors=["a", "b"], authority 10.0.0.1:80
first pass: 10 s, forward_pass: 0.5s, pass=2, bypass: on
PWD=/home/u/run OLDPWD=/tmp
signature: (self, x: Tensor) -> Tensor
session_2026-01-02_03-04-05_678901_1234 session_id=7
keyboard interrupt; monkey: 3; turkey=4
https://docs.ray.io/en/latest/ray-core/handling-dependencies.html#runtime-environments
tcp://10.0.0.1:29500 rank 3, s3://bucket/key/part-0001.parquet, gs://b/x@v1
ssh://git@github.com/x/y.git
api_key=args.api_key, token=hf_token, password=self.password
login(token=os.environ["HF_TOKEN"])
hf_token=${HF_TOKEN} password=$DB_PASSWORD
Basic configuration of the trainer; the bearer of the lock is rank 3
world_size=8 local_rank=0 step=1200 lr=3e-4 loss=2.1345 grad_norm=0.53 mem=71.2GiB
attention_mask: torch.Size([8, 2048]) next_token_logits, token_id: 17, last_token: 5
curl https://example.com/health, docker run --rm image python train.py -p 80:80
mysql connection refused (10.0.0.1:3306), mysql -p
ray::TrainWorker.step (pid=123, ip=10.0.0.2, actor_id=3f9a1c7be04d5826af91c3d701000000)
sk-learn-contrib-package-name, task-runner-configuration-service
cookies: none, credentials: missing
""".splitlines()
