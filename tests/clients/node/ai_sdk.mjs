// The Vercel AI SDK: each function is a way to ask, through its OpenAI-compatible provider or, with code that
// runs, through its provider for OpenAI, which speaks Responses; `messages` through its provider for Anthropic.
import { createAnthropic, forwardAnthropicContainerIdFromLastStep } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

import { forecast, tools } from "./tools.mjs";

const connect = (base_url, options) =>
  createOpenAICompatible({ name: "proxy", baseURL: base_url, apiKey: "client-key", ...options })("qwq-32b");
const offered = (executed) =>
  Object.fromEntries(
    Object.entries(tools).map(([name, { description, parameters, run }]) => [
      name,
      tool({ description, inputSchema: parameters, ...(executed && { execute: run }) }),
    ]),
  );
const called = (steps) => steps.flatMap((step) => step.toolCalls.map((call) => [call.toolName, call.input]));

// An error of a stream is an event; the promises of what it would have given say less.
async function streamed(options) {
  let failure;
  const result = streamText({ ...options, onError: ({ error }) => (failure = error) });
  await result.consumeStream();
  if (failure) throw failure;
  return result;
}

export async function create({ base_url, prompt }) {
  const result = await generateText({ model: connect(base_url), prompt, tools: offered(false), maxRetries: 0 });
  return { text: result.text || null, calls: called(result.steps) };
}

export async function stream({ base_url, prompt }) {
  const result = await streamed({ model: connect(base_url), prompt, tools: offered(false), maxRetries: 0 });
  return { text: (await result.text) || null, calls: called(await result.steps) };
}

const loop = (base_url, prompt) => ({
  model: connect(base_url),
  prompt,
  tools: offered(true),
  stopWhen: stepCountIs(6),
  maxRetries: 0,
});

export async function run({ base_url, prompt }) {
  const result = await generateText(loop(base_url, prompt));
  return { text: result.text, calls: called(result.steps) };
}

export async function run_streamed({ base_url, prompt }) {
  const result = await streamed(loop(base_url, prompt));
  return { text: await result.text, calls: called(await result.steps) };
}

// The loop once more, over Anthropic's Messages.
const claude = (base_url, prompt) => ({
  ...loop(base_url, prompt),
  model: createAnthropic({ baseURL: base_url, apiKey: "client-key" })("qwq-32b"),
});

export async function messages({ base_url, prompt }) {
  const result = await generateText(claude(base_url, prompt));
  return { text: result.text, calls: called(result.steps) };
}

export async function messages_streamed({ base_url, prompt }) {
  const result = await streamed(claude(base_url, prompt));
  return { text: await result.text, calls: called(await result.steps) };
}

// Code calls the tools, over Messages; a cell that ran is `["code_execution", code, what it printed]`.
const coded = (ask) => async ({ base_url, prompt }) => {
  const anthropic = createAnthropic({ baseURL: base_url, apiKey: "client-key" });
  const { get_weather } = offered(true);
  const providerOptions = { anthropic: { allowedCallers: ["code_execution_20260120"] } };
  const result = await ask({
    ...claude(base_url, prompt),
    tools: { code_execution: anthropic.tools.codeExecution_20260120(), get_weather: { ...get_weather, providerOptions } },
    prepareStep: forwardAnthropicContainerIdFromLastStep,
  });
  const content = (await result.steps).flatMap((step) => step.content);
  const outputs = content.filter((part) => part.type === "tool-result" && part.providerExecuted);
  return {
    text: await result.text,
    calls: content
      .filter((part) => part.type === "tool-call")
      .map(({ toolName, input }) => [toolName, input.code ?? input]),
    printed: outputs.map(({ output }) => output.stdout),
  };
};

export const code = coded(generateText);
export const code_streamed = coded(streamed);

const formed = (base_url, prompt, options) => ({
  model: connect(base_url, options),
  prompt,
  output: Output.object({ schema: forecast }),
  maxRetries: 0,
});

export async function parse({ base_url, prompt }) {
  const result = await generateText(formed(base_url, prompt, { supportsStructuredOutputs: true }));
  return { parsed: result.output };
}

export async function parse_streamed({ base_url, prompt }) {
  const result = await streamed(formed(base_url, prompt, { supportsStructuredOutputs: true }));
  return { parsed: await result.output };
}

// Without supportsStructuredOutputs the provider asks for json_object, and the schema is told nobody.
export async function parse_json_object({ base_url, prompt }) {
  const result = await generateText(formed(base_url, prompt, {}));
  return { parsed: result.output };
}

// Over Responses, with a code interpreter. What `generateText` gives, `streamText` promises. A cell that ran is `["code_interpreter", code, what it printed]`.
const printed = (outputs) =>
  outputs
    .filter((output) => output.type === "logs")
    .map((output) => output.logs)
    .join("");

