"""llama.cpp's server by the options that deploy/compose.yaml gives it."""

import argparse
import threading

import xllamacpp

parser = argparse.ArgumentParser()
parser.add_argument("--host")
parser.add_argument("--port", type=int)
parser.add_argument("--model")
parser.add_argument("--ctx-size", type=int)
options = parser.parse_args()

params = xllamacpp.CommonParams()
params.model.path = options.model
params.hostnames = [options.host]
params.port = options.port
params.n_ctx = options.ctx_size
params.n_parallel = 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.ui = False
server = xllamacpp.Server(params)
threading.Event().wait()
