"""Trackers that misbehave, and one that notes what it is told."""

import time

from codea1_cli.trackers import Opened, Tracker


class Notes(Tracker):
    def __init__(self):
        self.told = []

    def open(self, source, id, back):
        self.told.append(("open", source.name, id, back))
        return Opened(id or "there", "nowhere", id is None)

    def log(self, step, at, figures):
        self.told.append((step, figures))

    def table(self, step, rows):
        self.told.append((step, [row["problem"] for row in rows]))

    def close(self, failed):
        self.told.append(("close", failed))


class Raises(Notes):
    def log(self, step, at, figures):
        raise ConnectionError("nobody at https://me:hunter22@example.com answers to the key s3cret-k3y")


class Sleeps(Notes):
    def log(self, step, at, figures):
        print("asleep", flush=True)
        time.sleep(10**6)
