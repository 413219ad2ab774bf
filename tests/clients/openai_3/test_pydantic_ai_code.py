"""PydanticAI's OpenAIResponsesModel with its CodeExecutionTool: plain, streamed, typed, over two runs."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from pydantic_ai import Agent, CodeExecutionTool, NativeOutput, ToolOutput
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    ToolCallPart,
    UploadedFile,
)
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import (
    ASK,
    CODE,
    CODE_RUNS,
    CODE_TURNS,
    FORECAST,
    FORECAST_VALUE,
    MODEL,
    PLOT,
    PLOT_ANSWER,
    SUM,
    SUM_RAN,
    Forecast,
    get_weather,
    image_size,
    marked,
)
