"""A program in a terminal and nothing else: how fast a bare reader takes its output, and how soon a key's echo is back."""

import asyncio
import os
import pty
import subprocess
import sys
import termios
import time

import msgspec
import uvloop

from bench.loads.relay import flood_command


async def flood(megabytes: int) -> float:
    main, process = _start(["bash", "-lc", flood_command(megabytes)])
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    count = 0

    def readable() -> None:
        nonlocal count
        try:
            data = os.read(main, 65_536)
        except OSError:
            data = b""
        count += len(data)
        if not data:
            loop.remove_reader(main)
            ended.set_result(None)

    began = time.perf_counter()
    loop.add_reader(main, readable)
    await ended
    process.wait()
    return count / 1e6 / (time.perf_counter() - began)


async def echo(keys: int) -> float:
    main, process = _start(["cat"])
    loop = asyncio.get_running_loop()
    took = []
    for _ in range(keys):
        heard: asyncio.Future[None] = loop.create_future()
        loop.add_reader(main, lambda heard=heard: (os.read(main, 4_096), heard.done() or heard.set_result(None)))
        began = time.perf_counter()
        os.write(main, b"x")
        await heard
        took.append((time.perf_counter() - began) * 1_000)
    loop.remove_reader(main)
    process.kill()
    process.wait()
    return sorted(took)[len(took) // 2]


def _start(argv: list[str]) -> tuple[int, "subprocess.Popen[bytes]"]:
    main, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 120))
    process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    os.set_blocking(main, False)
    return main, process


def main() -> None:
    arguments = msgspec.json.decode(sys.argv[1])
    work = {"flood": flood, "echo": echo}[arguments.pop("what")]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(msgspec.json.encode(runner.run(work(**arguments))).decode())


if __name__ == "__main__":
    main()
