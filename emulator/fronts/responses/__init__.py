"""The Responses front: answer events -> OpenAI's items and stream events.

`chat` turns a request into a chat completion request, and `items` and `history` turn its input into messages;
`item_table` has a row for each type of item. `configuration` applies the settings that items change,
`compaction` replaces a conversation with a summary.
`output` and `writer` turn the answer's events into output items and stream events. `stored` saves responses,
and `event_log` replays their streams exactly. Start at `front.ResponseFront`. Knows nothing of Flask or of
chunks.
"""
