// OpenAI's Agents SDK for JavaScript: an agent with deferred tools, which the proxy or this client searches.
import {
  Agent,
  OpenAIResponsesModel,
  run,
  setTracingDisabled,
  tool,
  toolNamespace,
  toolSearchTool,
} from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";

import { tools } from "./tools.mjs";

setTracingDisabled(true);

const deferred = (name, calls) =>
  tool({
    name,
    description: tools[name].description,
    parameters: z.object({ location: z.string() }),
    deferLoading: true,
    execute: (input) => {
      calls.push([name, input]);
      return tools[name].run(input);
    },
  });

const searched = (stream) => async ({ base_url, prompt, execution }) => {
  const client = new OpenAI({ baseURL: base_url, apiKey: "client-key", maxRetries: 0 });
  const calls = [];
  const weather = { name: "weather", description: "The weather.", tools: [deferred("get_weather", calls)] };
  const agent = new Agent({
    name: "Agent",
    model: new OpenAIResponsesModel(client, "qwq-32b"),
    tools: [toolSearchTool({ execution }), ...toolNamespace(weather)],
  });
  const result = await run(agent, prompt, { stream });
  if (stream) await result.completed;
  const items = result.newItems.map((item) => item.rawItem.type);
  return { text: result.finalOutput, calls, searches: items.filter((type) => type.startsWith("tool_search")) };
};

export const search = searched(false);
export const search_streamed = searched(true);