function ran(content) {
  const results = new Map();
  for (const part of content)
    if (part.type === "tool-result") results.set(part.toolCallId, part.output);
  return content
    .filter((part) => part.type === "tool-call")
    .map(({ toolName, toolCallId, input, providerExecuted }) =>
      providerExecuted
        ? [toolName, input.code, printed(results.get(toolCallId).outputs)]
        : [toolName, input],
    );
}

function analyzing(base_url, container) {
  const openai = createOpenAI({ baseURL: base_url, apiKey: "client-key" });
  const { get_weather } = offered(true);
  return {
    model: openai.responses("qwq-32b"),
    tools: { code_interpreter: openai.tools.codeInterpreter(container && { container }), get_weather },
    stopWhen: stepCountIs(6),
    maxRetries: 0,
  };
}

// A conversation goes back as references to its items or, if `chained`, to the response before.
const analyzed = (ask) => async ({ base_url, prompts, container, chained }) => {
  const answers = [];
  let messages = [];
  let previousResponseId;
  for (const prompt of prompts) {
    messages.push({ role: "user", content: prompt });
    const providerOptions = { openai: chained ? { previousResponseId } : {} };
    const result = await ask({ ...analyzing(base_url, container), messages, providerOptions });
    const steps = await result.steps;
    answers.push({ text: await result.text, calls: ran(steps.flatMap((step) => step.content)) });
    previousResponseId = steps.at(-1).providerMetadata.openai.responseId;
    messages = chained ? [] : [...messages, ...(await result.response).messages];
  }
  return answers;
};

export const analyze = analyzed(generateText);
export const analyze_streamed = analyzed(streamed);

const analyzedTo = (ask) => async ({ base_url, prompt, container }) => {
  const output = Output.object({ schema: forecast });
  const result = await ask({ ...analyzing(base_url, container), prompt, output });
  const steps = await result.steps;
  return { parsed: await result.output, calls: ran(steps.flatMap((step) => step.content)) };
};

export const analyze_parsed = analyzedTo(generateText);
export const analyze_parsed_streamed = analyzedTo(streamed);

const plotted = (ask) => async ({ base_url, prompt }) => {
  const result = await ask({ ...analyzing(base_url), prompt });
  const steps = await result.steps;
  const [cell] = steps.flatMap((step) => step.content).filter((part) => part.type === "tool-result");
  const displayed = cell.output.outputs[0].url.split(",")[1];
  const [{ filename, providerMetadata }] = await result.sources;
  return { text: await result.text, filename, displayed, file: providerMetadata.openai };
};

export const plot = plotted(generateText);
export const plot_streamed = plotted(streamed);

// OpenAI's tool search, run by the proxy or by this client, which sends what it found.
const searched = (ask) => async ({ base_url, prompt, execution }) => {
  const openai = createOpenAI({ baseURL: base_url, apiKey: "client-key" });
  const { get_weather } = offered(true);
  const parameters = z.toJSONSchema(z.object({ goal: z.string() }));
  const found = { type: "function", name: "get_weather", parameters: z.toJSONSchema(tools.get_weather.parameters) };
  const search = { execution, parameters, execute: () => ({ tools: [{ ...found, strict: false }] }) };
  const result = await ask({
    model: openai.responses("qwq-32b"),
    prompt,
    tools: {
      toolSearch: openai.tools.toolSearch(execution === "client" ? search : {}),
      get_weather: { ...get_weather, providerOptions: { openai: { deferLoading: true } } },
    },
    providerOptions: { openai: { store: false } },
    stopWhen: stepCountIs(6),
    maxRetries: 0,
  });
  const calls = called(await result.steps).map(([name, input]) => [name, input.arguments ?? input]);
  return { text: await result.text, calls };
};

export const search = searched(generateText);
export const search_streamed = searched(streamed);

// OpenAI's programmatic tool calling: the calls with the program or the model as their caller, and the program's output.
const programmed = (ask) => async ({ base_url, prompt, store }) => {
  const openai = createOpenAI({ baseURL: base_url, apiKey: "client-key" });
  const { get_weather, send_mail } = offered(true);
  const allowing = (...allowedCallers) => ({ providerOptions: { openai: { allowedCallers } } });
  const result = await ask({
    model: openai.responses("qwq-32b"),
    prompt,
    tools: {
      program: openai.tools.programmaticToolCalling(),
      get_weather: { ...get_weather, ...allowing("programmatic") },
      send_mail: { ...send_mail, ...allowing("direct") },
    },
    providerOptions: { openai: { store } },
    stopWhen: stepCountIs(6),
    maxRetries: 0,
  });
  const content = (await result.steps).flatMap((step) => step.content);
  const parts = content.filter((part) => part.type === "tool-call" || part.toolName === "program");
  return {
    text: await result.text,
    parts: parts.map(({ type, toolName, input, output, providerMetadata }) =>
      type === "tool-result"
        ? [type, output.result, output.status]
        : [toolName, input.code ?? input, providerMetadata?.openai.caller?.type ?? "model"],
    ),
  };
};

export const program = programmed(generateText);
export const program_streamed = programmed(streamed);
