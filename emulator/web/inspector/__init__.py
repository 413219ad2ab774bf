"""The inspector: what the templates in `templates/` are given, made of what is recorded.

A route asks `Access` who is looking, a view makes plain values of a `Trace`, and `Pages` renders them. All
text in them is hostile: Jinja escapes every value, the redactor takes keys out of it, and the content policy
lets no script run but ours. The routes are in
`request_pages`, `playground_pages`, `container_pages` and `status_page`.
"""
