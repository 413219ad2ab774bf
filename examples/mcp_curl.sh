#!/bin/sh
# The tools of an MCP server that the proxy runs, with curl: one request, whatever the program calls.
# Start the proxy first: make run ARGS="--mcp 'time=uvx mcp-server-time'"
curl -sS "${PROXY_URL:-http://127.0.0.1:8001/v1}/responses" \
  -H "authorization: Bearer ${PROXY_KEY:-any}" -H 'content-type: application/json' -d @- <<BODY
{
  "model": "${MODEL:-any}",
  "input": "When it is noon in London, what time is it in Kolkata?",
  "tools": [{"type": "mcp", "server_label": "time", "require_approval": "never"}]
}
BODY
