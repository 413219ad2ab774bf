"""The APIs: a client's JSON -> a conversation, and the events of an answer -> the API's wire format.

    chat/         OpenAI's Chat Completions
    responses/    OpenAI's Responses and Conversations
    anthropic/    Anthropic's Messages

Each front reads its request into a Chat Completions request, which `emulator.answering` answers, and
folds its own stream into the plain answer, so that the two cannot disagree.

Laws: fronts know nothing of one another, of Flask, or of how an answer is made.
"""
