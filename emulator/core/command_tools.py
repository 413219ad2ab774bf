"""The names under which agents offer tools that run shell commands. Imports nothing."""

COMMAND_TOOLS = frozenset(
    "bash shell sh exec terminal execute_command run_command execute_bash run_bash run_shell_command "
    "shell_command exec_command local_shell run_terminal_cmd run_terminal_command run_in_terminal "
    "container.exec".split()
)
COMMAND_PARAMETERS = frozenset({"command", "cmd"})
"""The parameter that holds the command, if such a tool has more than one parameter."""
PATCH_TOOL = "apply_patch"
