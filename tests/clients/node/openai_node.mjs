// openai-node: each function is a way to ask; all give `{text, calls, parsed}`.
import OpenAI, { toFile } from "openai";
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

// The same over the Responses API. Its conversations are kept by the server. A cell that ran is one of the
// calls: `["code_interpreter", code, what it printed]`. With `container` there is a code interpreter.
const flat = plain.map((tool) => ({ type: "function", ...tool.function, strict: false }));
const include = ["code_interpreter_call.outputs"];
const interpreter = (container) => ({ type: "code_interpreter", container });
const offered = (container) => (container ? [interpreter(container), ...flat] : flat);
const printed = (cell) =>
  cell.outputs
    .filter((output) => output.type === "logs")
    .map((output) => output.logs)
    .join("");
const steps = {
  function_call: (call) => [call.name, JSON.parse(call.arguments)],
  code_interpreter_call: (cell) => ["code_interpreter", cell.code, printed(cell)],
};
const answered = (response) => ({
  text: response.output_text || null,
  calls: response.output.filter((item) => item.type in steps).map((item) => steps[item.type](item)),
});
const responding = {
  plain: (client, body) => client.responses.create(body),
  streamed: (client, body) => client.responses.stream(body).finalResponse(),
};

async function results(response) {
  const made = response.output.filter((item) => item.type === "function_call");
  return Promise.all(
    made.map(async (call) => ({
      type: "function_call_output",
      call_id: call.call_id,
      output: String(await tools[call.name].run(JSON.parse(call.arguments))),
    })),
  );
}

async function discussed(ask, { base_url, prompts, container }) {
  const client = connect(base_url);
  const answers = [];
  let response;
  for (const prompt of prompts) {
    const calls = [];
    let input = [{ role: "user", content: prompt }];
    while (input.length) {
      const body = { model, tools: offered(container), include, input };
      response = await ask(client, { ...body, previous_response_id: response?.id });
      calls.push(...answered(response).calls);
      input = await results(response);
    }
    answers.push({ text: response.output_text, calls });
  }
  return answers;
}

async function conversed(ask, { prompt, ...given }) {
  return (await discussed(ask, { prompts: [prompt], ...given }))[0];
}

export async function respond({ base_url, prompt }) {
  return answered(await responding.plain(connect(base_url), { model, tools: flat, input: prompt }));
}

export async function respond_streamed({ base_url, prompt }) {
  return answered(await responding.streamed(connect(base_url), { model, tools: flat, input: prompt }));
}

export const converse = (asked) => conversed(responding.plain, asked);
export const converse_streamed = (asked) => conversed(responding.streamed, asked);
export const discuss = (asked) => discussed(responding.plain, asked);
export const discuss_streamed = (asked) => discussed(responding.streamed, asked);

const responded = (ask) => async ({ base_url, prompt, container }) => {
  const text = { format: zodTextFormat(forecast, "forecast") };
  const code = container && { tools: [interpreter(container)], include };
  const response = await ask(connect(base_url), { model, input: prompt, text, ...code });
  return { parsed: response.output_parsed, ...(container && { calls: answered(response).calls }) };
};

export const respond_parsed = responded((client, body) => client.responses.parse(body));
export const respond_parsed_streamed = responded(responding.streamed);

// The picture that an answer cites as a file, and the one that its cell displayed, as base64.
const plotted = (ask) => async ({ base_url, prompt }) => {
  const client = connect(base_url);
  const tools = [interpreter({ type: "auto" })];
  const response = await ask(client, { model, input: prompt, tools, include });
  const [cell, message] = response.output;
  const [note] = message.content[0].annotations;
  const { file_id, container_id, filename } = note;
  const content = await client.containers.files.content.retrieve(file_id, { container_id });
  const file = Buffer.from(await content.arrayBuffer()).toString("base64");
  return { text: response.output_text, filename, file, displayed: cell.outputs[0].url.split(",")[1] };
};

export const plot = plotted(responding.plain);
export const plot_streamed = plotted(responding.streamed);

async function collected(pages) {
  const found = [];
  for await (const one of pages) found.push(one);
  return found;
}

// Files go into a container, a cell of the model reads them, and what it wrote comes out.
export async function files({ base_url, prompt }) {
  const client = connect(base_url);
  const uploaded = (name, text, purpose) =>
    toFile(Buffer.from(text), name).then((file) => client.files.create({ file, purpose }));
  const kept = await uploaded("one.csv", "1,2", "user_data");
  const later = await uploaded("three.csv", "5", "assistants");
  const container = await client.containers.create({ name: "sums", file_ids: [kept.id] });
  const inside = client.containers.files;
  const sent = await inside.create(container.id, { file: await toFile(Buffer.from("3,4"), "two.csv") });
  await inside.create(container.id, { file_id: later.id });
  const tools = [interpreter(container.id)];
  const response = await client.responses.create({ model, input: prompt, tools, include });
  const listed = await collected(inside.list(container.id, { limit: 1, order: "asc" }));
  const made = listed.find((file) => file.source === "assistant");
  const named = { container_id: container.id };
  const found = await inside.retrieve(made.id, named);
  const content = await (await inside.content.retrieve(made.id, named)).text();
  await inside.delete(sent.id, named);
  const left = await collected(inside.list(container.id));
  const containers = await collected(client.containers.list({ limit: 1 }));
  await client.containers.delete(container.id);
  const original = await (await client.files.content(kept.id)).text();
  const gone = await client.files.delete(kept.id);
  return {
    calls: answered(response).calls,
    listed: Object.fromEntries(listed.map((file) => [file.path, [file.source, file.bytes]])),
    made: [found.path, content],
    left: left.length,
    listed_container: containers.some((one) => one.id === container.id),
    original,
    deleted: gone.deleted,
    after: await client.containers.retrieve(container.id).catch((error) => error.status),
  };
}
