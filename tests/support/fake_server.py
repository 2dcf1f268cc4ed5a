"""`python -m tests.support.fake_server`: a process that passes for a server, at once and model-free.

Answers what a benchmark asks while it watches the process. Settings come from the environment as
the real one's do; `CAPSULE_LOG_LEVEL=ERROR` has it end at once, with a message in its log.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STATUSES = {"/readyz": 200, "/v1/classify": 200, "/v1/capsules": 201}


class Handler(BaseHTTPRequestHandler):
    """Keeps uploads, so that its memory grows, and says yes to everything."""

    protocol_version = "HTTP/1.1"
    kept: list[bytes] = []

    def do_GET(self):
        self.reply()

    def do_POST(self):
        self.kept.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.reply()

    def reply(self):
        self.send_response(STATUSES[self.path])
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def main() -> None:
    if os.environ.get("CAPSULE_LOG_LEVEL") == "ERROR":
        sys.exit("no luck today")
    server = ThreadingHTTPServer(
        (os.environ["CAPSULE_HOST"], int(os.environ["CAPSULE_PORT"])), Handler
    )
    sys.stdout.write(json.dumps({"event": "starting"}) + "\n")
    line = json.dumps({"port": server.server_address[1], "event": "listening"})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
