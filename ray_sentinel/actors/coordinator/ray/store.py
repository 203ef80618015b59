"""Ray's control store (GCS) asked by gRPC, on one channel: no dashboard is needed, no driver is
registered and no job appears.

Services and messages: ``gcs_service.proto``, ``gcs.proto``, ``common.proto`` and
``autoscaler.proto`` of Ray.
"""

from __future__ import annotations

import importlib
from typing import Any

from ray_sentinel.errors import UnreachableError
from ray_sentinel.text import one_line

ANSWER_SECONDS = 5.0
"""Seconds that the store has for each answer."""
MOST_BYTES = 64 << 20
"""Most bytes of one answer."""


class RayStore:
    """The channel, which the first request opens. One thread sends requests; any may close it."""

    def __init__(self, address: str, *, most_bytes: int = MOST_BYTES) -> None:
        """``address`` is the control store's, HOST:PORT; ``most_bytes`` is for each answer."""
        self._address, self._most_bytes = address, most_bytes
        self._channel: Any = None
        self._stubs: dict[str, Any] = {}
        self._closed = False

    def __enter__(self) -> RayStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, service: str, method: str, **fields: Any) -> Any:
        """The reply of ``method`` of ``service`` ("JobInfo") to a request with these fields.

        Raises UnreachableError with the whole reason if the store refuses or does not answer in
        time, or this version of Ray has no such service, method or field.
        """
        try:
            import grpc  # type: ignore[import-untyped]

            module, _ = _place(service)
            request = getattr(_generated(module), f"{method}Request")(**fields)
            call = getattr(self._stub(service), method)
        except (ImportError, AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise UnreachableError(one_line(f"{type(error).__name__}: {error}")) from error
        try:
            return call(request, timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise UnreachableError(_reason(error)) from error
        except ValueError as error:
            # The channel was closed meanwhile.
            raise UnreachableError(one_line(str(error))) from error

    def _stub(self, service: str) -> Any:
        if self._closed:
            raise RuntimeError("the channel is closed")
        if self._channel is None:
            limit = (("grpc.max_receive_message_length", self._most_bytes),)
            self._channel = _init_channel()(self._address, options=limit)
        if service not in self._stubs:
            module, stub = _place(service)
            made = getattr(_generated(f"{module}_grpc"), stub)
            self._stubs[service] = made(self._channel)
        return self._stubs[service]

    def close(self) -> None:
        """Close the channel; later requests get no answer."""
        self._closed = True
        if self._channel is not None:
            self._channel.close()


def _init_channel() -> Any:
    """Ray's own function, which sees to TLS and tokens."""
    try:
        module = importlib.import_module("ray._private.grpc_utils")
    except ModuleNotFoundError:
        module = importlib.import_module("ray._private.utils")  # older versions have it there
    return module.init_grpc_channel


def _place(service: str) -> tuple[str, str]:
    """The generated module that contains a service's messages, and the name of its stub."""
    if service == "AutoscalerState":
        return "autoscaler_pb2", "AutoscalerStateServiceStub"
    return "gcs_service_pb2", f"{service}GcsServiceStub"


def _generated(module: str) -> Any:
    return importlib.import_module(f"ray.core.generated.{module}")


def _reason(error: Any) -> str:
    """Everything that gRPC says: its own text has the reason in a later line."""
    said = error.details() if hasattr(error, "details") else str(error)
    code = error.code().name if hasattr(error, "code") and error.code() else ""
    return one_line(": ".join(filter(None, (code, said))))
