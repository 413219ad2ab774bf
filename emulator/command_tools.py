"""Which tools run a shell's commands: known by their names, as agents call them. Imports nothing."""

COMMAND_TOOLS = frozenset(
    "bash shell sh exec terminal execute_command run_command execute_bash run_bash run_shell_command "
    "shell_command exec_command local_shell run_terminal_cmd run_terminal_command run_in_terminal "
    "container.exec".split()
)
COMMAND_PARAMETERS = frozenset({"command", "cmd"})
"""What such a tool calls the command, where it takes more than that."""
PATCH_TOOL = "apply_patch"
