"""What OpenAI's own client makes of a server and a question: models, a completion, a stream.

Prints JSON.
"""

import json
import sys

import openai

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="sesame", max_retries=0)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": sys.argv[2]}]
ask = {"model": model, "messages": messages, "seed": 7, "max_tokens": 16}

whole = client.chat.completions.create(**ask)
chunks = list(
    client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
)
print(
    json.dumps(
        {
            "model": model,
            "text": whole.choices[0].message.content,
            "thought": getattr(whole.choices[0].message, "reasoning_content", ""),
            "streamed_thought": "".join(
                getattr(c.choices[0].delta, "reasoning_content", "") for c in chunks if c.choices
            ),
            "completion_tokens": whole.usage.completion_tokens,
            "haltwise": whole.haltwise,
            "streamed": "".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
            "finish": [c.choices[0].finish_reason for c in chunks if c.choices][-1],
            "streamed_tokens": chunks[-1].usage.completion_tokens,
            "streamed_haltwise": [c for c in chunks if c.choices][-1].haltwise,
        }
    )
)
