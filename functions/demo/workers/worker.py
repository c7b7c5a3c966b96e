#!/usr/bin/env python3
"""A pgmill worker on the HTTP API, with the standard library only.

    worker.py TOPIC...      PGMILL_URL, PGMILL_API_KEY, LEASE_SECS (30), WORKER

Replace handle() with your work. It gets the job and an Event that is set when the work
is to be dropped: the job was cancelled, its lease is lost, or this program must stop.
"""
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

URL = os.environ.get("PGMILL_URL", "http://127.0.0.1:8081").rstrip("/")
KEY = os.environ.get("PGMILL_API_KEY", "")
LEASE = int(os.environ.get("LEASE_SECS", "30"))
NAME = os.environ.get("WORKER", "%s-%d" % (socket.gethostname()[:60], os.getpid()))
stopping = threading.Event()


class Failed(Exception):
    """Ends the attempt; reason is a code such as stock.empty."""

    def __init__(self, reason, retry=True):
        super().__init__(reason)
        self.reason, self.retry = reason, retry


class Refused(Exception):
    """The API said no."""

    def __init__(self, status, code):
        super().__init__("%d %s" % (status, code))
        self.status, self.code = status, code


def handle(job, drop):
    """The work: {"text": ..., "sleep": seconds} becomes {"text": in upper case}."""
    text = job["input"].get("text")
    if not isinstance(text, str):
        raise Failed("demo.no_text", retry=False)
    drop.wait(float(job["input"].get("sleep", 0)))
    return {"text": text.upper()}


def call(verb, body):
    request = urllib.request.Request(URL + "/api/v1/worker/" + verb, json.dumps(body).encode(), {"Content-Type": "application/json", "X-API-Key": KEY})
    try:
        with urllib.request.urlopen(request, timeout=40) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        try:
            code = json.load(e).get("code", "")
        except ValueError:
            code = ""
        raise Refused(e.code, code) from None


def beat(job, drop, done):
    """Renews the lease each third of it. Without an answer for its whole length the job
    may be another's: the clock starts before the call."""
    good = time.monotonic()
    while not done.wait(LEASE / 3):
        began = time.monotonic()
        try:
            if call("heartbeat", {"ids": [job["job_id"]], "tokens": [job["token"]]})["jobs"][0]["cancelled"]:
                drop.lost = True
                return drop.set()
            good = began
        except (OSError, Refused):
            if time.monotonic() - good > LEASE:
                drop.lost = True
                return drop.set()
        if stopping.is_set():
            drop.set()


def work(job):
    drop, done = threading.Event(), threading.Event()
    drop.lost = False
    watch = threading.Thread(target=beat, args=(job, drop, done), daemon=True)
    watch.start()
    current.append(drop)
    try:
        end = ("complete", {"output": handle(job, drop)})
    except Failed as e:
        end = ("fail", {"reason": e.reason, "retry": e.retry})
    except Exception as e:  # its text may hold what must not be stored
        print("%s: %s" % (job["job_id"], type(e).__name__), file=sys.stderr, flush=True)
        end = ("fail", {"reason": "worker.exception"})
    current.remove(drop)
    done.set()
    watch.join()
    if drop.lost:
        return print(job["job_id"], "dropped", flush=True)
    if drop.is_set():  # told to stop before it was done
        end = ("release", {})
    report(job, *end)


def report(job, verb, more):
    until = time.monotonic() + LEASE
    while True:
        try:
            print(job["job_id"], call(verb, {"id": job["job_id"], "token": job["token"], **more})["state"], flush=True)
            return
        except Refused as e:
            if e.status in (413, 422) and verb == "complete":
                verb, more = "fail", {"reason": "bad_output", "retry": False}
                continue
            if e.status < 500:
                return print(job["job_id"], verb, "refused:", e, flush=True)
        except OSError:
            pass
        if time.monotonic() > until:
            return print(job["job_id"], verb, "not told", flush=True)
        time.sleep(0.5)


current = []


def stop(*_):
    stopping.set()
    for drop in current:
        drop.set()


def main():
    topics = sys.argv[1:]
    if not topics:
        sys.exit("usage: worker.py TOPIC...")
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    pause = 1
    while not stopping.is_set():
        jobs = []
        try:  # a short wait: told to stop, it still takes the answer, which may hold a job
            jobs = call("claim", {"worker": NAME, "topics": topics, "lease_secs": LEASE, "wait_ms": 3000})["jobs"]
            pause = 1
        except Refused as e:
            if e.status < 500:
                sys.exit("claim refused: %s" % e)
            stopping.wait(pause)
            pause = min(2 * pause, 15)
        except OSError:
            stopping.wait(pause)
            pause = min(2 * pause, 15)
        for job in jobs:
            if stopping.is_set():
                report(job, "release", {})
            else:
                work(job)


if __name__ == "__main__":
    main()
