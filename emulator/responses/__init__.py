"""The Responses front: answer events -> OpenAI's items and stream events.

A request becomes a chat completion request (`chat`), its input a history (`items`, `history`); the
answer's events become output items (`output`) and stream events (`writer`). What was answered is kept
(`stored`) and can be replayed exactly (`event_log`). `front.ResponseFront` is the door. Knows nothing of
Flask or of chunks.
"""
