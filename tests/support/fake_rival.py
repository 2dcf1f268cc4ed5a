"""`python -m tests.support.fake_rival PORT`: the rivals' classifier behind the plainest of servers.

`PORT` may be `broken`: it ends at once, with a message in its log.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.rival_servers.classifier import VARIABLE, Classifier


class Handler(BaseHTTPRequestHandler):
    """Answers every post with the scores of its text."""

    protocol_version = "HTTP/1.1"
    classify: Classifier

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        (scores,) = self.classify([body["text"]])
        data = json.dumps(scores).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def main() -> None:
    if sys.argv[1] == "broken":
        sys.exit("no luck today")
    Handler.classify = Classifier(Path(os.environ[VARIABLE]))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
