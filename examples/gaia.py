"""GAIA's code interpreter: a chat whose model runs scripts, and whose files and pictures end up in a storage.

make run                                             # in another terminal: the proxy, in front of your model
python examples/gaia.py [--storage s3://bucket/folder]

A script that fails goes back to the model, which has three tries to mend it.
--storage is a folder, ./storage by default, or a URL that fsspec knows: s3://... needs `pip install s3fs`,
az://... `pip install adlfs`, and their own credentials. `answer` is also what discord_bot.py talks to.
"""

from __future__ import annotations

import argparse
from typing import Any

import proxy
import fsspec
import openai

DATA = "/mnt/data/"
Files = dict[str, bytes]
CODE_INTERPRETER = {"type": "code_interpreter", "container": {"type": "auto"}}


def answer(client: openai.OpenAI, history: list[Any], text: str) -> tuple[str, Files]:
    """The words of the model, and the files that they cite: path below /mnt/data -> content.

    ``history`` grows by this turn; through it the conversation keeps its container, variables and files.
    """
    asked = [*history, {"role": "user", "content": text}]
    response = client.responses.create(model=proxy.MODEL, input=asked, tools=[CODE_INTERPRETER])
    history[:] = [*asked, *response.output]
    files = {}
    for item in response.output:
        for part in item.content if item.type == "message" else ():
            for note in part.annotations:
                if note.type == "container_file_citation":
                    of = {"file_id": note.file_id, "container_id": note.container_id}
                    path = client.containers.files.retrieve(**of).path.removeprefix(DATA)
                    files[path] = client.containers.files.content.retrieve(**of).read()
    return response.output_text, files


def store(storage: str, files: Files) -> dict[str, str]:
    """Upload the files; tells where each is now."""
    # fsspec reads only the storage's name as a URL: those of the files were chosen by a model.
    filesystem, folder = fsspec.url_to_fs(storage)
    for name, content in files.items():
        filesystem.makedirs(f"{folder}/{name}".rpartition("/")[0], exist_ok=True)
        filesystem.pipe_file(f"{folder}/{name}", content)
    return {name: f"{storage}/{name}" for name in files}


def main() -> None:
    parser = argparse.ArgumentParser(description="A chat that runs scripts and keeps their files.")
    parser.add_argument("--storage", default="./storage", help="a folder, or an fsspec URL")
    storage = parser.parse_args().storage.rstrip("/")
    client, history = proxy.connect(), []
    for text in proxy.lines("You, or exit: "):
        words, files = answer(client, history, text)
        places = store(storage, files)
        for name, place in places.items():
            words = words.replace(f"sandbox:{DATA}{name}", place)
        print(words)
        for place in places.values():
            print(f"[stored {place}]")


if __name__ == "__main__":
    main()
