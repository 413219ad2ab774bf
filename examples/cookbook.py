"""OpenAI's cookbook, "Build your own code interpreter": two agents, and neither can do what the other can.

The file agent may read one folder of this machine and runs no code. The code agent runs any code, in a
container that sees nothing of this machine but the files that were put into it.

make run                             # in another terminal: the proxy, in front of your model
python examples/cookbook.py [FOLDER]

FOLDER (the current one by default) holds traffic_accidents.csv, which is made up if it is not there.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from proxy import MODEL, connect, inside, lines
from tools import talk
from traffic_accidents import write_csv

FILE = "traffic_accidents.csv"
QUESTION = "What factors contribute the most to accident frequency?"


def main(folder: Path) -> None:
    if not (folder / FILE).exists():
        write_csv(folder / FILE)
    client = connect()
    container = client.containers.create(name="cookbook").id

    def access_file(filename: str) -> str:
        """Put a file of the shared folder into the code agent's container. Tells its first lines."""
        print(f"[file agent reads {filename}]")
        path = inside(folder, filename)
        with path.open() as file:
            first = "".join(itertools.islice(file, 4))
        client.containers.files.create(container, file=path)
        return f"{path.name} lies in /mnt/data now and begins:\n{first}"

    task = f"Have a look at {FILE}. Which columns does it have, and what do they mean?"
    context = talk(client, [{"role": "user", "content": task}], [access_file])
    print(f"File agent: {context}")

    print(f"\nAn empty line asks: {QUESTION}")
    previous = None
    for question in lines("\nQuestion, or exit: "):
        response = client.responses.create(
            model=MODEL,
            instructions=f"Answer by running Python code on /mnt/data/{FILE}. {context}",
            input=question or QUESTION,
            tools=[{"type": "code_interpreter", "container": container}],
            include=["code_interpreter_call.outputs"],
            previous_response_id=previous,
        )
        for item in response.output:
            if item.type == "code_interpreter_call":
                print(f"[code agent runs]\n{item.code.rstrip()}\n[and sees]")
                print(*(output.logs for output in item.outputs if output.type == "logs"))
        print(f"Code agent: {response.output_text}")
        previous = response.id
    client.containers.delete(container)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
