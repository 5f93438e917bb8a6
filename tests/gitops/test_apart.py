"""The loopback of a program of its own (`tests.support.gitops.apart`)."""

import socket
import subprocess
import sys

from tests.support.gitops.apart import apart
from tests.support.ports import free_port

LISTENS_AND_ASKS = """
import socket, sys
with socket.create_server(("0.0.0.0", int(sys.argv[1]))):
    with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as server:
        server.sendall(b"x" * 200_000)
        server.shutdown(socket.SHUT_WR)
        print(server.makefile().read(), flush=True)
        sys.stdin.read()
"""


def test_a_program_reaches_our_servers_and_nobody_reaches_its_own() -> None:
    hidden = free_port()
    with socket.create_server(("127.0.0.1", 0)) as ours:
        port = ours.getsockname()[1]
        with apart([port]) as enter:
            command = [*enter, sys.executable, "-c", LISTENS_AND_ASKS, str(hidden), str(port)]
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as program:
                asked, _ = ours.accept()
                with asked, asked.makefile("rb") as sent:
                    assert len(sent.read()) == 200_000
                    asked.sendall(b"answer")
                assert program.stdout is not None
                assert program.stdout.readline() == "answer\n"
                with socket.socket() as outside:
                    assert outside.connect_ex(("127.0.0.1", hidden)) != 0
                program.communicate()
    assert program.returncode == 0
