"""Secrets never leave in what we print."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.logs.mask import mask

SECRETS = [
    ("export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz", "hf_abcdefghijklmnopqrstuvwxyz"),
    ("using hf_abcdefghijklmnopqrstuvwxyz now", "hf_abcdefghijklmnopqrstuvwxyz"),
    ("OPENAI_API_KEY: sk-proj-abcdefghijklmnop1234", "abcdefghijklmnop1234"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
    ("key AKIAIOSFODNN7EXAMPLE was used", "AKIAIOSFODNN7EXAMPLE"),
    ("Authorization: Bearer abcdef123456", "abcdef123456"),
    ('{"Authorization": "Basic dXNlcjpwYXNz"}', "dXNlcjpwYXNz"),
    ("git clone https://user:hunter2secret@github.com/x", "hunter2secret"),
    ("redis://:s3cr3tpass@10.0.0.1:6379", "s3cr3tpass"),
    ("GET https://b.s3.amazonaws.com/k?X-Amz-Signature=abcdef0123&X-Amz-Expires=9", "abcdef0123"),
    ("https://acct.blob.core.windows.net/c?sv=2020&sig=Zm9vYmFy%3D", "Zm9vYmFy"),
    ("WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "0123456789abcdef"),
    ("db_password = 'correct-horse'", "correct-horse"),
    ('"client_secret": "abc-def-ghi"', "abc-def-ghi"),
    ("token ghp_abcdefghijklmnopqrstuvwxyz0123", "ghp_abcdefghijklmnopqrstuvwxyz0123"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc", "eyJzdWIiOiIxMjM0In0"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secrets_are_masked(text: str, secret: str) -> None:
    assert secret not in mask(text)
    assert "***" in mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "tokens/s: 8012.5, num_tokens=4096, max_tokens: 2048",
        "pad_token_id=50256 eos_token='</s>' unk_token: <unk>",
        "KeyError: 'text'",
        "token: 12345678",
        "Tokenizer loaded from https://huggingface.co/gpt2",
        "completed step: 7, seconds: 1.2, loss: 2.3",
        "node1:10:20 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
        "password: None",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text
