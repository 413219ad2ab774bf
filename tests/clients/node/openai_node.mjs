// openai-node: each function is a way to ask; all give `{text, calls, parsed}`.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

import { forecast, tools } from "./tools.mjs";

const model = "qwq-32b";
const connect = (base_url) => new OpenAI({ baseURL: base_url, apiKey: "client-key", maxRetries: 0 });
const called = (messages) =>
  messages.flatMap((message) =>
    (message.tool_calls ?? []).map((call) => [call.function.name, JSON.parse(call.function.arguments)]),
  );
const plain = Object.entries(tools).map(([name, tool]) => ({
  type: "function",
  function: { name, description: tool.description, parameters: z.toJSONSchema(tool.parameters) },
}));
const runnable = Object.entries(tools).map(([name, tool]) => ({
  type: "function",
  function: {
    name,
    description: tool.description,
    parameters: z.toJSONSchema(tool.parameters),
    parse: JSON.parse,
    function: tool.run,
  },
}));
const told = (message) => ({ text: message.content, calls: called([message]) });

export async function create({ base_url, prompt }) {
  const messages = [{ role: "user", content: prompt }];
  const completion = await connect(base_url).chat.completions.create({ model, messages, tools: plain });
  return told(completion.choices[0].message);
}

export async function stream({ base_url, prompt }) {
  const messages = [{ role: "user", content: prompt }];
  const runner = connect(base_url).chat.completions.stream({ model, messages, tools: plain });
  return told((await runner.finalChatCompletion()).choices[0].message);
}

async function finished(runner) {
  const text = await runner.finalContent();
  return { text, calls: called(runner.messages) };
}

export function run({ base_url, prompt }) {
  const messages = [{ role: "user", content: prompt }];
  return finished(connect(base_url).chat.completions.runTools({ model, messages, tools: runnable }));
}

export function run_streamed({ base_url, prompt }) {
  const messages = [{ role: "user", content: prompt }];
  const request = { model, messages, tools: runnable, stream: true };
  return finished(connect(base_url).chat.completions.runTools(request));
}

export async function parse({ base_url, prompt }) {
  const messages = [{ role: "user", content: prompt }];
  const response_format = zodResponseFormat(forecast, "forecast");
  const completion = await connect(base_url).chat.completions.parse({ model, messages, response_format });
  return { parsed: completion.choices[0].message.parsed };
}

export async function parse_streamed({ base_url, prompt }) {
  const messages = [{ role: "user", content: prompt }];
  const response_format = zodResponseFormat(forecast, "forecast");
  const runner = connect(base_url).chat.completions.stream({ model, messages, response_format });
  return { parsed: (await runner.finalChatCompletion()).choices[0].message.parsed };
}
