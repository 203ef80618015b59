"""Readers of what Ray says of runtime environments: its agent's answer and its logs."""

from __future__ import annotations

from google.protobuf.message import DecodeError
from ray.core.generated import runtime_env_agent_pb2

from ray_sentinel.actors.agent.runtime_env import environments_of
from ray_sentinel.evidence.node import runtime_env
from tests.support.outside_readers.reader import Reader, of_text

SERIALIZED = b'{"pip": {"packages": ["torch", "vllm==0.9"]}, "working_dir": "s3://bucket/code.zip"}'
LOG = b"""\
2026-11-26 09:51:54,743\tINFO runtime_env_agent.py:543 -- Creating runtime env: {"a": 1} with \
timeout 600 seconds.
2026-11-26 09:51:55,743\tINFO runtime_env_agent.py:590 -- Successfully created runtime env: \
{"a": 1}, context: {}
2026-11-26 09:51:55,743\tERROR runtime_env_agent.py:570 -- Failed to create runtime env {"a": 1}.
2026-11-26 09:51:55,743\tERROR runtime_env_agent.py:580 -- runtime_env creation failed 3 times, \
giving up.
"""


def _reply() -> bytes:
    reply = runtime_env_agent_pb2.GetRuntimeEnvsInfoReply(total=3)
    text = SERIALIZED.decode()
    reply.runtime_env_states.add(runtime_env=text, ref_cnt=1)
    reply.runtime_env_states.add(runtime_env="{}", ref_cnt=1)
    reply.runtime_env_states.add(runtime_env=text + " ", success=True, creation_time_ms=41_000)
    return bytes(reply.SerializeToString())


RUNTIME_ENV: tuple[Reader, ...] = (
    Reader(
        name="runtime environments: the agent's answer",
        read=environments_of,
        errors=(DecodeError,),
        words=(SERIALIZED, b"{}"),
        made=lambda: [_reply()],
    ),
    Reader(
        name="runtime environments: one of them",
        read=of_text(runtime_env.described),
        words=(b'{"pip": [', b'"packages": [', b'"conda": {', SERIALIZED),
        made=lambda: [SERIALIZED],
        most=64 << 10,
    ),
    Reader(
        name="runtime environments: the agent's log",
        read=of_text(lambda text: (runtime_env.open_builds(text), runtime_env.last_word(text))),
        words=tuple(LOG.splitlines(keepends=True)),
        made=lambda: [LOG],
    ),
)
