"""`python -m tests.support.fake_server`: a process that passes for a server, at once and model-free.

Answers what a benchmark asks; a classification names the task that it is asked for, and no more. Settings come from the environment as
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
        self.reply({})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/classify":
            asked = json.loads(body)
            texts = asked["text"] if isinstance(asked["text"], list) else [asked["text"]]
            self.reply({"data": [{"task": asked["task"]}] * len(texts)})
        else:
            self.kept.append(body)
            self.reply({})

    def reply(self, content):
        data = json.dumps(content).encode()
        status = 422 if self.kept and not self.kept[-1] else STATUSES[self.path]
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

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
