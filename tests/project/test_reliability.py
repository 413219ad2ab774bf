"""Each row of the tables of docs/reliability.md and docs/security.md has tests.

The upstream's faults are checked where they are tried (tests/web/server/test_faults.py), and the attempts of
programs are generated from their tests (tests/sandbox/promises.py). All other rows are here, by name.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import StartProxy
from tests.support.places import needs_bubblewrap
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"

# Page -> the first cell of a row -> where its tests are.
ROWS: dict[str, dict[str, str]] = {
    "reliability.md": {
        "it disconnects": """
            web/middleware/test_disconnects.py test_a_request_that_waits_ends_with_its_client
            web/middleware/test_disconnects.py test_a_request_ends_with_its_client_before_it_is_sent
            web/middleware/test_disconnects.py test_a_program_ends_with_the_client
            web/middleware/test_disconnects.py test_a_cell_ends_with_the_client""",
        "it sends its head or body too slowly": """
            web/server/test_floods.py test_slow_clients_are_disconnected_and_others_served
            web/server/test_floods.py test_a_slowly_sent_head_does_not_keep_its_connection_alive""",
        "too many requests at once": """
            web/server/test_floods.py test_operators_are_answered_while_every_thread_holds_a_stream""",
        "more connections than file descriptors (`ulimit -Hn`)": """
            web/server/test_server.py
            test_connections_beyond_the_limit_of_descriptors_do_not_end_the_server""",
        "bodies exceed 2 GiB together": """
            web/server/test_floods.py test_bodies_in_memory_are_bounded_together_by_what_was_read""",
        "it exceeds its limits, in the playground too": """
            web/server/test_floods.py
            test_each_client_has_its_own_limit_of_requests_per_minute
            web/inspector/test_inspector_pages.py
            test_the_playground_and_the_api_share_a_clients_limits""",
        "the proxy stops": """
            web/server/test_faults.py
            test_a_shutdown_ends_slow_requests_with_an_error_of_their_protocol""",
        "the proxy is killed, also by SIGKILL": """
            web/server/test_machine_faults.py
            test_a_killed_proxy_loses_no_stored_object_and_shows_no_partial_one""",
        "the database's file is damaged or cannot be opened": """
            web/server/test_faults.py
            test_a_damaged_database_ends_programs_but_not_the_service
            first_day/test_serving.py
            test_a_database_or_folder_that_was_named_and_cannot_be_used_stops_the_start""",
        "another process locks the database's file": """
            database/test_databases.py
            test_threads_wait_at_the_same_time_for_a_file_that_another_process_locks""",
        "PostgreSQL is unavailable": """
            web/server/test_machine_faults.py test_the_proxy_survives_a_postgresql_that_stops_and_restarts""",
        "the object store is unavailable": """
            scale/test_outages.py
            test_file_requests_get_a_temporary_error_while_the_object_store_is_down""",
        "the disk is full or fails": """
            web/server/test_machine_faults.py
            test_a_full_disk_refuses_new_objects_and_serves_existing_ones""",
        "the disk is read-only": """
            web/server/test_machine_faults.py
            test_a_read_only_disk_ends_storage_but_not_the_service""",
        "more containers need a kernel than allowed": """
            interpreter/test_interpreter.py
            test_an_idle_kernel_is_ended_for_another_and_its_container_is_informed
            interpreter/test_interpreter.py test_a_kernel_that_runs_or_waits_is_not_ended
            interpreter/test_interpreter.py test_one_client_cannot_occupy_all_kernels""",
        "thousands of requests, one client in three leaving": """
            web/server/test_soak.py test_two_thousand_mixed_requests_leave_no_resources""",
        "a sandbox dies": """
            project/test_reliability.py test_a_program_that_ends_its_process_fails_only_its_own_request
            interpreter/test_interpreter.py
            test_a_kernel_that_dies_is_replaced_and_the_files_are_still_there
            sandbox/test_escape.py test_a_dead_kernel_ends_its_own_session_only""",
    },
    "security.md": {
        "process": """
            sandbox/test_escape.py test_a_program_does_not_get_out_of_its_child""",
        "namespaces": """
            sandbox/test_escape.py test_the_kernel_sees_no_process_of_the_host
            sandbox/test_escape.py test_a_kernels_program_does_not_get_out""",
        "file system": """
            sandbox/test_escape.py test_the_kernel_writes_only_to_its_own_folders
            sandbox/test_escape.py test_the_kernel_writes_a_bounded_number_of_bytes""",
        "system calls": """
            sandbox/test_escape.py test_a_system_call_that_is_not_listed_does_not_exist
            sandbox/fences/test_fences.py test_a_docker_engine_gets_the_same_list_of_system_calls""",
        "memory, processes": """
            sandbox/test_escape.py test_the_kernel_gets_no_more_memory_than_allowed
            sandbox/test_escape.py test_memory_in_many_processes_is_bounded_as_a_whole
            sandbox/test_escape.py test_a_fork_bomb_is_stopped_by_the_process_limit""",
        "user": "sandbox/test_escape.py test_each_session_has_a_user_of_its_own",
        "running time, output, calls": """
            sandbox/test_escape.py test_a_program_ends_at_its_deadline
            sandbox/test_escape.py test_a_cell_prints_a_bounded_number_of_characters
            sandbox/test_cells.py test_a_cell_takes_these_steps""",
    },
}
TABLES = {
    "reliability.md": ("| event | result |",) * 2,
    "security.md": ("| fence | kernel in bubblewrap | kernel in docker | program |",),
}


@pytest.mark.parametrize("page", ROWS)
def test_each_row_of_the_page_has_tests(page: str) -> None:
    _, *tables = (DOCS / page).read_text().split(TABLES[page][0])
    assert len(tables) == len(TABLES[page])
    rows = [
        line.split(" | ")[0].removeprefix("| ")
        for table in tables
        for line in table.split("\n\n")[0].splitlines()[2:]
    ]
    assert rows == [*ROWS[page]]


def test_these_tests_exist() -> None:
    missing = []
    for row in (row for rows in ROWS.values() for row in rows.values()):
        file = ""
        for word in row.split():
            if word.endswith(".py"):
                file = word
            elif word not in functions(TESTS / file):
                missing.append(f"{file} {word}")
    assert missing == []


def functions(file: Path) -> set[str]:
    return {
        node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)
    }


@needs_bubblewrap
def test_a_program_that_ends_its_process_fails_only_its_own_request(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """It is not repaired: the model cannot know why the machine ends a process."""
    url = start_proxy() + "/v1/chat/completions"
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [GET_WEATHER]}
    upstream.reply("```python\nimport os\nos._exit(1)\nget_weather('Oslo')\n```")
    status, _, answer = send(url, body)
    assert (status, answer["error"]["code"]) == (503, "sandbox_failed")
    assert "process ended" in answer["error"]["message"]
    assert len(upstream.requests) == 1
    upstream.reply("```python\nget_weather('Oslo')\n```")
    assert send(url, body)[0] == 200
