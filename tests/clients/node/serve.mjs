// Runs a client on request: a line of JSON in, `{client, way, base_url, ...}`, a line of JSON out,
// `{result}` or `{error}`. One process for all tests, since a start of Node takes longer than a test.
import { createInterface } from "node:readline";

import * as ai_sdk from "./ai_sdk.mjs";
import * as anthropic_node from "./anthropic_node.mjs";
import * as openai_agents_js from "./openai_agents_js.mjs";
import * as openai_node from "./openai_node.mjs";

const clients = { ai_sdk, anthropic_node, openai_agents_js, openai_node };

for await (const line of createInterface({ input: process.stdin })) {
  const { client, way, ...given } = JSON.parse(line);
  let answer;
  try {
    answer = { result: await clients[client][way](given) };
  } catch (error) {
    answer = { error: { name: error.name, status: error.status ?? error.statusCode, message: error.message } };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
