// The Vercel AI SDK through its OpenAI-compatible provider: each function is a way to ask.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";

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
