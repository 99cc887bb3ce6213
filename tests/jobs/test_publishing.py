"""The HTTP server of a job's metrics."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import closing
from urllib.request import urlopen

import pytest

from skws.jobs.publishing import ADDRESS, MetricsServer
from tests.waiting import until


def test_a_reset_connection_prints_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(MetricsServer(0, lambda: None)) as server:
        client = socket.create_connection((ADDRESS, server.port))
        client.sendall(b"GET /met")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: _handlers() == 1)
        client.close()
        until(lambda: _handlers() == 0)
        with pytest.raises(OSError, match="503"):
            urlopen(f"http://{ADDRESS}:{server.port}/metrics")
    assert capsys.readouterr().err == ""


def _handlers() -> int:
    return sum("process_request" in thread.name for thread in threading.enumerate())
