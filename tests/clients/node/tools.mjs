// The tools and the structured output of tests/clients/scenarios.py, for clients that take zod schemas.
import { z } from "zod";

export const forecast = z.object({
  city: z.string(),
  days: z.array(z.object({ high: z.number(), low: z.number() })),
});

export const tools = {
  get_weather: {
    description: "Get the current weather of a place.",
    parameters: z.object({ location: z.string(), unit: z.enum(["celsius", "fahrenheit"]).optional() }),
    run: ({ location, unit = "celsius" }) => `12 degrees ${unit} in ${location}`,
  },
  send_mail: {
    description: "Send a mail.",
    parameters: z.object({ to: z.string(), body: z.string() }),
    run: ({ to, body }) => `sent to ${to}: ${body}`,
  },
  create_event: {
    description: "Put an event into the calendar.",
    parameters: z.object({
      title: z.string(),
      place: z.object({ city: z.string() }),
      guests: z.array(z.object({ name: z.string(), age: z.number().int().optional() })),
    }),
    run: ({ title, place }) => `${title} in ${place.city}`,
  },
};
