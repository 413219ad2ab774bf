"""The commands of `tool-emulator`: serve, check, doctor, mcp, explain, fit, run, keys.

    commands          read the command line and call the command
    serve             open what the settings name, and run the server
    start_messages    what a start prints
    interrupts        what Ctrl-C does, before and while a command works
    check             report what the model servers are and can do
    fit/              measure which way of calling tools suits a model
    terminal/         start a coding agent with a proxy of its own

Law: a command imports the rest of the product when it is called, so that `--help` and a wrong flag answer
at once. Start at `commands.main`.
"""
