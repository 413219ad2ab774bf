// openai-node: each function is a way to ask; all give `{text, calls, parsed}`.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
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

// The same over the Responses API. Its conversations are kept by the server.
const flat = plain.map((tool) => ({ type: "function", ...tool.function, strict: false }));
const answered = (response) => ({
  text: response.output_text || null,
  calls: response.output
    .filter((item) => item.type === "function_call")
    .map((call) => [call.name, JSON.parse(call.arguments)]),
});
const responding = {
  plain: (client, body) => client.responses.create(body),
  streamed: (client, body) => client.responses.stream(body).finalResponse(),
};

async function conversed(ask, { base_url, prompt }) {
  const client = connect(base_url);
  const calls = [];
  let response = await ask(client, { model, tools: flat, input: prompt });
  for (;;) {
    const made = response.output.filter((item) => item.type === "function_call");
    calls.push(...answered(response).calls);
    if (!made.length) return { text: response.output_text, calls };
    const input = [];
    for (const call of made) {
      const output = await tools[call.name].run(JSON.parse(call.arguments));
      input.push({ type: "function_call_output", call_id: call.call_id, output: String(output) });
    }
    response = await ask(client, { model, tools: flat, input, previous_response_id: response.id });
  }
}

export async function respond({ base_url, prompt }) {
  return answered(await responding.plain(connect(base_url), { model, tools: flat, input: prompt }));
}

export async function respond_streamed({ base_url, prompt }) {
  return answered(await responding.streamed(connect(base_url), { model, tools: flat, input: prompt }));
}

export const converse = (asked) => conversed(responding.plain, asked);
export const converse_streamed = (asked) => conversed(responding.streamed, asked);

export async function respond_parsed({ base_url, prompt }) {
  const text = { format: zodTextFormat(forecast, "forecast") };
  return { parsed: (await connect(base_url).responses.parse({ model, input: prompt, text })).output_parsed };
}

export async function respond_parsed_streamed({ base_url, prompt }) {
  const text = { format: zodTextFormat(forecast, "forecast") };
  const response = await responding.streamed(connect(base_url), { model, input: prompt, text });
  return { parsed: response.output_parsed };
}
