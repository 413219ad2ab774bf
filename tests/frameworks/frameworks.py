"""The frameworks that are run. What each does is its program in programs/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.environments import Environment


@dataclass(frozen=True)
class Framework:
    title: str
    environment: Environment
    program: str
    """The name of its file in programs/."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What keeps it from telling its makers that it runs."""


def framework(title: str, environment: str, program: str, **variables: str) -> Framework:
    return Framework(title, Environment("frameworks", environment), program, variables)


FRAMEWORKS = (
    framework("Agno", "agno", "agno_agent", AGNO_TELEMETRY="false"),
    framework("AutoGen", "autogen", "autogen_agent"),
    framework(
        "CrewAI",
        "crewai",
        "crewai_crew",
        CREWAI_DISABLE_TELEMETRY="true",
        OTEL_SDK_DISABLED="true",
        CREWAI_TRACING_ENABLED="false",
    ),
    framework("DSPy", "dspy", "dspy_react"),
    framework("Google ADK", "google-adk", "google_adk_agent"),
    framework("Haystack", "haystack", "haystack_agent", HAYSTACK_TELEMETRY_ENABLED="False"),
    framework("LiteLLM SDK", "litellm", "litellm_sdk", LITELLM_LOCAL_MODEL_COST_MAP="True"),
    framework("Mirascope", "mirascope", "mirascope_calls"),
    framework("Semantic Kernel", "semantic-kernel", "semantic_kernel_agent"),
    framework("Strands", "strands", "strands_agent"),
)
