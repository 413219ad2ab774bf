// The Anthropic SDK for TypeScript: each function is a way to ask; all give `{text, calls}`. The tool runner
// sends the conversation as a thread: only what is new.
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { z } from "zod";

import { tools } from "./tools.mjs";

const connect = (base_url) =>
  new Anthropic({ baseURL: base_url.replace(/\/v1$/, ""), apiKey: "client-key", maxRetries: 0 });
const asked = (prompt) => ({ model: "qwq-32b", max_tokens: 999, messages: [{ role: "user", content: prompt }] });
const plain = Object.entries(tools).map(([name, { description, parameters }]) => ({
  name,
  description,
  input_schema: z.toJSONSchema(parameters),
}));
const runnable = Object.entries(tools).map(([name, { description, parameters, run }]) =>
  betaZodTool({ name, description, inputSchema: parameters, run }),
);
const told = (messages) => ({
  text: messages.at(-1).content.filter((block) => block.type === "text").map((block) => block.text).join("") || null,
  calls: messages.flatMap(({ content }) =>
    content.filter((block) => block.type === "tool_use").map((block) => [block.name, block.input]),
  ),
});

export async function create({ base_url, prompt }) {
  return told([await connect(base_url).messages.create({ ...asked(prompt), tools: plain })]);
}

export async function stream({ base_url, prompt }) {
  return told([await connect(base_url).messages.stream({ ...asked(prompt), tools: plain }).finalMessage()]);
}

export async function run({ base_url, prompt }) {
  const messages = [];
  for await (const message of connect(base_url).beta.messages.toolRunner({ ...asked(prompt), tools: runnable }))
    messages.push(message);
  return told(messages);
}

export async function run_streamed({ base_url, prompt }) {
  const messages = [];
  const request = { ...asked(prompt), tools: runnable, stream: true };
  for await (const streamed of connect(base_url).beta.messages.toolRunner(request))
    messages.push(await streamed.finalMessage());
  return told(messages);
}

// Code calls the tools.
export async function run_code({ base_url, prompt }) {
  const code = { type: "code_execution_20260120", name: "code_execution" };
  const called = runnable.map((tool) => ({ ...tool, allowed_callers: [code.type] }));
  const messages = [];
  for await (const message of connect(base_url).beta.messages.toolRunner({ ...asked(prompt), tools: [code, ...called] }))
    messages.push(message);
  const ended = messages.at(-1).content.find((block) => block.type === "code_execution_tool_result");
  return { ...told(messages), printed: ended.content.stdout };
}
